"""Specification of ADMM. Its arithmetic is in ``worker/algorithms/admm.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import JobError
from ..plurals import count
from ..validation import check_number, check_positive_integer, is_number, specification
from .algorithm import Algorithm, refuse_given_steps, register_algorithm
from .optimizers import FTRL


@register_algorithm
@specification
@dataclass(frozen=True)
class ADMM(Algorithm):
    """Alternating direction method of multipliers, for convex models: few exchanges, much local work between them.

    A step is one round. With ``f_i`` the mean loss of worker i's shard, ``z`` the common parameters and ``u_i`` the
    worker's scaled dual variables, worker i computes ``w_i <- argmin f_i(w) + rho/2 |w - z + u_i|^2`` by ``scans``
    passes of the job's optimiser over its shard, beginning at z. After the exchange ``z <- shrink(mean(w_i + u_i))``
    and ``u_i <- u_i + w_i - z``. The penalties ``l1 |w|_1 + l2/2 |w|^2`` of the mean loss are in ``shrink`` only:
    a soft threshold of ``l1 / rho``, then the factor ``rho / (l2 + rho)``, with the l2 of the model. Rows that the
    model does not penalise are not shrunk.

    The history has the primal residual ``sqrt(sum_i |w_i - z|^2)`` and the dual residual ``rho sqrt(P) |z - z_before|``
    of every step but the last. Its loss is the mean over all local passes; the validation loss is that of z. An epoch
    is one pass, so a round adds ``scans`` epochs.

    If a worker leaves, another one takes over its shard. The dual variables of all workers then start again at 0 and z
    is kept: ADMM converges from any start.

    Parameters
    ----------
    rho : float
        Greater than 0, in the units of the loss's curvature. A larger one keeps the workers closer together and slows
        the descent. The default was chosen on a9a (8 workers) and 12,000 of IMDb's reviews (4): it reaches the best
        held-out loss of 20 epochs of gradient averaging within 1 % in 2 and 3 rounds; 0.01 takes 5 and 7, 0.1 more than
        15. On two sets that it was not chosen on, the parity of 12,000 MNIST digits (4 workers) and generated clicks
        (8), it takes 3 and 2 rounds; model averaging takes 8, 15, 16 and 3 on the four.
    scans : int
        Local passes in a round.
    l1 : float
        At least 0: the penalty that makes parameters exactly 0, in the units of the loss.

    References
    ----------
    LambdaML, section 3.2.1 (ten scans); Boyd et al., "Distributed optimization and statistical learning via the
    alternating direction method of multipliers" (2011), sections 3.3 and 7.1.
    """

    rho: float = 0.003
    scans: int = 10
    l1: float = 0.0
    kind: ClassVar[str] = "admm"
    takes_whole_shards: ClassVar[bool] = True
    is_state_local: ClassVar[bool] = True
    n_work_tables: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if not is_number(self.rho) or self.rho <= 0:
            raise JobError("ADMM.rho", self.rho, "a finite number > 0")
        check_positive_integer("ADMM.scans", self.scans)
        check_number("ADMM.l1", self.l1, least=0.0)

    @property
    def passes(self) -> int:
        """``scans``."""
        return self.scans

    def state_names(self, optimizer: Any) -> tuple[str, ...]:
        """The names of the optimiser's state, and the dual variables."""
        return (*optimizer.state_names, "dual")

    def given_steps(self, job: Any) -> int:
        """See `Algorithm`."""
        refuse_given_steps(job, "ADMM")
        return 1

    def local_steps(self, job: Any) -> int:
        """Minibatches of a shard (one more in some shards if the workers do not divide them evenly)."""
        return max(int(job.n_minibatches) // int(job.workers), 1)

    def check(self, job: Any) -> None:
        """See `Algorithm`."""
        if not job.model.is_convex:
            raise JobError("algorithm", self, f"GradientAveraging() or ModelAveraging() with {job.model}: not convex")
        if job.sync.kind != "bsp":
            raise JobError("sync", job.sync, "BSP() with ADMM, whose workers all need the same mean in every round")
        if job.codec != "float32":
            raise JobError("codec", job.codec, "'float32' with ADMM, whose workers all need the same mean")
        if job.aggregate != "mean":
            raise JobError("aggregate", job.aggregate, "'mean' with ADMM")
        if isinstance(job.optimizer, FTRL):
            valid = "SGD(...), Adam(...) or AdaGrad(...) with ADMM: FTRL cannot start a round at z"
            raise JobError("optimizer", job.optimizer, valid)
        if job.scale_in.global_minibatch != "keep":
            raise JobError("ScaleIn.global_minibatch", job.scale_in.global_minibatch, "'keep' with ADMM")

    def goes_on_from(self, earlier: dict[str, Any]) -> bool:
        """The dual variables are scaled by rho, so it must be the same."""
        return super().goes_on_from(earlier) and bool(earlier.get("rho") == self.rho)

    def __str__(self) -> str:
        return f"ADMM, rho {self.rho:g}, {count(self.scans, 'scan')}" + (f", l1 {self.l1:g}" if self.l1 else "")
