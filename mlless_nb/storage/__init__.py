"""The object storage, and the formats of what a run stores in it.

`mlless_nb.worker` decides when a checkpoint is made, and which model a run returns.

::

    objects.py       reads and writes named blobs, through Lithops or in memory
    folder.py        the storage of this machine: a folder, with atomic writes
    conditional.py   compare-and-swap: creates an object if there is none, or replaces it if nobody else has
    clock.py         the storage's clock, estimated from its answers                       pure
    request_tally.py what functions of this machine have requested, also those that were killed
    run_objects.py   the keys of a run's objects, its newest model, and their removal
    checkpoint.py    the format of stored parameters and optimiser state
    worker_state.py  the format of one worker's part of a checkpoint
"""
