"""Training from a terminal: ``python -m mlless_nb train job.toml``, which ``mlless-nb train`` is, too.

::

    command.py     the words of the command line, and what carries them out
    train.py       ``train``: runs a job, shows it in a line, saves its model; exit statuses
    settings.py    a TOML file and ``--set``: fields as plain values, with where each comes from    pure
    calls.py       "PMF(rank=20)" and tables as calls of what a cell could call                     pure
    config.py      settings -> TrainingJob, or one line on what is wrong
    data.py        the rows that ``data`` and ``validation`` name
"""
