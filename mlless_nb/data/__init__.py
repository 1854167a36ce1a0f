"""Training data: datasets, their minibatches as bytes, and packing them into the object storage."""
