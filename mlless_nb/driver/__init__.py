"""The part of a run that lives in the notebook's process.

The driver packs the data, starts the supervisor and the workers as functions, reads what the supervisor sends, passes
the user's commands on, and at the end fetches the model and removes everything that the run created. ``runs`` is the
public entry, ``run`` the handle that a user gets.
"""
