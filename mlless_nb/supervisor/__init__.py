"""The supervisor: one function that watches a run. It is not on the workers' critical path.

It reads the workers' step reports, sends telemetry to the driver, carries out the user's commands, keeps the bill,
notices lost workers, and removes workers when its policy (``policy/``) says so.
"""
