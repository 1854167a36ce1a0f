"""Recovery from faults: lost functions are replaced, and lost data is restored.

::

    mending.py           decides what to do about lost functions and lost data
    recovery.py          invokes lost functions again; all workers continue from the newest checkpoint
    heirs.py             successors of functions that near the end of their lifetime, or are slow
    invoking.py          asks a backend again that refuses functions
    recovery_payments.py reserves the budget for that
    leavers.py           workers that were lost while they left: whether the others must go back to a checkpoint
    gave_up.py           the exception that ends a run which cannot continue
"""
