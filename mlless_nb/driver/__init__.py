"""The driver of a run. It lives in the notebook's process or, with ``detach=True``, in a process of its own.

The driver packs the data, starts the supervisor and the workers as functions, receives the supervisor's updates and
sends it the user's commands. At the end it fetches the model and removes everything that the run created.

Public entries::

    runs.py              `train` and `attach`; the runs of this process
    run.py               the handle on a run: wait, stop, scale in, budget, model, history, cost
    listing.py           `runs`, `spend` and `forget`: the list of all runs
    comparison.py        `compare`: losses and settings of several runs
    cleaning.py          `clean`: removes what killed runs have left
    spending.py          `session` and `project`: budgets of several runs
    rehearsal.py         the checks of `train` without a start, for a dry run

Before the launch::

    ahead.py             imports what the first local run needs, in a thread
    data_preparation.py  splits the data and packs it into the object storage
    stored_data.py       stored files: has functions count and pack the rows
    resumption.py        continues an ended run: its record, checks, the start of the new run
    allowance.py         reserves the run's budget in those of its session and project
    services.py          opens, checks and closes launcher, Redis and bus
    embedded_redis.py    starts the private Redis server
    redis_user.py        creates a Redis user that reaches only the keys of the job

Launch::

    launch_plan.py       checks the least budget, plans grants and invocations
    invocations.py       builds the invocations of all functions
    fan_out.py           which functions invoke which others, in large runs               pure
    launcher.py          starts and kills functions through Lithops, and opens its object storage
    functions.py         starts the short-lived functions of stateless runs and of data preparation
    interpreter.py       the Python interpreter of local functions
    lithops_config.py    the part of Lithops' configuration that functions get
    lithops_paths.py     the files that Lithops creates on this machine

Functions on a cloud::

    cloud_functions.py   deploys, counts and invokes them; uses deliveries.py and pods.py
    deployed.py          the profile that ``mlless-nb deploy`` wrote
    deliveries.py        AWS Lambda: an invocation that is not accepted in time is an error
    pods.py              Kubernetes: pods that cannot start are an error
    cluster_rights.py    Kubernetes: checks the user's rights
    causes.py            finds out why functions are late or lost
    call_failures.py     reads Lithops' records of failed calls

During the run::

    driver.py            the driver's loop, from packing to cleanup
    stateless_driver.py  the same for stateless runs, which have no supervisor
    first_state.py       the state of a run before the first report
    update_feed.py       the supervisor's updates -> telemetry and record
    commands.py          sends users' commands until they are acknowledged
    interrupts.py        the message after an interrupt
    driver_lease.py      renews the driver's lease
    contact.py           checks that supervisor and servers still answer
    start_payments.py    reserves budget for local functions that start late
    request_dues.py      reserves budget for the driver's own requests to the object storage

Detached runs::

    detached.py          the process that drives the run
    handover.py          the job and its rows as bytes, for that process
    control.py           the Unix socket through which notebooks reach that process
    attaching.py         the handle in those notebooks

Recovery from faults::

    mending.py           decides what to do about lost functions and lost data
    recovery.py          invokes lost functions again; all workers continue from the newest checkpoint
    recovery_payments.py reserves the budget for that
    leavers.py           workers that were lost while they left: whether the others must go back to a checkpoint
    gave_up.py           the exception that ends a run which cannot continue

End and cleanup::

    conclusion.py        the end of a run: model, cleanup, record
    teardown.py          steps of that end, also after failures
    last_word.py         a supervisor in the driver's process, if that of the run sent no final message
    unheard.py           adds functions to the bill of which the supervisor did not hear
    remains.py           counts what is left after cleanup
    places.py            notes on disk where a live run keeps things
    leftovers.py         finds what ended runs have left; processes.py finds their processes
    watchdog.py          a process that cleans up if the driver is killed; it starts the next two programs
    redis_cleanup.py     removes the run's keys and user from Redis
    storage_cleanup.py   removes the run's objects from a remote storage
"""
