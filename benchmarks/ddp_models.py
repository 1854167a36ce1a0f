"""The models of the peer in PyTorch: matrix factorisation, and logistic regression with dense or sparse gradients."""

from __future__ import annotations

from typing import Any

import numpy as np


class Factorization:
    """PMF in PyTorch: the loss of a minibatch, and the held-out RMSE."""

    def __init__(self, data: Any, task: dict[str, Any]) -> None:
        import torch

        torch.manual_seed(0)
        (n_users, n_items), width = data["shape"], task["rank"] + 1
        self.l2, self.mean = task["l2"], float(data["y"].mean())
        self.module = torch.nn.ModuleList(
            [torch.nn.Embedding(int(n), width, sparse=task.get("sparse", False)) for n in (n_users, n_items)]
        )
        for table in self.module:
            torch.nn.init.normal_(table.weight, std=0.1)
            table.weight.data[:, -1] = 0.0
        momentum = task.get("momentum")
        self.optimizer = lambda parameters: (
            torch.optim.SparseAdam(list(parameters), lr=task["learning_rate"])
            if momentum is None
            else torch.optim.SGD(
                parameters,
                lr=task["learning_rate"],
                momentum=momentum,
                nesterov=momentum > 0,
                fused=not task.get("sparse", False),
            )
        )
        tensors = {name: torch.from_numpy(data[name]) for name in ("u", "i", "y", "tu", "ti", "ty")}
        order = torch.from_numpy(np.random.default_rng(1).permutation(len(data["y"])))
        self.minibatches = [
            tuple(tensors[name][rows] for name in ("u", "i", "y")) for rows in order.split(task["minibatch"])
        ][task["process"] :: task["workers"]]
        self._held_out = tuple(tensors[name] for name in ("tu", "ti", "ty"))

    def predict(self, module: Any, users: Any, items: Any) -> tuple[Any, Any]:
        """(predictions, what the penalty is on)."""
        left, right = module(users, items)
        return self.mean + left[:, -1] + right[:, -1] + (left[:, :-1] * right[:, :-1]).sum(1), (left, right)

    def loss(self, module: Any, minibatch: Any) -> tuple[Any, float]:
        """(what is minimised, the mean squared error)."""
        users, items, stars = minibatch
        predicted, (left, right) = self.predict(module, users, items)
        squared = (predicted - stars).square().mean()
        penalty = (left.square().sum() + right.square().sum()) / len(stars)
        return 0.5 * squared + 0.5 * self.l2 * penalty, squared.item()

    def held_out(self, module: Any) -> float:
        """RMSE."""
        users, items, stars = self._held_out
        return float((self.predict(module, users, items)[0] - stars).square().mean().sqrt())


