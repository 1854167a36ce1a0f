"""A model that a user wrote with PyTorch: any module that maps a batch to a scalar loss, on dense rows."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import JobError
from ..validation import specification
from .base import register_model
from .definition import Definition, said
from .written import Arrays, FittedArrays, Float32, WrittenModel, dense_rows


class FittedTorch(FittedArrays):
    """The trained parameters of a module.

    Attributes
    ----------
    params : dict
        The parameters by name, float32.
    """

    kind: ClassVar[str] = "torch"

    def state_dict(self) -> dict[str, Any]:
        """The parameters as tensors, for ``module.load_state_dict``; needs PyTorch."""
        import torch

        return {name: torch.tensor(array) for name, array in self.params.items()}


@register_model
@specification
@dataclass(frozen=True)
class TorchModel(WrittenModel):
    """A ``torch.nn.Module`` of the notebook that maps a batch to its mean loss, trained on dense rows with labels.

    The class (or a function that makes the module) goes to the job's functions as source text, and is never pickled. It
    is called without arguments, imports what it uses inside its body (``torch`` and NumPy as ``np`` are there), and its
    ``forward(X, y)`` returns a scalar: ``X`` is float32 (n, n_features), ``y`` float32 (n,)::

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.Sequential(torch.nn.Linear(784, 10))

            def forward(self, X, y):
                return torch.nn.functional.cross_entropy(self.layers(X), y.long())

    The job's optimiser trains the parameters, which lie one after the other in one table, so protocols, codecs and
    algorithms apply as to any model. The module is in training mode for gradients and in evaluation mode for held-out
    rows. Buffers are not exchanged, so a module that has some (BatchNorm) is refused; GroupNorm has none.

    Parameters
    ----------
    definition : type or function
        What makes the module.
    l2 : float
        At least 0: a penalty ``l2/2 * |params|^2`` on all parameters.

    Raises
    ------
    JobError
        If PyTorch is missing, or the source cannot be found or does not define the same by itself.
    """

    definition: Any
    l2: float | None = 0.0
    kind: ClassVar[str] = "torch"
    fitted_type: ClassVar[type[FittedArrays]] = FittedTorch
    modules: ClassVar[tuple[str, ...]] = ("torch",)

    def __post_init__(self) -> None:
        if importlib.util.find_spec("torch") is None:
            raise JobError("model", "TorchModel", "used where PyTorch is; install it: pip install 'mlless_nb[torch]'")
        super().__post_init__()

    def start(self, n_features: int, seed: int) -> Arrays:
        """The module's parameters as it is made with this seed."""
        return _start(self.definition, seed)

    def _loss(self, params: Float32, X: Float32, y: Float32, *, trains: bool) -> tuple[Any, Any]:
        """The module with the parameters of the table, and its loss of the rows, a tensor."""
        import torch

        module = _made(self.definition)
        with torch.no_grad():
            for (_, own), array in zip(module.named_parameters(), self.arrays(params).values(), strict=True):
                own.copy_(torch.tensor(array))
        module.train(trains)
        with torch.set_grad_enabled(trains):
            return module, module(torch.from_numpy(X), torch.tensor(y))

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (n_rows, 64) with the gradients; returns the sum of losses."""
        module, loss = self._loss(params, *dense_rows(minibatch, self.n_features), trains=True)
        module.zero_grad()
        loss.backward()
        flat, end = np.zeros(grad.size, np.float32), 0
        for own in module.parameters():
            first, end = end, end + own.numel()
            if own.grad is not None:
                flat[first:end] = own.grad.numpy().reshape(-1)
        flat *= np.float32(minibatch.n / divisor)
        grad[...] = flat.reshape(grad.shape)
        return float(loss.item()) * int(minibatch.n)

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of losses."""
        _, loss = self._loss(params, *dense_rows(minibatch, self.n_features), trains=False)
        return float(loss.item()) * int(minibatch.n)

    def try_out(self, X: Float32, y: Float32) -> None:
        """See `WrittenModel`."""
        import torch

        try:
            module, loss = self._loss(self.init((X.shape[1],), 0.0, 0), X, y, trains=True)
            if not isinstance(loss, torch.Tensor):
                raise self.wrong(f"a module whose loss is a tensor; on the first rows it is {loss!r:.60}")
            if not loss.requires_grad:
                raise self.wrong("a module whose loss depends on its parameters")
            if tuple(loss.shape) != ():
                raise self.wrong(f"a module whose loss is a scalar; on the first rows it has shape {tuple(loss.shape)}")
            module.zero_grad()
            loss.backward()
        except JobError:
            raise
        except Exception as error:
            raise self.wrong(f"a module whose loss and gradients can be computed; it raises {said(error)}") from error
        grads = [own.grad for own in module.parameters() if own.grad is not None]
        if not all(bool(one.isfinite().all()) for one in (loss, *grads)):
            raise self.wrong("a module whose loss and gradients are finite on the first rows")


def _make(definition: Definition, seed: int) -> Any:
    """The module as it is made after this seed; the process's own random numbers go on as before."""
    build = definition.load("model", TorchModel.modules)
    import torch

    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = build()
    except Exception as error:
        valid = f"a module that is made without arguments; {said(error)}"
        raise JobError("model", definition.name, valid) from error
    if not isinstance(module, torch.nn.Module):
        raise JobError("model", definition.name, "a torch.nn.Module, or a function that returns one")
    if buffers := [name for name, _ in module.named_buffers()]:
        raise JobError("model", definition.name, f"a module without buffers (GroupNorm has none); it has {buffers[0]}")
    if not any(True for _ in module.parameters()):
        raise JobError("model", definition.name, "a module with parameters")
    if not all(own.dtype == torch.float32 for own in module.parameters()):
        raise JobError("model", definition.name, "a module whose parameters are float32")
    return module


@functools.lru_cache(maxsize=8)
def _made(definition: Definition) -> Any:
    """The module that this process computes with."""
    return _make(definition, 0)


@functools.lru_cache(maxsize=8)
def _start(definition: Definition, seed: int) -> Arrays:
    return {name: own.detach().numpy().copy() for name, own in _make(definition, seed).named_parameters()}
