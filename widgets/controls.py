"""The dashboard's controls: a command with an id in, one acknowledgement out.

The browser repeats a command until it is acknowledged, so a command is carried out only once per id. A handler may run
on any thread (a subshell's or the main one); the run's methods return at once.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..errors import MllessError
from .access import access_to

#: Acknowledgements that are kept for repeated commands.
KEPT_REPLIES = 200
#: Commas that can only separate thousands; any other comma may be meant as a decimal point.
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d*)?")


class Controls:
    """The commands of one dashboard.

    ``stop``, ``scale_in`` (value: how many workers), ``budget`` (value: dollars), ``tune`` (value: whether the
    auto-tuner is on); after the end ``continue`` (value: dollars of a run that resumes from this one).

    Parameters
    ----------
    run : TrainingRun
    on_resumed : callable
        Takes the run that ``continue`` has started.
    """

    def __init__(self, run: Any, on_resumed: Callable[[Any], None] = lambda _run: None) -> None:
        self._run, self._on_resumed = run, on_resumed
        self._next: tuple[Any, float] | None = None  # the run that goes on from this one, and its dollars
        self._replies: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self.stop_asked = False

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carry out ``{"cmd", "id", "value"}`` unless that id was carried out before.

        Returns
        -------
        dict
            ``{"kind": "ack", "id", "ok", "text"}``. ``text`` is the reason of a refusal; the run's state shows pending
            commands.
        """
        command_id = str(message.get("id", ""))[:64]
        with self._lock:
            if command_id not in self._replies:
                ok, text = self._do(message.get("cmd"), message.get("value"))
                self._replies[command_id] = {"kind": "ack", "id": command_id, "ok": ok, "text": text}
                if len(self._replies) > KEPT_REPLIES:
                    self._replies.popitem(last=False)
            return self._replies[command_id]

    def _do(self, command: object, value: object) -> tuple[bool, str]:
        try:
            if command == "continue":
                return self._resume(_dollars(value))
            if not self._run.telemetry.state.is_live:
                return False, "The run has ended."
            if command == "stop":
                self._run.stop()
                self.stop_asked = True
                return True, ""
            if command == "scale_in":
                self._run.scale_in(_whole(value))
                return True, ""
            if command == "tune":
                (self._run.resume_tuner if value is True else self._run.pause_tuner)()
                return True, ""
            if command == "budget":
                self._run.budget = _dollars(value)
                return True, ""
        except MllessError as error:
            return False, str(error)
        return False, f"{command!r} is not a command."

    @property
    def cannot_resume(self) -> str:
        """Why the run cannot be continued from here; an empty sentence if it can."""
        if not self._run.telemetry.state.step:
            return "There is nothing to go on from here."
        if getattr(self._run, "job", None) is None:
            return f'Its data is not known here: mlless_nb.train(job, resume="{self._run.name}") goes on from it.'
        return self._told_of_next()

    def _resume(self, usd: float) -> tuple[bool, str]:
        if self._run.telemetry.state.is_live:
            return False, "The run has not ended."
        if self.cannot_resume:
            return False, self.cannot_resume
        run = self._run.resume(budget=usd)
        self._next = run, usd
        self._on_resumed(run)
        return True, self._told_of_next()

    def _told_of_next(self) -> str:
        if self._next is None:
            return ""
        run, usd = self._next
        # after a reload of the page no output can be replaced, and nobody notices here
        shown = f"{access_to(run).handle}.dashboard() shows it if it does not appear here."
        return f"It goes on as another run with ${usd:g}: {shown}"


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise MllessError(f"{value!r} is not a number of workers")
    return value


def _dollars(value: object) -> float:
    text = value.strip().removeprefix("$") if isinstance(value, str) else value
    if isinstance(text, str) and _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        amount = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        amount = float("nan")
    if not 0 < amount < float("inf"):
        raise MllessError(f"budget={value!r}: must be dollars above 0, with a point before the cents, e.g. 0.40")
    return amount
