"""Runs with ``detach=True``, which outlive the notebook.

::

    detached.py          the process that drives the run
    handover.py          the job and its rows as bytes, for that process
    control.py           the Unix socket through which notebooks reach that process
    attaching.py         the handle in those notebooks
"""