class Pair:
    """Both embeddings as one module, as DDP wants it."""

    @staticmethod
    def of(tables: Any) -> Any:
        """A module that looks both up."""
        import torch

        class Both(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.tables = tables

            def forward(self, users: Any, items: Any) -> tuple[Any, Any]:
                return self.tables[0](users), self.tables[1](items)

        return Both()


class Logistic:
    """Logistic regression in PyTorch: the loss of a minibatch, and the held-out log loss."""

    def __init__(self, data: Any, task: dict[str, Any]) -> None:
        import scipy.sparse
        import torch

        class Product(torch.autograd.Function):
            """X @ w, whose gradient is a product with the prebuilt transpose."""

            @staticmethod
            def forward(context: Any, weights: Any, X: Any, transposed: Any) -> Any:
                context.transposed = transposed
                return X @ weights

            @staticmethod
            def backward(context: Any, gradient: Any) -> Any:
                return context.transposed @ gradient, None, None

        class Linear(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weights = torch.nn.Parameter(torch.zeros(int(data["shape"][0])))
                self.intercept = torch.nn.Parameter(torch.zeros(1))

            def forward(self, X: Any, transposed: Any) -> Any:
                return Product.apply(self.weights, X, transposed) + self.intercept

        def tensor(X: Any) -> Any:
            X = X.tocsr()
            return torch.sparse_csr_tensor(
                torch.from_numpy(X.indptr.astype(np.int32)),
                torch.from_numpy(X.indices.astype(np.int32)),
                X.data,
                X.shape,
            )

        def parts(prefix: str) -> tuple[Any, Any]:
            X = scipy.sparse.csr_array(
                (data[prefix + "data"], data[prefix + "indices"], data[prefix + "indptr"]),
                shape=(len(data[prefix + "y"]), int(data["shape"][0])),
            )
            return X, data[prefix + "y"]

        self.module = Linear()
        self.optimizer = lambda parameters: torch.optim.Adam(parameters, lr=task["learning_rate"], fused=True)
        self._loss = torch.nn.functional.binary_cross_entropy_with_logits
        X, y = parts("")
        order, size = np.random.default_rng(1).permutation(len(y)), task["minibatch"]
        self.minibatches = []
        for start in range(task["process"] * size, len(y), size * task["workers"]):
            rows = order[start : start + size]
            self.minibatches.append((tensor(X[rows]), tensor(X[rows].T), torch.from_numpy(y[rows])))
        X, y = parts("t")
        self._held_out = (tensor(X), tensor(X.T), torch.from_numpy(y))

    def loss(self, module: Any, minibatch: Any) -> tuple[Any, float]:
        """(what is minimised, the same as a number)."""
        X, transposed, y = minibatch
        value = self._loss(module(X, transposed), y)
        return value, value.item()

    def held_out(self, module: Any) -> float:
        """Mean log loss."""
        return self.loss(module, self._held_out)[1]


class SparseLogistic:
    """Logistic regression with sparse gradients: a bag of embeddings of width 1, the intercept one more feature."""

    def __init__(self, data: Any, task: dict[str, Any]) -> None:
        import torch

        self.module = torch.nn.EmbeddingBag(int(data["shape"][0]) + 1, 1, mode="sum", sparse=True)
        torch.nn.init.zeros_(self.module.weight)
        self.optimizer = lambda parameters: torch.optim.SparseAdam(list(parameters), lr=task["learning_rate"])
        self._loss = torch.nn.functional.binary_cross_entropy_with_logits
        X, y = self._with_intercept(data, "")
        order, size = np.random.default_rng(1).permutation(len(y)), task["minibatch"]
        self.minibatches = []
        for start in range(task["process"] * size, len(y), size * task["workers"]):
            rows = order[start : start + size]
            self.minibatches.append(self._tensors(X[rows], y[rows]))
        self._held_out = self._tensors(*self._with_intercept(data, "t"))

    @staticmethod
    def _with_intercept(data: Any, prefix: str) -> tuple[Any, Any]:
        import scipy.sparse

        y, n_features = data[prefix + "y"], int(data["shape"][0])
        X = scipy.sparse.csr_array(
            (data[prefix + "data"], data[prefix + "indices"], data[prefix + "indptr"]), shape=(len(y), n_features)
        )
        return scipy.sparse.hstack([X, np.ones((len(y), 1), np.float32)], format="csr"), y

    @staticmethod
    def _tensors(X: Any, y: Any) -> tuple[Any, Any, Any, Any]:
        import torch

        indices, offsets = (torch.from_numpy(part.astype(np.int64)) for part in (X.indices, X.indptr[:-1]))
        return indices, offsets, torch.from_numpy(X.data), torch.from_numpy(y)

    def loss(self, module: Any, minibatch: Any) -> tuple[Any, float]:
        """(what is minimised, the same as a number)."""
        indices, offsets, values, y = minibatch
        value = self._loss(module(indices, offsets, per_sample_weights=values)[:, 0], y)
        return value, value.item()

    def held_out(self, module: Any) -> float:
        """Mean log loss."""
        return self.loss(module, self._held_out)[1]


def model_of(data: Any, task: dict[str, Any]) -> tuple[Any, Any]:
    """(what trains on ``data``, its module as DDP wants it); ``data`` as of `arrays_of`."""
    if "u" in data:
        model: Any = Factorization(data, task)
        return model, Pair.of(model.module)
    model = (SparseLogistic if task.get("sparse") else Logistic)(data, task)
    return model, model.module
