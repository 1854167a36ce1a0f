"""Runs that outlive the notebook: each is driven by a process of its own.

The notebook starts that process in a session of its own and hands the job over through a pipe; the process calls
`train` as a script would, and serves `control`. So private Redis, watchdog, functions, recovery, money, record and
clean-up are those of a process that the notebook's end does not reach. The notebook's own handle is an attached one,
like those of other notebooks: there is one way to follow such a run. The process ends with its run; if it is killed,
its watchdog cleans up as it does for a notebook.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from typing import IO, Any

from ... import errors
from ...errors import CommandError, JobError, MllessError, ServiceError
from ...job.job import TrainingJob
from ...telemetry.record import runs_folder
from .. import spending
from ..backends.launcher import is_local
from ..run import TrainingRun
from . import handover
from .attaching import Attached, live
from .control import Control, check

_PROGRAM = "from mlless_nb.driver.detached.detached import main; main()"
#: Longest wait for a process that was asked to give up a run, seconds.
GIVE_UP_S = 10.0
#: Most characters of what a process that failed has printed.
MOST_PRINTED = 2000


def is_wanted(job: TrainingJob) -> bool:
    """Whether ``job`` is to outlive this process: if it says so, and off this machine unless it says no."""
    if job.detach is not None:
        return job.detach
    if is_local(job.backend):
        return False
    try:
        with open(os.devnull, "wb") as nowhere:
            handover.write(nowhere, job)
    except JobError:
        return False
    return True


def start(job: TrainingJob, resume: str | None, on_end: Callable[[TrainingRun], None]) -> TrainingRun:
    """Start ``job`` in a process of its own; returns the handle once the run is ready. Errors are those of `train`.

    ``resume`` is the id of the run to resume from, and ``on_end`` is called as by `Attached`.
    """
    name = job.name or f"run-{uuid.uuid4().hex[:8]}"
    if live(name) is not None:
        raise CommandError(
            f"a run called {name!r} is live in a process of its own: mlless_nb.attach({name!r}) controls it; stop it "
            "first or choose another name"
        )
    check()
    program = [sys.executable, "-P", "-c", _PROGRAM]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(program, **pipes, stderr=printed, cwd="/", start_new_session=True)
        try:
            answer = _handed_over(process, dataclasses.replace(job, name=name), resume)
            if "run_id" not in answer:
                raise _raised(answer, printed)
            try:
                return Attached(runs_folder() / answer["run_id"], on_end, job, process).run
            except OSError as error:
                raise ServiceError(f"the run's own process cannot be reached: {error}") from None
        except BaseException:  # an interrupt, too: the run is not wanted any more
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GIVE_UP_S)
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()


def _handed_over(process: subprocess.Popen[bytes], job: TrainingJob, resume: str | None) -> dict[str, Any]:
    """Give ``process`` its job; returns what it says then."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        handover.write(stdin, job, resume=resume, spending=spending.in_force())
    try:
        answer: dict[str, Any] = json.loads(process.stdout.readline() or b"{}")
    except ValueError:
        return {}
    return answer


def _raised(answer: dict[str, Any], printed: IO[bytes]) -> MllessError:
    """The error that the process has met, as this one would raise it."""
    kind = getattr(errors, str(answer.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, MllessError)):
        printed.seek(0)
        last = printed.read().decode(errors="replace").strip()[-MOST_PRINTED:].rpartition("\n")[2]
        return ServiceError(f"the process that was to drive the run has ended: {last or 'it printed nothing'}")
    error = kind.__new__(kind)
    error.args = (answer["text"],)
    if isinstance(error, JobError):
        error.field, error.value, error.valid = answer["field"], answer["value"], answer["valid"]
    return error


def main() -> None:
    """The process of one run: reads the job from its standard input, and ends with the run."""
    from ..runs import train

    os.umask(0o077)
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        try:
            job, more = handover.read(sys.stdin.buffer)
            spending.take_over(more["spending"])
            run = train(dataclasses.replace(job, detach=False), resume=more["resume"])
        except MllessError as error:
            _answer(answer, {"error": type(error).__name__, "text": str(error), **_field_of(error)})
            return
        except KeyboardInterrupt:
            return
        run.telemetry.update(is_detached=True)
        run.telemetry.add_event(0.0, f"Goes on without its notebook: mlless_nb.attach({run.name!r}) finds it")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: run.stop())
        control = Control(run)
        _answer(answer, {"run_id": run.id})
    from ...starting import foresee  # once the notebook has its answer: importing it takes a tenth of a second

    foresee(run)
    run.wait()
    control.close()


def _answer(answer: IO[str], said: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the notebook is gone already: the run goes on
        answer.write(json.dumps(said) + "\n")
        answer.flush()


def _field_of(error: MllessError) -> dict[str, Any]:
    if not isinstance(error, JobError):
        return {}
    is_plain = isinstance(error.value, (str, int, float, bool, type(None)))
    return {"field": error.field, "value": error.value if is_plain else repr(error.value)[:80], "valid": error.valid}
