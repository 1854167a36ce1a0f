"""When a run stores a checkpoint: the first one early, later ones so seldom that they cost half a percent. Pure."""

from __future__ import annotations

import math

from ..bus.messages import Invocation
from ..data.prepare import Manifest
from ..exchange.kept_reports import KEPT_REPORTS, WIDTH
from ..exchange.policies import policy_of
from ..job.sync import sync_from_json
from ..models import Model
from ..money import Rates

#: Tables of a part: parameters, two of an optimiser, the residual; of the best replica, parameters and residual.
TABLES = 6
#: Seconds after the first step at which the first checkpoint is announced; it is stored within two.
FIRST_S = 1.0
#: Share of the run's time, and of its dollars, that checkpoints may cost. It is the best one where something is lost
#: every 20,000 times that a checkpoint takes, six minutes for one of 20 ms (Young, "A first order approximation to the
#: optimum checkpoint interval", 1974): an interval of sqrt(2 * 20,000) = 200 checkpoints. Losses are rarer than that.
SHARE = 0.005
#: The first checkpoint may cost this share of them.
FIRST_SHARE = 0.1
#: Speed at which a worker with a core of its own encodes and stores its state, bytes/s of processor time: it goes to
#: memory, and on this machine to files, that nobody has touched before. Storing goes on beside training, on that core.
STORE_BYTES_S = 250e6


class CheckpointTimes:
    """The times of one run's checkpoints.

    Parameters
    ----------
    nusd : int
        What a checkpoint costs, nano-dollars: a write to the storage for each worker.
    n_bytes : int
        Size of one worker's part.
    cores : float
        Cores that a worker has, at most 1: its share, where workers share them. All store at the same time.
    most_behind : int
        Steps that a worker may be behind the newest one that is complete.

    Attributes
    ----------
    announced : int
        The step after which the newest one is stored that was announced; 0 before any.
    """

    def __init__(self, nusd: int, n_bytes: int, cores: float = 1.0, most_behind: int = 0) -> None:
        self._nusd, self._stall_s, self._most_behind = nusd, n_bytes / STORE_BYTES_S / cores, most_behind
        self.announced = 0
        self._began: tuple[float, int] | None = None  # seconds, and nano-dollars spent
        self._n_stored = 0

    @classmethod
    def of(cls, invocation: Invocation, rates: Rates, model: Model) -> CheckpointTimes:
        """Those of the run that a supervisor was invoked for; a part has about `TABLES`."""
        n_rows, n_columns = model.table_shape(Manifest.from_json(invocation.manifest).shape)
        n_workers, n_cores = invocation.n_workers, invocation.n_cores
        cores = min(n_cores / n_workers, 1.0) if n_cores else rates.core_share
        most_behind = policy_of(sync_from_json(invocation.sync).policy).most_behind
        n_bytes = 4 * (TABLES * n_rows * n_columns + KEPT_REPORTS * WIDTH)
        return cls(rates.requests_nusd(0, n_workers), n_bytes, cores, most_behind)

    def is_passed(self, step: int) -> bool:
        """Whether no worker can be before the newest checkpoint any more, now that ``step`` is complete.

        Workers know of one announced step only: one that is behind would miss each that is replaced by a later one.
        """
        return not self._most_behind or not self.announced or step > self.announced + self._most_behind

    def is_due(self, time_s: float, spent_nusd: int) -> bool:
        """Whether a checkpoint is to be announced now, which then counts as stored.

        Parameters
        ----------
        time_s : float
            Seconds since the run began; the first call is made after its first step.
        spent_nusd : int
            Cost of the run so far, nano-dollars.
        """
        if self._began is None:
            self._began = time_s, spent_nusd
        trained_s, spent_nusd = time_s - self._began[0], spent_nusd - self._began[1]
        n, share = self._n_stored + 1, SHARE if self._n_stored else FIRST_SHARE
        is_cheap = n * self._nusd <= share * spent_nusd and n * self._stall_s <= share * trained_s
        is_due = trained_s >= FIRST_S and is_cheap
        self._n_stored += is_due
        return is_due

    def number(self, trained_s: float, spent_nusd: float) -> int:
        """How many are stored in a run that trains for ``trained_s`` seconds and spends ``spent_nusd`` by then."""
        if trained_s < FIRST_S or self._nusd > FIRST_SHARE * spent_nusd or self._stall_s > FIRST_SHARE * trained_s:
            return 0
        paid = SHARE * spent_nusd / self._nusd if self._nusd else math.inf
        return max(math.floor(min(paid, SHARE * trained_s / max(self._stall_s, 1e-9))), 1)
