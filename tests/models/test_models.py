"""Models and their fitted forms."""

from __future__ import annotations

import contextlib
import inspect
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.errors import DecodeError, JobError, MllessError
from mlless_nb.models import (
    PMF,
    LogisticModel,
    LogisticRegression,
    PMFModel,
    load_model,
    model_from_json,
    registered_models,
)
from mlless_nb.models.factors import N_SAMPLED

INSTANCES = [PMF(), PMF(rank=3, l2=0.1, biases=False, init_scale=0.5), LogisticRegression(), LogisticRegression(l2=1)]


@pytest.mark.parametrize("model", INSTANCES, ids=str)
def test_json_round_trip(model: Any) -> None:
    assert model_from_json(json.loads(json.dumps(model.to_json()))) == model


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PMF(rank=0), "PMF.rank=0"),
        (lambda: PMF(rank=2.5), "PMF.rank=2.5"),  # type: ignore[arg-type]
        (lambda: PMF(rank=True), "PMF.rank=True"),
        (lambda: PMF(l2=-0.1), "PMF.l2=-0.1"),
        (lambda: PMF(l2=float("inf")), "PMF.l2=inf"),
        (lambda: PMF(biases="yes"), "PMF.biases='yes'"),  # type: ignore[arg-type]
        (lambda: PMF(init_scale=None), "PMF.init_scale=None"),  # type: ignore[arg-type]
        (lambda: LogisticRegression(l2="a"), "LogisticRegression.l2='a'"),  # type: ignore[arg-type]
        (lambda: model_from_json({"kind": "forest"}), "model.kind='forest'"),
        (lambda: PMF().check_data(SimpleNamespace(kind="csr")), "data="),
        (lambda: LogisticRegression().check_data(SimpleNamespace(kind="ratings")), "data="),
        (lambda: PMF(4096).check_data(SimpleNamespace(kind="ratings", shape=(10**6, 10**6))), "PMF.rank=4096"),
    ],
)
def test_a_wrong_field_is_named(make: Any, field: str) -> None:
    with pytest.raises(JobError, match="must be") as caught:
        make()
    assert str(caught.value).startswith(field)


def test_table_starts_the_same_for_the_same_seed() -> None:
    model = PMF(rank=20, init_scale=0.1)
    table = model.init((300, 200), 3.5, 1)
    assert table.shape == model.table_shape((300, 200)) == (500, 21)
    assert table.dtype == np.float32
    assert table.flags.c_contiguous
    assert (table[:, -1] == 0).all()
    assert np.std(table[:, :-1]) == pytest.approx(0.1, rel=0.05)
    assert (table == model.init((300, 200), 3.5, 1)).all()
    assert (table != model.init((300, 200), 3.5, 2)).any()
    assert not LogisticRegression().init((7,), 0.0, 1).any()


def test_metrics() -> None:
    assert PMF().metric_value(8.0, 2.0) == 2.0
    assert np.isnan(PMF().metric_value(float("nan"), 2.0))
    assert np.isinf(PMF().metric_value(float("inf"), 2.0))
    assert LogisticRegression().metric_value(3.0, 2.0) == 1.5


@pytest.mark.parametrize("biases", [True, False])
def test_fitted_pmf_predicts_what_training_measured(biases: bool) -> None:
    model, shape = PMF(rank=4, biases=biases, init_scale=1.0), (5, 6)
    table = model.init(shape, 3.0, 1)
    table[:, -1] += 0.25
    user, item = np.array([0, 0, 4], np.int32), np.array([0, 5, 2], np.int32)
    rows, local = np.unique(np.concatenate([user, 5 + item]), return_inverse=True)
    rating = np.array([1.0, 5.0, 3.0], np.float32)
    batch = SimpleNamespace(
        ids=rows.astype(np.int32),
        user=local[:3].astype(np.int32),
        item=local[3:].astype(np.int32),
        rating=rating,
        n=3,
    )
    factors = table[user, :4], table[5 + item, :4]
    products = (factors[0] * factors[1]).sum(axis=1)
    assert model.interaction(table, batch) == pytest.approx(float((products**2).mean()), rel=1e-5)
    fitted = model.fitted(table, shape, 3.0)
    squared = float(((fitted.predict(user, item) - rating) ** 2).sum())
    assert squared == pytest.approx(model.evaluate(table, batch, 3.0), rel=1e-5)
    table[:] = 0
    assert fitted.params["user_factors"].any(), "the fitted model has copies"


