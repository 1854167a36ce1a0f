"""Cell text and the notebook's variables -> TrainingJob, or an error with the cell's line."""

from __future__ import annotations

from typing import Any

import pytest

from mlless_nb import ISP, PMF, SGD, Adam, Stop, datasets
from mlless_nb.errors import JobError, MllessError
from mlless_nb.magics.cell import CellError, at_its_line, read_cell, unused

BODY = "model = PMF(rank=3)\noptimizer = SGD(learning_rate=0.5)\ndata = ratings\n"

#: What a learning rate that stands by itself is led to.
RATE = " or ".join(f"{kind}(learning_rate=...)" for kind in ("SGD", "Adam", "AdaGrad", "FTRL"))


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    """The notebook's variables."""
    ratings = datasets.synthetic_ratings(30, 20, 400, rank=2, seed=0)
    names = {"PMF": PMF, "SGD": SGD, "Adam": Adam, "ISP": ISP, "Stop": Stop, "datasets": datasets}
    return {**names, "ratings": ratings, "sync": "the notebook's own", "n_epochs": 3}


def read(text: str, notebook: dict[str, Any], rules: dict[str, Any] | None = None, **options: Any) -> Any:
    return read_cell(text, notebook, {"minibatch": 50, **options}, rules)


def test_cell_names_the_job(notebook: dict[str, Any]) -> None:
    job = read(BODY + "sync = ISP(0.7)\nstop = Stop(epochs=n_epochs)\n", notebook, workers=2, budget=0.25)

    assert (job.model, job.optimizer, job.sync) == (PMF(rank=3), SGD(learning_rate=0.5), ISP(0.7))
    assert job.data is notebook["ratings"]
    assert (job.workers, job.cap_usd, job.stop) == (2, 0.25, Stop(epochs=3))


def test_only_what_the_cell_assigns_counts(notebook: dict[str, Any]) -> None:
    """The notebook's own `sync` is not the job's, and the cell's variables do not reach the notebook."""
    before = dict(notebook)

    job = read(BODY + "def helper():\n    workers = 99\n", notebook)

    assert str(job.sync) == "BSP"
    assert job.workers == 1
    assert notebook == before


def test_any_field_may_be_named_in_the_cell(notebook: dict[str, Any]) -> None:
    body = "model = PMF(rank=3)\noptimizer = Adam()\ndata, validation = ratings.split(0.2, seed=1)\nworkers = 3\n"

    job = read(body, notebook)

    assert job.validation.n == 80
    assert job.workers == 3


def test_functions_of_the_cell_see_its_variables(notebook: dict[str, Any]) -> None:
    body = "rank = 3\ndef make():\n    return PMF(rank=rank)\nmodel = make()\noptimizer = Adam()\ndata = ratings\n"

    assert read(body, notebook).model == PMF(rank=3)


def test_options_set_stop_rules(notebook: dict[str, Any]) -> None:
    job = read(BODY + "stop = Stop(target=0.9)\n", notebook, rules={"epochs": 2, "patience": 5})

    assert job.stop == Stop(target=0.9, epochs=2, patience=5)


def test_scale_in_is_an_option_or_a_variable(notebook: dict[str, Any]) -> None:
    from mlless_nb import ScaleIn

    assert read(BODY, notebook).scale_in == ScaleIn()
    assert read(BODY, notebook, scale_in=ScaleIn.off()).scale_in == ScaleIn.off()
    chosen = read(BODY + "scale_in = ScaleIn(interval_s=5)\n", {**notebook, "ScaleIn": ScaleIn})
    assert chosen.scale_in == ScaleIn(interval_s=5)
    with pytest.raises(CellError, match="scale_in is given here and on the %%mlless line"):
        read(BODY + "scale_in = ScaleIn()\n", {**notebook, "ScaleIn": ScaleIn}, scale_in=ScaleIn.off())


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        ("model = PMF(rank=3\noptimizer = 1\n", 2, "never closed"),
        ("model = PMF(rank=3)\n\nreturn model\n", 4, "'return' outside function"),
        ("model = PMF(rank=3)\ndata = rating\n", 3, "NameError: name 'rating' is not defined; is ratings meant?"),
        ("model = PMF(rank=3)\noptimizer = SDG()\n", 3, "NameError: name 'SDG' is not defined; is SGD meant?"),
        (
            "model = PMF(ranks=3)\n",
            2,
            "PMF.ranks=3: must be named one of rank, l2, biases, init_scale, standardize; is rank meant?",
        ),
        ("model = PMF(\n    rank=0,\n)\n", 2, "rank=0: must be"),
        (
            "model = PMF(rank=3)\noptimizer = SGD(learning_rate=0.5)\n",
            1,
            'add a line such as `data = datasets.movielens("1m")`',
        ),
        ("model = PMF(rank=3)\noptimiser = SGD(learning_rate=0.5)\ndata = ratings\n", 3, "is optimizer meant?"),
        ("model = PMF(3)\noptimiser = SGD(0.5)\ndata = ratings\nprint(optimiser)\n", 1, "line 3 assigns optimiser"),
        (BODY.replace("PMF(rank=3)", "'pmf'"), 2, "model='pmf': must be PMF(...)"),
        (BODY + "\nsync = 0.7\n", 6, "sync=0.7: must be BSP(), ISP(threshold), SSP(staleness), ASP()"),
        (BODY + "stop = 10\n", 5, "stop=10: must be"),
        (BODY + "scale_in = True\n", 5, "scale_in=True: must be ScaleIn(...) or ScaleIn.off()"),
        ("# only a comment\n", 1, "does not name model"),
    ],
)
def test_errors_point_at_the_line(notebook: dict[str, Any], body: str, line: int, says: str) -> None:
    with pytest.raises(CellError) as caught:
        read(body, notebook)

    assert caught.value.line == line
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_option_out_of_range_points_at_line_1(notebook: dict[str, Any]) -> None:
    with pytest.raises(CellError, match=r"line 1 of the cell: workers=0: must be an integer >= 1"):
        read(BODY, notebook, workers=0)
    with pytest.raises(CellError, match=r"line 1 of the cell: stop.epochs=-1: must be"):
        read(BODY, notebook, rules={"epochs": -1})


