"""Before a run and its launch: its data, its budget, its invocations.

::

    warm_up.py           imports what the first local run needs, in a thread
    data_preparation.py  splits the data and packs it into the object storage
    stored_data.py       stored files: has functions count and pack the rows
    functions.py         starts the short-lived functions of stateless runs and of data preparation
    resumption.py        continues an ended run: its record, checks, the start of the new run
    allowance.py         reserves the run's budget in those of its session and project
    launch_plan.py       checks the least budget, plans grants and invocations
    invocations.py       builds the invocations of all functions
    fan_out.py           which functions invoke which others, in large runs               pure
    first_state.py       the state of a run before the first report
"""
