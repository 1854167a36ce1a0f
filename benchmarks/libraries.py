"""Single-machine libraries as peers: each fits longer and longer and returns a curve of what that brought.

A curve has rows of (seconds of fitting, training loss, held-out loss): MSE and RMSE of ratings, NaN and log loss of
clicks. Importing the library and bringing the arrays into its form are timed beside it; reading them from disk and
predicting are not. Where a library is not installed the answer says so.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from report import NOT_INSTALLED, version
from sets import Split

#: Threads of those that use several.
THREADS = os.cpu_count() or 1
RANK = 20


class Fitted(NamedTuple):
    """What a library did: its curve, and seconds of its import and of bringing the arrays into its form."""

    curve: np.ndarray
    import_s: float
    form_s: float


def rmse(predicted: Any, truth: Any) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(predicted, np.float64) - truth) ** 2)))


def log_loss(chance: Any, y: Any) -> float:
    """Mean log loss of the chances of class 1."""
    chance = np.clip(np.asarray(chance, np.float64), 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(y > 0, np.log(chance), np.log(1 - chance))))


def _grow(split: Split, sizes: Iterable[int], fit: Callable[[int], Callable[[Any, Any], Any]]) -> np.ndarray:
    """The curve of fitting anew with every size; ``fit`` returns what predicts ratings of users and items."""
    rows = []
    for size in sizes:
        began = time.perf_counter()
        predict = fit(size)
        seconds = time.perf_counter() - began
        losses = [rmse(predict(part.users, part.items), part.ratings) for part in (split.train, split.held_out)]
        rows.append((seconds, losses[0] ** 2, losses[1]))
    return np.array(rows)


def libmf(split: Split, quick: bool) -> Fitted | str:
    """LIBMF: parallel SGD with adaptive rates; rank 20, eta 0.1, l2 0.05, no biases."""
    if version("libmf") is None:
        return NOT_INSTALLED
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):  # it greets
        from libmf import mf
    train, imported = split.train, time.perf_counter()
    triples = np.ascontiguousarray(np.column_stack([train.users, train.items, train.ratings]), np.float32)
    formed = time.perf_counter()

    def fit(iterations: int) -> Callable[[Any, Any], Any]:
        engine = mf.MF(
            k=RANK, nr_threads=THREADS, nr_iters=iterations, eta=0.1, quiet=True,
            lambda_p1=0.0, lambda_q1=0.0, lambda_p2=0.05, lambda_q2=0.05,
        )  # fmt: skip
        engine.fit(triples)
        users, items = engine.p_factors(), engine.q_factors()

        def predict(user: Any, item: Any) -> Any:
            # Whoever was never seen has no factors.
            scores = np.full(len(user), train.mean, np.float32)
            known = (user < len(users)) & (item < len(items))
            products = np.einsum("nk,nk->n", users[user[known]], items[item[known]])
            scores[known] = np.where(np.isnan(products), train.mean, products)
            return scores

        return predict

    curve = _grow(split, (5, 10) if quick else (4, 5, 6, 7, 8, 9, 10, 12, 15, 20), fit)
    return Fitted(curve, imported - began, formed - imported)


def cmfrec(split: Split, quick: bool) -> Fitted | str:
    """cmfrec: ALS with biases, the penalty scaled by how many ratings a row has."""
    if version("cmfrec") is None:
        return NOT_INSTALLED
    began = time.perf_counter()
    import pandas as pd
    from cmfrec import CMF

    train, imported = split.train, time.perf_counter()
    frame = pd.DataFrame({"UserId": train.users, "ItemId": train.items, "Rating": train.ratings})
    formed = time.perf_counter()

    def fit(iterations: int) -> Callable[[Any, Any], Any]:
        model = CMF(
            k=RANK, lambda_=0.07, scale_lam=True, niter=iterations, nthreads=THREADS, use_float=True, verbose=False,
            precompute_for_predictions=False,
        )  # fmt: skip
        model.fit(frame)
        return lambda user, item: np.nan_to_num(model.predict(user, item), nan=train.mean)

    curve = _grow(split, (2, 4) if quick else (2, 3, 4, 5, 6, 7, 8, 10), fit)
    return Fitted(curve, imported - began, formed - imported)


def surprise(split: Split, quick: bool) -> Fitted | str:
    """scikit-surprise: SVD, per-rating SGD with biases; one thread."""
    if version("scikit-surprise") is None:
        return NOT_INSTALLED
    began = time.perf_counter()
    import pandas as pd
    from surprise import SVD, Dataset, Reader

    train, imported = split.train, time.perf_counter()
    frame = pd.DataFrame({"u": train.users, "i": train.items, "r": train.ratings})
    rows = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()
    formed = time.perf_counter()
    users = np.array([rows.to_inner_uid(u) if u in rows._raw2inner_id_users else -1 for u in range(train.shape[0])])
    items = np.array([rows.to_inner_iid(i) if i in rows._raw2inner_id_items else -1 for i in range(train.shape[1])])

    def fit(epochs: int) -> Callable[[Any, Any], Any]:
        model = SVD(n_factors=RANK, n_epochs=epochs, lr_all=0.01, reg_all=0.05, random_state=0)
        model.fit(rows)

        def predict(user: Any, item: Any) -> Any:
            u, i = users[user], items[item]
            scores = train.mean + np.where(u < 0, 0, model.bu[u]) + np.where(i < 0, 0, model.bi[i])
            return scores + np.where((u < 0) | (i < 0), 0, np.einsum("nk,nk->n", model.pu[u], model.qi[i]))

        return predict

    curve = _grow(split, (2,) if quick else (5, 10, 15, 20), fit)
    return Fitted(curve, imported - began, formed - imported)


def sgd_classifier(split: Split, quick: bool) -> Fitted | str:
    """scikit-learn: SGDClassifier, a step a row, at a constant rate; one thread."""
    if version("scikit-learn") is None:
        return NOT_INSTALLED
    began = time.perf_counter()
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import SGDClassifier

    imported = time.perf_counter()
    import_s = imported - began

    def parts(part: Any) -> Any:
        indices, indptr = part.X.indices.astype(np.int32), part.X.indptr.astype(np.int32)
        return csr_matrix((part.X.data, indices, indptr), shape=part.X.shape)

    X, y = parts(split.train), split.train.y
    order = np.random.default_rng(0).permutation(len(y))
    pieces = [(X[rows], y[rows]) for rows in np.array_split(order, 8)]
    form_s, held_out = time.perf_counter() - imported, parts(split.held_out)
    model = SGDClassifier(loss="log_loss", alpha=1e-6, learning_rate="constant", eta0=0.01, random_state=0)
    curve, seconds = [], 0.0
    for _ in range(1 if quick else 6):
        for rows, labels in pieces:
            began = time.perf_counter()
            model.partial_fit(rows, labels, classes=[0, 1])
            seconds += time.perf_counter() - began
            chance = model.predict_proba(held_out)[:, 1]
            curve.append((seconds, float("nan"), log_loss(chance, split.held_out.y)))
    return Fitted(np.array(curve), import_s, form_s)


#: By kind of data: name, function, and how often at most in one benchmark.
FITS: dict[str, list[tuple[str, Callable[[Split, bool], Fitted | str], int]]] = {
    "ratings": [
        (f"libmf, {THREADS} threads", libmf, 99),
        (f"cmfrec ALS, {THREADS} threads", cmfrec, 3),
        ("scikit-surprise SVD, 1 thread", surprise, 1),
    ],
    "csr": [("scikit-learn SGDClassifier, 1 thread", sgd_classifier, 99)],
}
