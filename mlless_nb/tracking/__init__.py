"""Many runs: the list of all of a user's runs, which outlives notebooks.

``entry`` is one run's row, ``ledger`` the SQLite file with all of them, ``tracker`` enters a run at its start and its
end, and ``listing`` is what `mlless_nb.runs` returns.
"""

from .entry import TrackedRun, differing, flat, settings_of
from .ledger import RunLedger
from .listing import Runs
from .tracker import Tracker

__all__ = ["RunLedger", "Runs", "TrackedRun", "Tracker", "differing", "flat", "settings_of"]
