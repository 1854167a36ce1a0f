"""Training data: datasets, and packing them as minibatches into the object storage.

``datasets`` is the public entry; ``dataset`` is the interface, with ``ratings``, ``csr`` and ``stream`` as kinds of
data. ``minibatches`` and ``bundle`` are the stored formats, and ``prepare`` writes them. `mlless_nb.worker` reads
minibatches during training.
"""
