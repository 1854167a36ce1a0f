"""The supervisor: one function that watches a run. It is not on the workers' critical path.

It reads the workers' step reports, sends telemetry to the driver, carries out the user's commands, keeps the bill,
notices lost workers, and removes workers when its policy (``policy/``) says so.

::

    loop.py              the supervisor's loop
    incoming.py          messages from workers and driver, and users' commands
    outgoing.py          messages to the driver
    step_rows.py         step reports -> rows of telemetry; worker_times.py: the time of each worker
    quorum.py            how many updates the next steps wait for, under DBW and AdaSync            pure
    worker_watch.py      which workers have started, have ended or were lost
    starts.py            which workers started cold, in words                                       pure
    lifetimes.py successors.py   which functions get a successor, and when
    checkpoint_times.py  when a run stores a checkpoint                                             pure
    takeover.py          how a new supervisor continues for a lost one
    outage.py             how long it waits for servers that do not answer
    bill.py request_counts.py   the bill of the run
    ending.py            how the run ended
"""
