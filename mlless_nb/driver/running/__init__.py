"""While a run lives: updates and commands, the driver's lease, and whether the others still answer.

::

    attending.py         hears the supervisor, keeps the lease and passes commands on, while functions run
    update_feed.py       the supervisor's updates -> telemetry and record
    commands.py          sends users' commands until they are acknowledged
    stop_requests.py     heeds what other processes ask
    driver_lease.py      renews the driver's lease
    contact.py           checks that supervisor and servers still answer
    start_payments.py    reserves budget for local functions that start late
"""
