"""Stateless runs: functions that live for a part of a step, with everything between them in the object storage.

The model is that of workers under BSP which broadcast their updates, bit for bit. If a function is lost, the driver
sends its part of the step to another one. Both write the same bytes under the same names, so no harm is done if both
complete.

The functions::

    functions.py  one function, from its call to its report
    stage.py      what every stage works on and returns
    launch.py update.py reduce.py merge.py   the stages of a step
    events.py     event-driven runs: which function invokes the next ones, and counters of completed parts
    invoking.py   how a function invokes others: on a cloud through Lithops (nested.py), on this machine through the bus
    host.py       a local process that stands for the cloud: it starts a process for each call on the bus
    messages.py   calls and reports
    keys.py       names of the objects
    table.py      the rows of the model that each reducer has
    traced_objects.py   an object store that records its requests

The driver's side::

    map_reduce.py  map-reduce runs: in each step invokes an update function for each worker, then one that merges
    event_run.py   event-driven runs: starts the first step, then follows
    run.py         what both share
    judge.py       when training ends, and cuts of the learning rate                      pure
    function_reports.py   the bill, the telemetry and the traces of functions
    grants.py      the budget: grants of functions, the least budget                      pure
    platform.py    the interface of the platform that runs the functions; how a run ends within a step

References
----------
MLLess (journal), section 6, on PyWren-IBM; slsML, on ResNet50 on AWS Lambda.
"""
