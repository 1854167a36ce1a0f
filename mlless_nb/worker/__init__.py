"""One worker, in a function: its training loop, its replica of the parameters, its minibatches and its evaluations.

`mlless_nb.exchange` sends and receives updates; `mlless_nb.supervisor` decides which worker leaves.

::

    loop.py                  the steps
    attempts.py              the life of the worker's function: again from a checkpoint, if the run restarts
    algorithms/              what a worker contributes to a step, and how contributions are applied
    replica.py               the parameters and the arithmetic of a step; table_layout.py: their memory
    best_replica.py          the replica with the best validation loss
    outgoing_update.py       splits a contribution: published now, or kept in the residual
    step_exchange.py         the rounds of a step, and the report to the supervisor
    membership.py            this worker's copy of the plan
    minibatch_schedule.py shrinking_schedule.py   which worker takes which minibatch
    minibatch_loader.py minibatch_merging.py      reads minibatches ahead; joins several for one step
    row_ownership.py         rows that only one worker updates, if users are sharded
    reintegration.py         hands over residuals and owned rows when a worker leaves, and at the end
    evaluation.py judge.py   losses; when training ends, and cuts of the learning rate
    checkpoints.py resuming.py   stores the state; continues from it
    final_model.py           which model a run returns, and who stores it
"""
