"""The supervisor's decisions, as pure functions of a run's history. Nothing here does I/O.

Scale-in, the removal of workers::

    policy.py            the entry point: rows and reports in; decisions, workers to remove and forecasts out
    cost_scale_in.py     the tuner for a constant global minibatch: removes a worker if that saves time and cost
    scale_in.py          the tuner of the MLLess paper; paper_scale_in.py: exactly as printed, for comparison
    victim.py            which worker is removed
    removal_estimate.py  the effect of a removal on loss, time and cost
    removal_guards.py    rules that refuse a removal
    step_times.py        step times with fewer workers; efficiency.py: the loss with fewer workers
    decision.py          decisions as data, with their reasons
    replay.py            the decisions of another `ScaleIn` on a recorded run

Slow workers::

    backup_workers.py    how many updates a step waits for: DBW and AdaSync
    gain.py              the decrease of the loss by a step with k gradients; loss_rise.py: whether the loss has risen
    round_times.py       the time until the k-th gradient; monotone_times.py fits it
    speculation.py       which worker is so slow that a duplicate of it pays

Forecasts, and advice to the user::

    forecast.py          loss at the cap; time and cost to the target
    projection.py        the rest of the run at any number of workers
    hindcast.py          how wrong earlier forecasts were
    overfitting.py       whether the validation loss has stopped falling

The loss curve::

    loss_history.py      the history of the run
    curve_fit.py curve_ensemble.py least_squares.py   fit curves to it
    knee.py pace.py smoothing.py   its knee, its slope, its means
"""
