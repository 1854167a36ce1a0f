"""The user's tables: read column by column, and coded as numbers; the coding travels with the model.

``sources`` reads pandas, Polars, Arrow and NumPy tables in batches, ``files`` reads CSV and Parquet files in the same
way, and ``locations`` says where files are. ``ids`` numbers the user's ids, ``coding`` the columns of a table, and a
data set and its model keep ``names`` of both. Nothing here imports pandas or Polars.
"""
