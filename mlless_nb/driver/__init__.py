"""The driver of a run. It lives in the notebook's process or, with ``detach=True``, in a process of its own.

The driver packs the data, starts the supervisor and the workers as functions, receives the supervisor's updates and
sends it the user's commands. At the end it fetches the model and removes everything that the run created.

What users call::

    runs.py              `train` and `attach`; the runs of this process
    run.py               the handle on a run: wait, stop, scale in, budget, model, history, cost
    interrupts.py        the message after an interrupt of such a call
    stopping.py          stops a run of another process
    listing.py           `runs`, `spend` and `forget`: the list of all runs
    comparison.py        `compare`: losses and settings of several runs
    spending.py          `session` and `project`: budgets of several runs
    cleaning.py          `clean`: removes what killed runs have left; leftovers.py finds it
    rehearsal.py         the checks of `train` without a start, for a dry run

The driver's loop::

    driver.py            from packing to cleanup
    stateless_driver.py  the same for stateless runs, which have no supervisor

Its parts, each above those that it uses::

    detached/            the driver in a process of its own, and the handle on it
    ending/              the end of a run: model, bill, cleanup
    recovery/            replaces lost functions, restores lost data
    running/             updates, commands, leases
    launch/              data, budget, invocations
    servers/             Redis, bus and storage, opened and closed; cleanup if the driver is killed
    backends/            starts and stops functions through Lithops
"""
