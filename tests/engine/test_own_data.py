"""A table with ids becomes a model that answers in those ids: trained, recorded, read again, gone on from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from engine.jobs import PATIENCE_S, finish, job

import mlless_nb
from mlless_nb import ImplicitMF, JobError, LogisticRegression, ScaleIn, Stop, datasets

RNG = np.random.default_rng(0)
N = 3000
USERS, FILMS = RNG.integers(0, 60, N), RNG.integers(0, 40, N)
RATINGS = pd.DataFrame({
    "user": np.char.add("u", USERS.astype(str)),
    "film": FILMS - 20,
    "stars": np.where((USERS + FILMS) % 2 == 0, 5.0, 1.0) - RNG.random(N),
})  # fmt: skip


def own(frame: pd.DataFrame, **more: Any) -> Any:
    return datasets.ratings(frame, user="user", item="film", rating="stars", **more)


def test_a_model_answers_in_the_ids_of_its_table() -> None:
    data = own(RATINGS)
    run = finish(job(data=data, workers=2, stop=Stop(epochs=4), name="mine"))
    assert run.status == "finished", run.reason
    model: Any = run.model
    items, _ = model.recommend("u7", 5)
    assert items.dtype == np.int64
    assert set(items.tolist()) <= set(range(-20, 20))
    assert set(model.evaluate(data)) == {"RMSE", "MAE", "R2", "precision@10", "recall@10", "NDCG@10"}
    again: Any = mlless_nb.attach(run.id).model
    assert again.recommend("u7", 5)[0].tolist() == items.tolist()

    held = own(RATINGS.iloc[:200], like=run.model)
    more = mlless_nb.train(job(data=data, validation=held, workers=2, stop=Stop(epochs=1)), resume=run)
    more.wait(PATIENCE_S)
    assert more.status == "finished", more.reason
    assert more.model.names == data.names
    with pytest.raises(JobError, match=r"data=.*must be with the ids or columns of run 'mine', as by"):
        mlless_nb.train(job(data=own(RATINGS.assign(film=FILMS)), workers=2, stop=Stop(epochs=1)), resume=run)


def test_implicit_feedback_and_tables_are_trained() -> None:
    liked = RATINGS[RATINGS.stars > 3]
    data = datasets.ratings(liked, user="user", item="film")
    train, held = datasets.split(data, "random", 0.2)
    fields = {"optimizer": None, "workers": 2, "minibatch": None, "scale_in": ScaleIn()}
    run = finish(job(model=ImplicitMF(rank=4), data=train, validation=held, stop=Stop(epochs=30), **fields))
    assert run.status == "finished", run.reason
    losses = run.history["validation_loss"]
    assert run.model.evaluate(held)["AUC"] > 0.6, losses  # type: ignore[attr-defined]

    rows = pd.DataFrame({"user": RATINGS.user, "parity": np.where(FILMS % 2, "odd", "even"), "x": RNG.normal(size=N)})
    rows["bought"] = np.where((FILMS % 2 == 0) & (rows.x > 0), "yes", "no")
    table = datasets.table(rows, "bought", hashed=["user"], buckets=64)
    run = finish(job(model=LogisticRegression(), data=table, stop=Stop(epochs=20), **fields))
    assert run.status == "finished", run.reason
    model: Any = run.model
    assert next(iter(model.coefficients())) in ("x", "parity=even", "parity=odd")
    assert (model.predict(rows) == rows["bought"]).mean() > 0.8
