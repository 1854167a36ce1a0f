"""Map-reduce runs: in each step the driver invokes one update function for each worker, then one that merges.

All goes through the object storage and nothing lives between steps, as in the PyWren-IBM baseline of MLLess.

References
----------
MLLess (journal), section 6: the comparison with PyWren-IBM.
"""

from __future__ import annotations

from ..job.stop_rules import Verdict
from .messages import Done
from .platform import CAPPED, Ends
from .run import StatelessRun


class MapReduce(StatelessRun):
    """The driver's loop of a map-reduce run.

    Attributes
    ----------
    verdict : Verdict
        How the run ended.
    """

    verdict = Verdict("failed", "the run has not ended")

    def train(self) -> Verdict:
        """Train until the end; returns how it ended. The newest whole step is that of ``judge``."""
        step_s: float | None = None
        try:
            while True:
                self.look()
                began_s = self.time_s
                verdict = self._step(step_s)
                step_s = max(self.time_s - began_s, 0.9 * (step_s or 0.0))
                if verdict is not None:
                    return verdict
        except Ends as end:
            return end.verdict

    def _step(self, step_s: float | None) -> Verdict | None:
        """One step, if it is paid for; returns how the run ends, None if it goes on."""
        judge, slots = self.judge, range(self.job.n_workers)
        step = judge.step + 1
        updates = [self.call("update", step, slot, evaluates=judge.evaluates_next) for slot in slots]
        merging = self.call("reduce", step, 0)
        grants = sum(call.granted_nusd for call in (*updates, merging))
        # The first step is part of what was reserved when the run was created.
        if step > 1 and not (self.reserve(grants) and self.reserve_servers(step_s)):
            return self.asked() or CAPPED
        self.complete(updates)
        merged: Done = self.complete([merging])[0]
        stats = merged.loss_sum, merged.loss_count, merged.val_sum, merged.val_count
        before = judge.best_step
        verdict = judge.observe(stats, has_emerged=merged.has_emerged)
        self.after_step()
        self.forget_before(step, before)
        return verdict or self.asked()
