"""The end of a run: its model, its bill, and the removal of everything that it created.

::

    conclusion.py        the end of a run: model, cleanup, record
    teardown.py          steps of that end, also after failures
    last_word.py         a supervisor in the driver's process, if that of the run sent no final message
    unheard.py           adds functions to the bill of which the supervisor did not hear
    remains.py           counts what is left after cleanup
"""
