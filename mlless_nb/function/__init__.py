"""What every cloud function does before and after its work, whether it is a worker or the supervisor.

It decodes its invocation, claims its slot, watches its prepaid money and its lease, and sets up memory allocation.
"""
