"""The object storage: ``objects`` reads and writes named blobs, ``checkpoint`` is the format of stored parameters.

When a checkpoint is made, and which model a run returns, is decided by `mlless_nb.worker`.
"""
