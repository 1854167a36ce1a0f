"""The driver of a trial, a process of its own: trains one run as it is told on its command line, in JSON.

It prints a line of JSON when the run has begun, whenever a cap is in force, and at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import sitecustomize
from engine.jobs import PATIENCE_S, job

import mlless_nb
from mlless_nb import BSP, ISP, SGD, CommandError, MllessError, ScaleIn, Stop
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.ending import teardown
from mlless_nb.driver.servers.services import Services
from mlless_nb.money.meter import NUSD

#: Held while a line is written: other threads write, too.
SAYING = threading.Lock()


def say(**facts: Any) -> None:
    """Print ``facts``, past `sys.stdout`: Python aborts if a daemon thread holds that at the process' end."""
    line = memoryview(json.dumps(facts).encode() + b"\n")
    with SAYING:
        while line:
            line = line[os.write(sys.stdout.fileno(), line) :]


def observe(reporter: Any, lifetime_s: float | None, twice: tuple[float, int] | None) -> None:
    """Report invocations: a function may die before it can say anything. Give functions a lifetime, if there is one.

    Invoke the first function of a slot ``twice``, so many seconds later, as platforms may that deliver at least once;
    but not once the run is over: of that nobody could know, and nobody keeps servers for it. Report what is reserved of
    the budget, too, once all functions have returned what they did not need, and what of it the driver has kept for its
    own requests.
    """
    make, invoke, remove = LithopsLauncher.__init__, LithopsLauncher.invoke, teardown.remove_all
    lock, is_over = threading.Lock(), threading.Event()

    def made(self: LithopsLauncher, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self.lifetime_s = lifetime_s or self.lifetime_s

    def invoked(self: LithopsLauncher, payloads: list[str]) -> None:
        with lock:
            known = set(self.process_groups)
            invoke(self, payloads)
            of_slot = {reporter.slot_of(json.loads(payload)): payload for payload in payloads}
            for group in set(self.process_groups) - known:
                reporter.say(invoked=group, slots=[*of_slot])
        if twice is not None and not known:
            again = threading.Timer(twice[0], lambda: is_over.is_set() or self.invoke([of_slot[twice[1]]]))
            again.daemon = True
            again.start()

    def removed(
        services: Services, run_id: str, remove_objects: Callable[[], None] | None
    ) -> tuple[str, dict[str, int]]:
        is_over.set()

        def told_before() -> None:
            with contextlib.suppress(Exception):  # the server may have lost the run
                say(reserved=services.log.money()[1] / NUSD)
            assert remove_objects is not None
            remove_objects()

        removed = remove(services, run_id, told_before if remove_objects is not None else None)
        if services.dues is not None:
            say(kept=services.dues.rest_nusd / NUSD)
        return removed

    teardown.remove_all = removed
    LithopsLauncher.__init__ = made  # type: ignore[method-assign]
    LithopsLauncher.invoke = invoked  # type: ignore[method-assign]
    reporter.follow()


def raise_budget(run: mlless_nb.TrainingRun, step: int, usd: float) -> None:
    """Set the budget once the run has taken ``step`` steps."""
    seen = 0
    while run.telemetry.state.step < step and run.telemetry.state.is_live:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    say(cap=usd)  # before it can be in force
    try:
        run.budget = usd
    except CommandError as error:
        say(refused=str(error))


def tell(run: mlless_nb.TrainingRun) -> None:
    """Tell the step now and then."""
    seen = 0
    while run.telemetry.state.is_live:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
        say(step=run.telemetry.state.step)


def act(run: mlless_nb.TrainingRun, what: str, step: int) -> None:
    """Do ``what`` once the run has taken ``step`` steps."""
    seen = 0
    while run.telemetry.state.step < step and run.telemetry.state.is_live:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    say(step=run.telemetry.state.step)
    if what == "stop":
        run.stop()
    elif what == "scale in":
        run.scale_in(1)
    elif what == "raise":
        raise RuntimeError("planted")
    elif what == "die":
        os._exit(3)


def main(told: dict[str, Any]) -> None:
    """Train one run."""
    observe(getattr(sitecustomize, "reporter"), told.get("lifetime_s"), told.get("twice"))  # noqa: B009 - not every one has it
    if told.get("session"):
        mlless_nb.session(told["session"])
    options: dict[str, Any] = {
        "optimizer": SGD(told.get("learning_rate", 2.0), momentum=0.9, nesterov=True),
        "sync": BSP() if told.get("sync") == "BSP" else ISP(0.7),
        "workers": told.get("workers", 4),
        "stop": Stop(**told.get("stop", {})),
        "scale_in": ScaleIn.off(),
        "checkpoint_every": told.get("checkpoint_every"),
        "budget": told.get("cap"),
        "redis": told.get("redis"),
        "bus": told.get("bus"),
        "store": told.get("store", "redis"),
        "speculation": told.get("speculation", 3.0),
        "execution": told.get("execution", "workers"),
    }
    try:
        run = mlless_nb.train(job(**options), resume=told.get("resume"))
    except MllessError as error:
        say(status="refused", reason=str(error), cost=0.0)
        return
    say(run=run.id, memory_mb=run.job.memory_mb)
    if told.get("raise_at"):
        arguments = (run, *told["raise_at"])
        threading.Thread(target=raise_budget, args=arguments, daemon=True).start()
    if told.get("tells"):
        threading.Thread(target=tell, args=(run,), daemon=True).start()
    if told.get("then"):
        act(run, told["then"], told.get("at", 5))
        if told["then"] == "return":
            return
    run.wait()
    cost, state = run.cost, run.telemetry.state
    events = [event.text for event in state.events]
    say(
        status=run.status,
        reason=run.reason,
        cost=cost.total,
        parts=dict(cost),
        step=state.step,
        time_s=state.time_s,
        events=events,
        left=run.left,
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
