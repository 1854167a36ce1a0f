"""The services of a run: launcher, Redis, bus and storage are opened, checked and closed, also if the driver is killed.

::

    services.py          opens, checks and closes them
    request_dues.py      reserves budget for the driver's own requests to the object storage
    reservations.py      requests of budget that are repeated until they are answered
    embedded_redis.py    starts the private Redis server
    redis_user.py        creates a Redis user that reaches only the keys of the job
    places.py            notes on disk where a live run keeps things
    watchdog.py          a process that cleans up if the driver is killed; it starts the next two programs
    redis_cleanup.py     removes the run's keys and user from Redis
    storage_cleanup.py   removes the run's objects from a remote storage
"""
