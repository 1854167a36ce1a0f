"""Advice before a run: the time and the cost to expect, on this machine, on functions and on VMs.

Nothing is launched or billed. `advise` and `dry_run` are the public entries.

::

    advice.py             compares numbers of workers, stores and VMs: `advise`
    dry_run.py            checks a job without starting it, and shows its estimate and advice
    foresight.py          measures a job and makes its estimate: quickly at the start of a run, thoroughly for a dry run
    estimate.py           time, cost and likely mistakes of the job as it is written, in one line    pure
    stateless_estimate.py the same line for map-reduce and event-driven runs                         pure
    stored.py             measures a job on stored files by their first rows
    sizes.py              what the models of time and cost need to know of a job
    probe.py              measures these sizes on this machine; timing.py times steps and the start of functions
    pace.py               times a worker's loop on this machine, by which the constants of here.py are scaled
    descent.py            number of epochs: from the stop rules, or by training one replica on a sample to the target
    earlier_run.py        number of epochs: as an earlier run descended
    alone.py              the job with one worker and without an exchange, which probe and descent train in this process
    analytic.py           LambdaML's model of time and cost, for functions and VMs; constants.py has its constants
    here.py               the same for the embedded backend, whose functions share the cores of this machine
    frame_requests.py     the requests by which frames are exchanged over a store, and their price   pure
    run_requests.py       the requests to the object storage that every run makes                    pure
"""

from .advice import Advice, advise
from .analytic import Option
from .dry_run import DryRun, dry_run

__all__ = ["Advice", "DryRun", "Option", "advise", "dry_run"]
