"""Recovery from faults: lost functions are replaced, and lost data is restored.

::

    fault_handling.py         decides what to do about lost functions and lost data
    recovery.py               invokes lost functions again; all workers continue from the newest checkpoint
    successor_invocations.py  successors of functions that near the end of their lifetime, or are slow
    invoking.py               asks a backend again that refuses functions
    recovery_payments.py      reserves the budget for that
    early_ends.py             local functions that ended before they had claimed their slots
    leaving_workers.py        workers that were lost while they left: whether the others must go back to a checkpoint
    unpaid_servers.py         ends local functions that outlive a supervisor whose servers nobody pays for
    unrecoverable.py          the exception that ends a run which cannot continue
"""
