"""Optimisers: they turn a minibatch's gradient into the update that is added to the parameters.

A specification is a frozen dataclass; all state is in the arrays that ``init`` returns, so that it can be stored and
sent. Each optimiser equals its PyTorch namesake step by step; FTRL, which has none, equals its paper. For all of them:

- the learning rate at step ``t`` (1-based) is ``learning_rate / sqrt(1 + decay * (t - 1))`` (FTRL's is constant);
- ``update`` writes ``scale`` times the update (1/P where P workers' updates are averaged); the state uses the unscaled
  gradient;
- momentum, Adam and an l2 penalty move parameters that the minibatch did not touch. They do so here too, by a pass over
  the whole table, unless ``lazy=True``: then such parameters, and their state, are not changed. ``lazy="auto"`` is
  decided when the data is packed: True if the table is much larger than the rows that a minibatch touches.

A ``learning_rate`` of None is chosen for the model and its data when a run starts, see `mlless_nb.job.defaults`.
"""

from __future__ import annotations

from typing import Any

from ...errors import JobError

# Messages name them in this order.
# isort: off
from .sgd import SGD
from .adam import Adam
from .adagrad import AdaGrad
from .ftrl import FTRL

# isort: on

__all__ = ["FTRL", "OPTIMIZERS", "SGD", "AdaGrad", "Adam", "Optimizer", "optimizer_from_json"]

Optimizer = SGD | Adam | AdaGrad | FTRL
#: Every optimiser, by its kind in JSON.
OPTIMIZERS: dict[str, type[Optimizer]] = {each.kind: each for each in (SGD, Adam, AdaGrad, FTRL)}


def optimizer_from_json(spec: dict[str, Any]) -> Optimizer:
    """The optimiser that ``to_json`` wrote.

    Raises
    ------
    JobError
        When it is of no known kind or a field is wrong.
    """
    fields = dict(spec)
    kind = fields.pop("kind", None)
    if kind not in OPTIMIZERS:
        raise JobError("optimizer.kind", kind, f"one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[kind](**fields)
