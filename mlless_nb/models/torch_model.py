"""A model that a user wrote with PyTorch: any module that maps a batch to a scalar loss, on dense rows."""

from __future__ import annotations

import copy
import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..validation import specification
from .base import register_model
from .definition import Definition, said
from .written import Arrays, FittedArrays, Float32, WrittenModel, dense_rows

#: What the names of buffers begin with in a model's file.
_BUFFER = "buffer:"


class FittedTorch(FittedArrays):
    """The trained parameters of a module.

    Attributes
    ----------
    params : dict
        The parameters by name, float32.
    buffers : dict
        What else the module's ``state_dict`` has, by name: buffers as the module was made, and parameters that have
        another name, too.
    """

    kind: ClassVar[str] = "torch"

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        buffers = {name: array for name, array in params.items() if name.startswith(_BUFFER)}
        super().__init__({name: array for name, array in params.items() if name not in buffers})
        self.buffers = {name.removeprefix(_BUFFER): array for name, array in buffers.items()}

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers as tensors, for ``module.load_state_dict``; needs PyTorch."""
        import torch

        return {name: torch.tensor(array) for name, array in {**self.params, **self.buffers}.items()}

    def save(self, path: str | Path) -> None:
        """Write parameters, buffers and names to ``path`` as .npz; `mlless_nb.models.load_model` reads it."""
        whole = copy.copy(self)
        whole.params = {**self.params, **{_BUFFER + name: array for name, array in self.buffers.items()}}
        super(FittedTorch, whole).save(path)


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
    rows. Buffers are not exchanged, so they have to stay as the module is made, which does not depend on the job's
    seed: a module that changes them is refused, such
    as BatchNorm with running statistics. ``BatchNorm1d(..., track_running_stats=False)`` and GroupNorm have none.

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

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> FittedArrays:
        """See `WrittenModel`; with the module's buffers."""
        made, module = super().fitted(params, shape, mean), _made(self.definition)
        assert isinstance(made, FittedTorch)
        state = module.state_dict().keys()
        buffers = {name: own for name, own in module.named_buffers(remove_duplicate=False) if name in state}
        made.buffers = {name: own.numpy().copy() for name, own in buffers.items()}
        first = {id(own): name for name, own in module.named_parameters()}
        for name, own in module.named_parameters(remove_duplicate=False):
            if name not in made.params:  # it is one with another
                made.buffers[name] = made.params[first[id(own)]]
        return made

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

        before = _buffers(_made(self.definition))
        if differing := _differing(before, _buffers(_make(self.definition, 0))):
            raise self.wrong(f"a module whose buffers are the same each time it is made; {differing} is not")
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
        if changed := _differing(before, _buffers(module)):
            _made.cache_clear()  # this one is no longer as it is made
            other = "GroupNorm, or BatchNorm with track_running_stats=False"
            raise self.wrong(f"a module whose buffers stay as they are made ({other}); its forward changes {changed}")


def _buffers(module: Any) -> dict[str, NDArray[Any]]:
    """Copies of a module's buffers by name."""
    return {name: own.numpy().copy() for name, own in module.named_buffers()}


def _differing(before: dict[str, NDArray[Any]], after: dict[str, NDArray[Any]]) -> str:
    """The name of a buffer that is not the same; "" if all are."""

    def is_same(name: str) -> bool:
        one, other = before.get(name), after.get(name)
        is_number = one is not None and one.dtype.kind in "fc"  # others have no NaN
        return one is not None and other is not None and np.array_equal(one, other, equal_nan=is_number)

    return next((name for name in {**before, **after} if not is_same(name)), "")


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
    if not any(True for _ in module.parameters()):
        raise JobError("model", definition.name, "a module with parameters")
    if unknown := [name for name, own in module.named_buffers() if own.dtype == torch.bfloat16]:
        raise JobError(
            "model", definition.name, f"a module whose buffers NumPy has a type for; {unknown[0]} is bfloat16"
        )
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
