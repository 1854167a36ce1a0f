"""The notebook's process: it starts a run, follows it, carries out what people ask of it, and cleans up after it."""