def test_given_twice_is_refused(notebook: dict[str, Any]) -> None:
    with pytest.raises(CellError, match=r"line 5 of the cell: workers is given here and on the %%mlless line"):
        read(BODY + "workers = 2\n", notebook, workers=3)
    with pytest.raises(CellError, match=r"line 5 of the cell: stop.epochs is given here and on"):
        read(BODY + "stop = Stop(epochs=1)\n", notebook, rules={"epochs": 2})


def test_missing_field_that_the_notebook_has(notebook: dict[str, Any]) -> None:
    with pytest.raises(CellError, match=r"`data = data` takes the notebook's variable"):
        read("model = PMF(rank=3)\noptimizer = Adam()\n", {**notebook, "data": notebook["ratings"]})


def test_exceptions_from_deeper_down_pass_with_their_traceback(notebook: dict[str, Any]) -> None:
    def load() -> None:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        read("data = load()\n", {**notebook, "load": load})


def test_a_later_error_finds_its_line() -> None:
    """Errors of `train`, after the cell was read, point into the cell too."""
    error = JobError("redis", "redis://nowhere", "reachable")

    assert at_its_line(BODY + "redis = 'redis://nowhere'\n", error).line == 5
    assert at_its_line(BODY, error).line == 1
    assert isinstance(at_its_line(BODY, error), MllessError)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("workrs = 2", "workers"),
        ("batch = 100", "minibatch"),
        ("batch_size = 100", "minibatch"),
        ("learning_rate = 3", RATE),
        ("lr = 3", RATE),
        ("epoch = 3", "Stop(epochs=...)"),
        ("validaton: float = 0.2", "validation"),
        ("_, validaton = ratings.split(0.5, seed=0)", "validation"),
    ],
)
def test_a_name_that_is_not_used_and_nearly_a_field_is_refused(notebook: dict[str, Any], line: str, meant: str) -> None:
    """It is found before the body runs, which may take its time."""
    with pytest.raises(CellError) as caught:
        read(BODY + line + "\nraise AssertionError\n", notebook)

    assert caught.value.line == 5
    says = f"is not a field of a job, and not used in the cell; is {meant} meant? Fields: model, optimizer, data, sync"
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "lines",
    [
        "lr = 0.1\noptimizer = SGD(lr)",
        "worker = 2\nworkers = worker",
        "_learning_rate = 3",
        "from mlless_nb import models",
        "import json as batch",
        "def batch():\n    epoch = 3",
        "class Batch:\n    rank = 3",
        "for epoch in range(2):\n    pass",
        "ranks = [rank for rank in (2, 3)]\nmodel = PMF(ranks[-1])",
        "batch = 25\ndef half():\n    return batch\nminibatch = half()",
    ],
)
def test_names_of_the_cells_own_are_left_alone(notebook: dict[str, Any], lines: str) -> None:
    options = {name: value for name, value in (("workers", 2), ("minibatch", 25)) if name not in lines}

    assert read_cell(BODY + lines + "\n", notebook, options).workers == 2
    assert unused(BODY + lines + "\n") == ""


def test_other_names_that_are_not_used_are_told(notebook: dict[str, Any]) -> None:
    body = BODY + "rows, note = ratings.n, 'try'\nminibatch = rows // 10\nnext_time = 3\n"

    assert read_cell(body, notebook).minibatch == 40
    assert unused(body) == "not used in the cell, and not kept after it: note (line 5), next_time (line 7)"
