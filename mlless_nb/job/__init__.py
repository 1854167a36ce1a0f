"""What a cell means: the definition of one training job, checked field by field. Nothing here does I/O."""
