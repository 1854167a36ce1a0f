"""What lies in the object storage: named blobs, and checkpoints among them."""
