"""Algorithms: what a worker computes from its minibatches, and how the contributions of all workers are applied.

``base`` is the interface, and each algorithm is one file with the implementation: ``gradient_averaging``, with
``local_steps``; ``model_averaging``; ``admm``; ``em``. The specifications are in `mlless_nb.job`. ``row_unions`` caches
the rows that groups of minibatches touch. `mlless_nb.worker.outgoing_update` filters and encodes a contribution.
"""

from .admm import ConsensusADMM
from .base import Contribution, Setting, Share, WorkerAlgorithm, implementation, implements
from .em import SummedStatistics
from .gradient_averaging import AveragedGradients
from .model_averaging import AveragedModels

__all__ = [
    "AveragedGradients",
    "AveragedModels",
    "ConsensusADMM",
    "Contribution",
    "Setting",
    "Share",
    "SummedStatistics",
    "WorkerAlgorithm",
    "implementation",
    "implements",
]