def test_the_strength_of_factors_is_told_from_a_sample_of_many_ratings() -> None:
    model, rng = PMF(rank=4), np.random.default_rng(0)
    table = model.init((50, 60), 3.0, 1)
    user, item = rng.integers(0, 50, 20_000, np.int32), rng.integers(50, 110, 20_000, np.int32)
    batch = SimpleNamespace(ids=np.arange(110, dtype=np.int32), user=user, item=item, n=20_000)
    products = (table[user, :4] * table[item, :4]).sum(axis=1)
    sampled = products[:: -(-20_000 // N_SAMPLED)]
    assert len(sampled) <= N_SAMPLED < len(products)
    assert model.interaction(table, batch) == pytest.approx(float((sampled**2).mean()), rel=1e-5)
    # A sample of so many squares of products is within four standard errors of them all.
    squares = products**2
    assert abs((sampled**2).mean() - squares.mean()) < 4 * squares.std() / np.sqrt(len(sampled))
    table[:, :4] = 0
    assert model.interaction(table, batch) == 0.0
    assert LogisticRegression().interaction(table, batch) == 0.0


def test_recommend_names_the_best_that_are_not_excluded() -> None:
    model = PMFModel(
        {
            "user_factors": np.zeros((2, 1), np.float32),
            "item_factors": np.zeros((5, 1), np.float32),
            "user_bias": np.zeros(2, np.float32),
            "item_bias": np.array([0.1, 0.5, 0.3, 0.5, 0.2], np.float32),
            "mean": np.array(3.0, np.float32),
        }
    )
    items, scores = model.recommend(1, n=3)
    assert items.tolist() == [1, 3, 2]
    assert scores.tolist() == pytest.approx([3.5, 3.5, 3.3])
    assert model.recommend(1, n=10, exclude=[3, 1])[0].tolist() == [2, 4, 0]
    for several in ({3, 1}, np.array([3, 1]), iter([3, 1])):
        assert model.recommend(1, n=10, exclude=several)[0].tolist() == [2, 4, 0]
    for one in (3, np.int64(3)):
        assert model.recommend(1, n=10, exclude=one)[0].tolist() == [1, 2, 4, 0]
    assert model.recommend(1, n=0)[0].tolist() == []
    for wrong in (2, -1, 0.5):
        with pytest.raises(ValueError, match="user"):
            model.recommend(wrong)  # type: ignore[arg-type]


def test_what_training_never_saw_is_not_recommended_and_predicted_by_what_is_known() -> None:
    params = {
        "user_factors": np.ones((2, 1), np.float32),
        "item_factors": np.ones((4, 1), np.float32),
        "user_bias": np.array([0.5, 7.0], np.float32),
        "item_bias": np.array([9.0, 0.1, 0.3, 0.2], np.float32),
        "mean": np.array(3.0, np.float32),
    }
    model = PMFModel(params).with_seen(np.array([True, False]), np.array([False, True, True, True]))
    assert model.recommend(0)[0].tolist() == [2, 3, 1]
    assert model.recommend(0, exclude=[2])[0].tolist() == [3, 1]
    assert model.recommend(1, n=2)[0].tolist() == [2, 3], "of a new user, the items' biases are known"
    assert model.predict([0, 0, 1, 1], [1, 0, 1, 0]).tolist() == pytest.approx([4.6, 3.5, 3.1, 3.0])
    assert PMFModel(params).recommend(0)[0].tolist() == [0, 2, 3, 1], "a file of an older version names all"
    none_seen = PMFModel(params).with_seen(np.zeros(2, bool), np.zeros(4, bool))
    assert none_seen.recommend(0)[0].tolist() == []


@pytest.mark.parametrize(
    ("users", "items", "words"),
    [
        ([0, 5], [0, 0], "^users=5: must be an id from 0 to 4$"),
        ([0, 1], [0, -1], "^items=-1: must be an id from 0 to 5$"),
        ([0, 1], [0], "lengths"),
        ([0.5], [0], r"^users=\[0\.5\]: must be ids, whole numbers from 0 to 4$"),
    ],
)
def test_prediction_of_bad_ids_is_an_error(users: list[Any], items: list[Any], words: str) -> None:
    model = PMF(rank=2)
    fitted = model.fitted(model.init((5, 6), 3.0, 1), (5, 6), 3.0)
    with pytest.raises(ValueError, match=words):
        fitted.predict(users, items)


def test_fitted_logistic_regression() -> None:
    table = np.array([[1.0], [-2.0], [0.5]], np.float32)
    fitted = LogisticRegression().fitted(table, (2,), 0.0)
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    margins = np.array([1.5, -1.5, 0.5])
    for each in (X, scipy.sparse.csr_matrix(X), scipy.sparse.csc_array(X)):
        proba = fitted.predict_proba(each)
        assert proba.dtype == np.float32
        np.testing.assert_allclose(proba[:, 1], 1 / (1 + np.exp(-margins)), rtol=1e-6)
        np.testing.assert_allclose(proba.sum(1), 1.0, rtol=1e-6)
        assert fitted.predict(each).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"^X='shape \(1, 3\)': must be rows of 2 columns$"):
        fitted.predict(np.zeros((1, 3)))
    assert fitted.predict_proba(np.zeros((0, 2))).shape == (0, 2)


def test_saved_models_are_read_back(tmp_path: Path) -> None:
    pmf = PMF(rank=2).fitted(PMF(rank=2).init((3, 4), 3.0, 1), (3, 4), 3.0)
    seen = pmf.with_seen(np.array([True, False, True]), np.array([True, True, False, True]))
    logistic = LogisticModel({"weights": np.arange(3, dtype=np.float32), "intercept": np.ones(1, np.float32)})
    for model in (pmf, seen, logistic):
        model.save(tmp_path / "model")
        again = load_model(tmp_path / "model")
        assert type(again) is type(model)
        assert again.params.keys() == model.params.keys()
        for name, array in model.params.items():
            assert again.params[name].dtype == (bool if name.startswith("seen") else np.float32)
            np.testing.assert_array_equal(again.params[name], array)


def test_a_missing_file_is_told_in_a_line(tmp_path: Path) -> None:
    for kind in (MllessError, FileNotFoundError):
        with pytest.raises(kind, match=r"^\S*none\.npz: there is no such file; model\.save writes one$"):
            load_model(tmp_path / "none.npz")


def test_what_users_call_says_what_it_does() -> None:
    for model in registered_models().values():
        for name, member in inspect.getmembers(model.fitted_type):
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert not (member.__doc__ or "See").startswith("See"), f"{model.fitted_type.__name__}.{name}"


GOOD = PMF(rank=2).fitted(PMF(rank=2).init((3, 4), 3.0, 1), (3, 4), 3.0)
PMF_FILE = {"kind": np.array("pmf"), **GOOD.params}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda whole: b"", "this one is no .npz file"),
        (lambda whole: b"not a zip", "this one is no .npz file"),
        (lambda whole: pickle.dumps({"kind": "pmf"}), "this one is no .npz file"),
        (lambda whole: whole[: len(whole) // 2], "this one is cut off or damaged"),
        (lambda whole: whole[:-1], "this one is cut off or damaged"),
    ],
)
def test_a_file_that_is_no_model_is_named(tmp_path: Path, wrong: Callable[[bytes], bytes], says: str) -> None:
    path = tmp_path / "model.npz"
    GOOD.save(path)
    path.write_bytes(wrong(path.read_bytes()))
    with pytest.raises(DecodeError, match=r"model\.npz: must be a model's file, as model.save wrote it; " + says):
        load_model(path)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"a": np.zeros(3), "b": np.zeros(3)}, "this one holds a, b"),
        ({}, "this one is no .npz file"),
        ({"kind": np.array("pmf"), "a": np.array([{}], dtype=object)}, "holds other things than arrays"),
        ({"kind": np.array("forest")}, "kind 'forest', must be one of pmf"),
        ({"kind": np.array("pmf"), "user_bias": np.zeros(3)}, "must be a whole pmf model; 'item_bias' is missing"),
        (
            {"kind": np.array("pmf"), **GOOD.params, "item_bias": np.zeros(7)},
            r"item_factors has shape \(4, 2\): must be",
        ),
        (
            {"kind": np.array("pmf"), **GOOD.params, "item_factors": np.zeros(())},
            r"item_factors has shape \(\): must be",
        ),
        (
            {"kind": np.array("pmf"), **GOOD.params, "user_factors": np.zeros(3)},
            r"user_factors has shape \(3,\): must be",
        ),
        ({**PMF_FILE, "mean": np.array("x")}, "could not convert"),
        (
            {**PMF_FILE, "seen_users": np.ones(3, bool), "seen_items": np.ones(3, bool)},
            r"seen_items has shape \(3,\): must be \(4,\)",
        ),
        ({"kind": np.array("logistic"), "weights": np.zeros(3), "intercept": np.zeros(3)}, "must be a whole logistic"),
    ],
)
def test_arrays_that_are_no_model_are_named(tmp_path: Path, arrays: dict[str, Any], says: str) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, **arrays)
    with pytest.raises(DecodeError, match=r"other\.npz.*" + says):
        load_model(path)


@given(st.data())
def test_no_damage_is_taken_for_a_model_without_a_word(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    GOOD.save(path)
    damaged = bytearray(path.read_bytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    with contextlib.suppress(DecodeError):
        assert isinstance(load_model(path), PMFModel)


def test_factors_have_emerged_once_they_have_outgrown_their_start() -> None:
    model, shape = PMF(rank=3), (5, 4)
    params = model.init(shape, 0.0, 0)
    assert not model.has_emerged(params, shape)
    params[5:, :3] *= 3
    assert model.has_emerged(params, shape)
    assert LogisticRegression().has_emerged(np.zeros((4, 1), np.float32), (3,))
