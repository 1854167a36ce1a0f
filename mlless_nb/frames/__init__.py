"""The user's tables: read in batches of columns, and coded as numbers. The model keeps the names of ids and columns.

Nothing here imports pandas or Polars.

::

    sources.py    tables in memory: pandas, Polars, Arrow, NumPy, dictionaries
    files.py      CSV and Parquet files, read in the same way
    locations.py  where files are: paths, globs, zip archives, URLs
    ids.py        the user's ids, and their numbers from 0
    coding.py     the columns of a table as features
    names.py      the ids and the names of columns, as a data set and its model keep them
"""
