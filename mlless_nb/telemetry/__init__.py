"""The measurements of a run: one row of numbers a step, and its current state.

``live`` holds them while the run goes, for the dashboard and the user; ``record`` keeps them on disk afterwards.
"""
