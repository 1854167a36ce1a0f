"""The entry point of every function, whether it runs a worker or the supervisor, and the setup of its process.

It decodes the invocation, claims the slot, renews the lease and watches the prepaid budget.

::

    entry.py           the entry point, for both roles
    lambda_handler.py  what AWS Lambda calls; it calls Lithops' handler, which calls ``entry``
    pod_entry.py       what a Kubernetes pod starts, in the place of Lithops' script
    preload.py         what Lithops starts on this machine: imports once, then forks the functions
    inviting.py        a worker's function that invokes other functions, in large runs
    start_deadline.py  ends a function whose Redis is silent at its start before it has spent more than its grant
    succession.py      a function that takes over the slot of one near the end of its lifetime
    second_start.py    a function that a platform has started twice
    patience.py        waits for a control bus that does not answer yet
    probing.py         measures the link between functions and Redis
    age.py             how long the process has lived, for the bill
    malloc.py          settings of the memory allocator
    package_digest.py  the digest of mlless_nb's sources: functions must have that of the notebook
"""
