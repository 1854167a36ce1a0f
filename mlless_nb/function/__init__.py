"""The entry point of every function, whether it runs a worker or the supervisor, and the setup of its process.

It decodes the invocation, claims the slot, renews the lease, watches the prepaid budget and sets up memory allocation.
"""
