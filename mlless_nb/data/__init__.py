"""Training data: data sets, and packing them as minibatches into the object storage.

`mlless_nb.worker` reads the minibatches during training.

::

    datasets.py       the public entry, ``mlless_nb.datasets``
    dataset.py        the interface of a data set
    ratings.py csr.py stream.py          ratings in memory, feature rows in memory, feature rows read from a file
    movielens.py criteo.py synthetic.py  known data sets, and generated ones; download.py fetches files

Tables of the user::

    openings.py       tables in memory or files, as the user passes them
    rating_tables.py  tables of ratings, with the user's own ids
    tables.py         tables of feature columns; table_pass.py finds the features and their ranges in a first pass

Files in the object storage, which functions read::

    stored_files.py   `StoredFiles`, and the registry of formats
    foreseen.py       the first rows, before functions have counted all, and an estimated number of them
    format.py         the interface of a file format: csv.py libsvm.py parquet.py criteo.py implement it
    numbers.py        text files of numbers, read in blocks of lines
    spans.py          byte ranges of text files, one for each function

Checks and splits::

    checks.py         checks and converts the user's arrays; plausibility.py finds likely mistakes
    splitting.py      held-out rows: the newest ones, the last ones of each user, or whole groups; sampling.py draws
                      rows at random, by seed

Packing::

    prepare.py        writes a data set as bundles of minibatches
    cutter.py         cuts feature rows into minibatches
    minibatches.py bundle.py  the stored formats: one minibatch, many in one object
    read_plan.py      which minibatches one request reads
"""
