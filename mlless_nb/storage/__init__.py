"""The object storage: named blobs, and the format of checkpoints and models that are stored in it."""
