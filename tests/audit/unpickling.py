"""An audit hook: in the test run, and in every Python process that it starts, nothing looks up a class for a pickle.

Python reports ``pickle.find_class`` whenever a pickle names a class or function, which is how pickles run code:
`pickle.load`, `numpy.load(allow_pickle=True)`, `torch.load`, `joblib.load` and `shelve` all pass there. The hook
raises, writes the place into a file that is looked at after each test, and lets pass only what is named here.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: The file that takes the places, for all processes of a test run.
LOG = "AUDITED_UNPICKLING"
#: What Lithops' worker loads: functions that are given a text. Their results are texts, too.
FUNCTIONS = {"mlless_nb.function.entry.run_function", "mlless_nb.stateless.functions.run_payload"}
#: Who may unpickle, by the end of the file and the function, and what; None stands for anything.
ALLOWED: dict[tuple[str, str], set[str] | None] = {
    ("/lithops/worker/jobrunner.py", "run"): FUNCTIONS,
    # It tries whether an exception of the function, which it has just pickled itself, can be unpickled.
    ("/lithops/worker/jobrunner.py", "_write_exception"): None,
    ("/lithops/worker/handler.py", "_add_exception"): None,
    # JupyterLab's server reads the locale data that Babel ships as pickles.
    ("/babel/localedata.py", "load"): None,
}
_on_purpose = threading.local()
_installed = False


@contextmanager
def on_purpose() -> Iterator[None]:
    """Let this thread unpickle, for tests that show what a pickle would do."""
    _on_purpose.is_on = True
    try:
        yield
    finally:
        _on_purpose.is_on = False


def install() -> None:
    """Begin to watch this process; it cannot be undone."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event != "pickle.find_class" or getattr(_on_purpose, "is_on", False):
        return
    caller = _caller(sys._getframe(1))
    path, name = (caller.f_code.co_filename.replace(os.sep, "/"), ".".join(map(str, arguments))) if caller else ("", "")
    function = caller.f_code.co_name if caller else ""
    for (end, within), names in ALLOWED.items():
        if path.endswith(end) and function == within and (names is None or name in names):
            return
    place = f"{path}:{caller.f_lineno if caller else 0} unpickles {name}"
    if log := os.environ.get(LOG):
        with open(log, "a", encoding="utf-8") as file:
            file.write(place + "\n")
    raise RuntimeError(place)


def _caller(frame: FrameType | None) -> FrameType | None:
    """The frame outside of the pickle module."""
    while frame is not None and frame.f_code.co_filename.endswith(("/pickle.py", "/cloudpickle.py")):
        frame = frame.f_back
    return frame
