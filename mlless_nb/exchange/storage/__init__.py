"""The coordinator in the object storage: a job needs no server.

Objects that several processes change are written by *compare-and-swap*: a write succeeds only if the object is still
the one that was read (`mlless_nb.storage.conditional`); else the process reads it again.

::

    coordinator.py  the coordinator
    books.py        its part that all processes use: plan, budget, claims, leases
    state.py        plan, budget and end of the run: one object, changed by compare-and-swap
    leases.py       one object for each lease: the time until which a process counts as alive
    rounds.py       rounds that wait for all workers: the object of a frame is also its worker's arrival
    quorum.py       rounds that end after their first k arrivals: one object, changed by compare-and-swap
    step_log.py     the step log, one object for each step
"""
