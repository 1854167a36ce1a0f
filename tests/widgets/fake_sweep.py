"""A sweep without runs."""

from __future__ import annotations

from typing import Any, ClassVar

from mlless_nb.search import Trial, choice, integer, log_uniform, uniform


class FakeSweep:
    """Four trials: a finished one, a weak one, a failed one, a live one."""

    name, metric, sampler, n_trials, budget, spent = "rates", "RMSE", "tpe", 9, 0.05, 0.0125
    is_live, status, reason = True, "running", ""
    spaces: ClassVar = {
        "rate": log_uniform(0.1, 10.0),
        "rank": integer(2, 8),
        "l2": uniform(0, 1),
        "kind": choice("a<b", None),
    }

    def __init__(self) -> None:
        self.n_stopped = 0

        def drawn(rate: float, kind: str | None = None) -> dict[str, Any]:
            return {"rate": rate, "rank": 4, "l2": 0.5, "kind": kind}

        self.trials = [
            Trial(1, "rates-1", "a", drawn(1.0), "pruned", "stopped at epoch 2", 0.9, 0.04, 2.0, 1.0, 0.001),
            Trial(2, "rates-2", "b", drawn(3.0, "a<b"), "finished", "", 0.8, 1.0, 50.0, 9.0, 0.01),
            Trial(3, "rates-3", "", drawn(9.0), "failed", "SGD.learning_rate=9: must be less"),
            Trial(4, "rates-4", "d", drawn(2.0), "running", "", None, None, 3.0, 1.0, 0.0015),
        ]

    @property
    def ranked(self) -> list[Trial]:
        return sorted(self.trials, key=lambda trial: trial.rank)

    @property
    def best_so_far(self) -> Trial | None:
        return next((trial for trial in self.ranked if trial.loss is not None), None)

    def stop(self) -> None:
        self.n_stopped += 1

    def wait_for_change(self, seen: int, timeout_s: float) -> int:
        self.is_live, self.status, self.reason = False, "finished", "all 4 trials are done"
        return seen + 1
