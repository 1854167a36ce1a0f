"""The list of all of a user's runs. It is kept in a file that all notebooks share.

``entry`` is one run's row, ``ledger`` the SQLite file with all rows, and ``tracker`` enters a run at its start and its
end. ``records`` makes rows from the records on disk, for killed runs and for runs older than the list. ``listing`` is
what `mlless_nb.runs` returns.
"""

from .entry import TrackedRun, differing, flat, settings_of
from .ledger import RunLedger
from .listing import Runs
from .tracker import Tracker

__all__ = ["RunLedger", "Runs", "TrackedRun", "Tracker", "differing", "flat", "settings_of"]
