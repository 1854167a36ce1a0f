"""The end of a run: its model, its bill, and the removal of everything that it created.

::

    conclusion.py             the end of a run: model, cleanup, record
    last_functions.py         functions are told to end, and waited for, without the supervisor
    teardown.py               steps of that end, also after failures
    substitute_supervisor.py  a supervisor in the driver's process, if that of the run sent no final message
    unreported.py             adds functions to the bill of which the supervisor has no report
    remains.py                counts what is left after cleanup
"""
