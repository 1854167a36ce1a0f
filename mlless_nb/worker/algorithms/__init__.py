"""What a worker computes from its minibatches, and what becomes of all workers' contributions: a file an algorithm."""

from .base import Contribution, Setting, Share, WorkerAlgorithm, implementation, implements
from .gradient_averaging import AveragedGradients

__all__ = [
    "AveragedGradients",
    "Contribution",
    "Setting",
    "Share",
    "WorkerAlgorithm",
    "implementation",
    "implements",
]
