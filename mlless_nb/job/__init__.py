"""The definition of a training job: model, optimiser, data, protocol, budget and stop rules.

A `TrainingJob` is checked field by field when it is made; fields that the user left open are chosen from the data. No
module here does I/O, and nothing is launched or billed.

::

    job.py            `TrainingJob`; checks.py has its checks
    defaults.py       rules that choose the fields left open
    units.py          scales the data, so that learning rates mean the same for all data; uses column_sums.py
    baseline.py       the loss of a constant prediction
    limits.py         `Budget` and `Stop`; stop_rules.py carries the stop rules out
    optimizers/       SGD, Adam, AdaGrad, FTRL
    rate_schedule.py  cuts of the learning rate
    sync/             protocols, as specifications
    algorithm.py      algorithms, as specifications: base class and gradient averaging;
                      model_averaging.py admm.py em.py are one algorithm each
    scale_in.py       `ScaleIn`: whether and how workers are removed
    partitioning.py   how the data is sharded
    execution.py      long-lived, map-reduce or event-driven functions
"""
