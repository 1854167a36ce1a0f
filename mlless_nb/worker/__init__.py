"""A worker: minibatches in, updates out, step by step."""
