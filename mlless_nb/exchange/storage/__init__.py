"""The coordinator in the object storage: a job needs no server.

``state`` is what is changed under a condition, a few numbers in one object; ``rounds`` are the rounds, whose objects
are written once and are a frame and an arrival at the same time; ``quorum`` are those that end with the first arrivals;
``leases`` are objects that say until when a process is alive.
"""
