"""What a worker's state is made of, and how a new worker takes it over: the same bits from the next step on.

The schedule of minibatches is not part of it: it follows from the plan, see `Worker._go_on`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..bus.messages import Invocation
from ..exchange.kept_reports import KeptReports
from ..exchange.policies import RoundPolicy
from ..storage.worker_state import REPORTS, Table, WorkerState, joined
from .best_replica import BestReplica
from .evaluation import HeldOut
from .judge import Judge
from .replica import Replica
from .table_layout import Snapshot

#: Loss sum and row count.
Sums = tuple[float, float]


class Resuming:
    """The state of one worker between two steps.

    Parameters
    ----------
    invocation : Invocation
    replica : Replica
    best : BestReplica
    judge : Judge
    policy : RoundPolicy
    held_out : HeldOut
    reports : KeptReports
    """

    def __init__(
        self,
        invocation: Invocation,
        replica: Replica,
        best: BestReplica,
        judge: Judge,
        policy: RoundPolicy,
        held_out: HeldOut,
        reports: KeptReports,
    ) -> None:
        self._slot, self._local_steps = invocation.slot, invocation.local_steps
        self._replica, self._best, self._judge = replica, best, judge
        self._policy, self._held_out, self._reports = policy, held_out, reports

    def state(self, step: int, active: list[int], weight: float, sums: Sums, quality: Sums) -> WorkerState:
        """The state after ``step``.

        Parameters
        ----------
        step : int
        active : list of int
            Slots that take part in the next step; this one is among them.
        weight : float
            Share of this worker in the mean of the workers' state, if another run resumes from it.
        sums, quality : (float, float)
            Of the newest evaluation, which are sent with the next step.
        """
        replica, best = self._replica, self._best
        facts = {
            "before": [replica.n_steps_before, replica.n_updates_before],
            "n_steps": replica.n_steps_before + step,
            "n_updates": replica.n_updates_before + step * self._local_steps,
            "rate_factor": replica.rate_factor,
            "weight": weight,
            "state": [] if replica.is_state_local else list(replica.algorithm.state()),
            "best": [best.step, best.loss],
            "snapshots": list(best.snapshots()),
            "judge": self._judge.state(),
            "policy": self._policy.state(),
            "interaction": self._held_out.interaction,
            "sums": sums,
            "quality": quality,
        }
        tables = self._tables() | {REPORTS: self._reports.table()}
        params = {"params": replica.params}
        for at, snapshot in best.snapshots().items():
            params[f"params at {at}"] = snapshot.params
            if snapshot.residual is not None:
                tables[f"residual at {at}"] = snapshot.residual
        if replica.ownership.n_users:
            tables["users"] = replica.ownership.shards
            tables["own rows"] = replica.ownership.own_rows()
        if not self._is_common:
            return WorkerState(step, self._slot, active, facts, tables | params)
        rank, n = active.index(self._slot), len(active)
        bounds = [replica.n_rows * each // n for each in (rank, rank + 1)]
        common = {name: table[bounds[0] : bounds[1]] for name, table in params.items()}
        return WorkerState(step, self._slot, active, facts, tables, common)

    def _tables(self) -> dict[str, Table]:
        """The tables of the replica that change, but for the parameters."""
        replica = self._replica
        tables: dict[str, Table] = dict(replica.algorithm.tables())
        if replica.residual is not None:
            tables["residual"] = replica.residual
        return tables

    @property
    def _is_common(self) -> bool:
        """Whether the parameters are equal on all workers."""
        divergence = self._replica.divergence
        return not divergence.is_unpublished and not divergence.is_comparable

    def resume(self, parts: Mapping[int, WorkerState]) -> tuple[Sums, Sums]:
        """Go on from the ``parts`` of a checkpoint by slot; returns sums and quality of `state`."""
        own = parts[self._slot]
        self._reports.go_on_from(own.tables[REPORTS])
        facts, tables, replica = own.facts, own.tables, self._replica
        params = {name: joined(parts, name) for name in own.common} or tables
        if "users" in tables:
            replica.ownership.know(tables["users"])
        replica.n_steps_before, replica.n_updates_before = facts["before"]
        replica.rate_factor = facts["rate_factor"]
        for name, table in self._tables().items():
            table[...] = tables[name]
        replica.params[...] = params["params"]
        snapshots = {}
        for at in facts["snapshots"]:
            residual = tables.get(f"residual at {at}")
            own_residual = None if residual is None else np.array(residual)
            snapshots[at] = Snapshot(np.array(params[f"params at {at}"]), own_residual)
        best_step, best_loss = facts["best"]
        self._best.resume(best_step, best_loss, snapshots)
        self._judge.resume(facts["judge"])
        self._policy.resume(facts["policy"])
        self._held_out.interaction = facts["interaction"]
        sums, quality = facts["sums"], facts["quality"]
        return (sums[0], sums[1]), (quality[0], quality[1])
