"""Stateless runs: functions that live for a part of a step, with everything between them in the object storage.

A function begins in ``functions`` and does its part of a stage: ``launch``, ``update``, ``reduce``, ``merge``.
``map_reduce`` is the driver's loop over steps: an update function for each worker's slot, then one that merges. In an
event-driven run the functions invoke each other (``events``, ``invoking``, ``host``), and the driver follows
(``event_run``). ``run`` is what the driver does in both, ``ledger`` and ``grants`` are the bill and the budget,
``course`` decides when training ends. The arithmetic is that of `mlless_nb.worker`: the model is that of workers under
BSP which broadcast their updates, bit for bit.

Parts of a step that were lost are sent to another function. They write the same bytes under the same names, so that it
does no harm if both functions end.

References
----------
MLLess (journal), section 6, on PyWren-IBM; slsML, on ResNet50 on AWS Lambda.
"""
