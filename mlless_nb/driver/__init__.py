"""The part of a run that lives in the notebook's process or, if it is to outlive that, in a process of its own.

The driver packs the data, starts the supervisor and the workers as functions, receives the supervisor's updates and
sends it the user's commands. At the end it fetches the model and removes everything that the run created. ``runs`` is
the public entry point, ``run`` the handle that a user gets.
"""
