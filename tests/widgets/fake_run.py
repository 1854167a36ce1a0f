"""A run without an engine: a real `Telemetry`, filled row by row as a training run fills it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from mlless_nb.errors import CommandError
from mlless_nb.money import Cost
from mlless_nb.telemetry.live import COLUMNS, Telemetry

STEP_S = 0.09


class FakeRun:
    """What the dashboard needs of a run, moved on by `advance` or by a thread (`start`)."""

    def __init__(
        self,
        name: str = "first",
        budget_usd: float | None = 0.025,
        n_steps: int = 480,
        workers: int = 8,
        removes_at: tuple[int, ...] = (231, 301, 372),
    ) -> None:
        self.telemetry, self.name, self.id, self.job = Telemetry(), name, f"{name}-1", "a job"
        self.n_steps, self.commands = n_steps, []  # type: ignore[var-annotated]
        self._removes_at = removes_at  # the tuner's removals, by step
        self._budget, self._n_workers, self._step, self._spent = budget_usd, workers, 0, 0.0
        self._n_started = workers
        self._lock, self._stop, self._random = threading.RLock(), False, np.random.default_rng(7)
        self.telemetry.update(
            run_id=self.id,
            name=name,
            description="PMF rank 20 · MovieLens-1M · ISP 0.7",
            metric="RMSE",
            target=0.868,
            n_workers_started=workers,
            budget_usd=budget_usd,
            price_profile="AWS Lambda x86",
            stop_rules={"steps": n_steps, "may_settle": False},
            tuner="on",
        )

    # ------------------------------------------------------------------ what a view may ask
    def stop(self) -> None:
        with self._lock:
            self.commands.append(("stop", self._step))
            self._stop = True
            self.telemetry.update(pending=("stopping after this step ...",))

    def scale_in(self, n: int = 1) -> None:
        with self._lock:
            if self._n_workers - n < 1:
                raise CommandError("one worker must be left")
            self.commands.append(("scale_in", self._step))
            self.telemetry.update(pending=(f"removing {n} worker ...",))
            self._leaving = n

    def pause_tuner(self) -> None:
        self.commands.append(("tune", False))
        self.telemetry.update(tuner="paused")

    def resume_tuner(self) -> None:
        self.commands.append(("tune", True))
        self.telemetry.update(tuner="on")

    def resume(self, budget: float) -> FakeRun:
        self.commands.append(("resume", budget))
        return FakeRun(self.name, budget, self.n_steps, self._n_started, ()).start()

    @property
    def cost(self) -> Cost:
        return Cost(workers=self._spent * 0.8, redis=self._spent * 0.2)

    @property
    def budget(self) -> float | None:
        return self._budget

    @budget.setter
    def budget(self, usd: float) -> None:
        with self._lock:
            floor = self.telemetry.state.committed_usd
            if usd < floor:
                raise CommandError(f"budget=${usd:.4f}: must be at least ${floor:.4f}, which is spent and committed")
            self.commands.append(("budget", usd))
            self._budget = usd
            self.telemetry.update(budget_usd=usd)

    _leaving = 0
    #: What the validation loss rises a step after step 300, and by which factor after step 100.
    rises, diverges = 0.0, 1.0
    #: By how much the training loss goes up and down from step to step.
    swings = 0.0

    # ------------------------------------------------------------------ what an engine does
    def advance(self, n: int = 1) -> None:
        """Take ``n`` steps, or fewer when the run ends before."""
        for _ in range(n):
            with self._lock:
                if self.telemetry.state.status in ("finished", "stopped", "capped", "failed"):
                    return
                self._advance()

    def _advance(self) -> None:
        if self._step == 0:
            self.telemetry.add_event(0.9, f"{self._n_workers} of {self._n_workers} workers started")
            self.telemetry.update(status="running")
        self._step += 1
        step = self._step
        if self._leaving:
            self._n_workers -= self._leaving
            self._leaving = 0
            self.telemetry.add_event(step * STEP_S, f"Worker {self._n_workers} leaves, as you asked")
            self.telemetry.update(pending=())
        if step in self._removes_at and self._n_workers > 1:
            self._n_workers -= 1
            self.telemetry.add_event(
                step * STEP_S,
                f"Removed worker {self._n_workers}: same steps, 13 % cheaper",
            )
        self._spent += 4.6e-6 * self._n_workers + 6e-6
        validation = 0.8655 + 0.07 / (1 + step / 40) + self.rises * max(step - 300, 0)
        validation *= self.diverges ** max(step - 100, 0)
        loss = validation - 0.012 + 0.006 * self._random.standard_normal() + 0.05 / step + self.swings * (-1) ** step
        sent = 96e3 * self._n_workers
        row = dict.fromkeys(COLUMNS, 0.0) | {
            "step": step,
            "epoch": step / 36,
            "time_s": step * STEP_S,
            "loss": loss,
            "validation_loss": validation if step % 4 == 0 else np.nan,
            "n_workers": self._n_workers,
            "spent_usd": self._spent,
            "servers_usd": 6e-6 * step,
            "sent_bytes": sent,
            "received_bytes": sent * (self._n_workers - 1),
            "sent_fraction": 0.21,
            "compute_s": 0.0152,
            "exchange_s": 0.0083,
            "wait_s": 0.0035,
        }
        self.telemetry.append(np.array([[row[column] for column in COLUMNS]]))
        changes: dict[str, Any] = {} if step % 4 else {"validation_loss": validation}
        if step % 4 == 0 and validation < (self.telemetry.state.best_loss or np.inf):
            changes |= {"best_loss": validation, "best_step": step, "best_epoch": step / 36}
        self.telemetry.update(
            step=step,
            epoch=step / 36,
            time_s=step * STEP_S,
            loss=loss,
            n_workers=self._n_workers,
            spent_usd=self._spent,
            committed_usd=self._spent + 2e-4,
            rate_usd_s=(4.6e-6 * self._n_workers + 6e-6) / STEP_S,
            worker_times=[
                [slot, 1, 0.015 * (1.8 if slot == 3 else 1), 0.008, 0.004, int(slot >= self._n_workers), step, 0, 0]
                for slot in range(self._n_started)
            ],
            **changes,
        )
        if self._stop:
            self.end("stopped", f"Stopped by you at step {step}; the model of step {step} is kept.")
        elif self._budget is not None and self._spent + 3e-4 > self._budget:
            self.end("capped", f"The budget is used up at step {step}; the model of step {step} is kept.")
        elif step >= self.n_steps:
            self.end("finished", f"All {step} steps are done.")

    def end(self, status: str, reason: str) -> None:
        """End the run now."""
        self.telemetry.add_event(self._step * STEP_S, reason)
        self.telemetry.update(status=status, reason=reason, pending=(), n_workers=0, rate_usd_s=0.0)

    def start(self, step_s: float = STEP_S) -> FakeRun:
        """Take a step every ``step_s`` seconds in a background thread."""

        def loop() -> None:
            paused = threading.Event()
            while self.telemetry.state.is_live:
                self.advance()
                paused.wait(step_s)

        threading.Thread(target=loop, name="fake-run", daemon=True).start()
        return self
