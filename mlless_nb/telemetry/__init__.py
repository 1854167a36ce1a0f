"""The measurements of a run: one row of numbers per step, and the run's current state.

``live`` holds them in memory for the dashboard and the user; ``record`` writes them to disk. ``left`` says in words
what a run has left behind.
"""
