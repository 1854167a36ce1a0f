"""The command line: ``mlless-nb``, or ``python -m mlless_nb``. ``mlless-nb train job.toml`` needs no notebook.

::

    command.py     the subcommands, and the functions that carry them out
    train.py       ``train``: runs a job, shows it in a line, saves its model; exit statuses
    stopping.py    ``stop``: a live run of any process
    listing.py     ``runs`` and ``spend``: all runs, and what they have cost
    settings.py    a TOML file and ``--set``: fields as plain values, with where each comes from    pure
    calls.py       "PMF(rank=20)" and tables as calls of what a cell could call                     pure
    config.py      settings -> TrainingJob, or one line on what is wrong
    data.py        the rows that ``data`` and ``validation`` name
"""
