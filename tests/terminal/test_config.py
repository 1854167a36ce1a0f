"""A TOML file and ``--set`` become a job, or one line on what is wrong."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlless_nb
from mlless_nb import BSP, ISP, PMF, SGD, Adam, LogisticRegression, ScaleIn, Stop, TrainingJob
from mlless_nb.job.algorithm import Algorithm
from mlless_nb.job.sync import Sync, register_sync
from mlless_nb.job.sync import base as protocols
from mlless_nb.models import Model
from mlless_nb.terminal.calls import CallError, called, table_of
from mlless_nb.terminal.config import FIELDS, PARTS, STOP_RULES, callables, job_of
from mlless_nb.terminal.settings import ConfigError, read
from mlless_nb.validation import specification

RATINGS = 'data = {path = "ratings.csv", user = "user", item = "film", rating = "stars"}\n'
PLAIN = f'model = "PMF(rank=3)"\n{RATINGS}'
CLICKS = 'model = "LogisticRegression"\ndata = "clicks.csv"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, beside the one that the user is in."""
    ratings = "".join(f"u{number % 17},f{number % 13},{number % 5 + 1}\n" for number in range(400))
    (tmp_path / "ratings.csv").write_text(f"user,film,stars\n{ratings}")
    clicks = "".join(f"{number % 7},{number % 3},{number % 2}\n" for number in range(400))
    (tmp_path / "clicks.csv").write_text(f"a,b,label\n{clicks}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def job(folder: Path, text: str, *changes: str) -> TrainingJob:
    (folder / "first.toml").write_text(text)
    return job_of(read("../first.toml", changes))


def test_a_file_has_the_fields_of_a_cell(folder: Path) -> None:
    made = job(
        folder,
        'optimizer = "SGD(learning_rate=8.0, momentum=0.9)"\nsync = "ISP(0.7)"\nworkers = 2\nbudget = 0.05\n'
        f'target = 0.8\nscale_in = "off"\nvalidation = 0.2\n{PLAIN}[stop]\nepochs = 3\n',
    )
    assert (made.model, made.optimizer, made.sync) == (PMF(rank=3), SGD(learning_rate=8.0, momentum=0.9), ISP(0.7))
    assert (made.workers, made.cap_usd, made.validation) == (2, 0.05, 0.2)
    assert made.stop == Stop(target=0.8, epochs=3)
    assert made.scale_in == ScaleIn.off()
    assert made.name == "first"
    assert made.data.n == 400


def test_parts_are_texts_or_tables(folder: Path) -> None:
    text = job(folder, f'model = "mlless_nb.PMF(3, 0.1)"\n{RATINGS}')
    table = job(folder, f'{RATINGS}[model]\nkind = "PMF"\nrank = 3\nl2 = 0.1\n')
    assert text.model == table.model == PMF(3, 0.1)
    assert job(folder, PLAIN).sync == BSP()


def test_options_replace_the_files_fields_and_parts_of_them(folder: Path) -> None:
    made = job(
        folder,
        f"epochs = 3\nname = 'mine'\n{PLAIN}",
        "model.rank=5",
        "epochs=7",
        "stop.target=0.5",
        "workers=2",
        "sync=ISP(0.6)",
        "optimizer=Adam(learning_rate=0.1)",
        "optimizer.b1=0.8",
        "name=other",
        "validation=none",
    )
    assert (made.model, made.sync, made.optimizer) == (PMF(rank=5), ISP(0.6), Adam(learning_rate=0.1, b1=0.8))
    assert made.stop == Stop(epochs=7, target=0.5)
    assert (made.workers, made.name, made.validation) == (2, "other", None)


def test_paths_of_a_file_begin_at_the_file_and_those_of_options_where_the_user_is(folder: Path) -> None:
    assert job(folder, CLICKS).data.n == 400
    (folder / "elsewhere" / "few.csv").write_text("label,a\n" + "0,1\n1,2\n" * 20)
    assert job(folder, CLICKS, "data=few.csv").data.n == 40
    assert job(folder, CLICKS, "data.path=few.csv").data.n == 40
    with pytest.raises(
        ConfigError, match=r"^--set data: data: path='.*elsewhere/clicks.csv': must be an existing file"
    ):
        job(folder, CLICKS, "data=clicks.csv")


@pytest.mark.parametrize(
    ("data", "n"),
    [
        ('"../{0}/clicks.csv"', 400),
        ('"cl*.csv"', 400),
        ('["clicks.csv", "clicks.csv"]', 800),
        ('{{path = "clicks.csv", label = "label"}}', 400),
        ('{{kind = "csv", path = "clicks.csv"}}', 400),
        ("\"csv('clicks.csv', label=-1)\"", 400),
        ('{{path = "clicks.csv", label = "label", categorical = ["a"]}}', 400),
        ('"synthetic_clicks(300, 50)"', 300),
    ],
)
def test_data_is_named_in_many_ways(folder: Path, data: str, n: int) -> None:
    made = job(folder, f'model = "LogisticRegression"\ndata = {data.format(folder.name)}\n')
    assert made.data.n == n
    assert isinstance(made.model, LogisticRegression)


def test_a_table_is_read_alike_however_much_is_said_of_it(folder: Path) -> None:
    (folder / "customers.csv").write_text("age,plan,label\n" + "30,a,left\n40,b,stayed\n" * 20)
    more = ("", ', label = "label"', ', missing = "mean"', ', label = "label", missing = "mean"')
    for data in ('"customers.csv"', *(f'{{path = "customers.csv"{arguments}}}' for arguments in more)):
        text = f'model = "LogisticRegression"\ndata = {data}\n'
        made = job(folder, f'validation = "customers.csv"\n{text}')
        assert made.data.names.coding.features == ["age", "plan=a", "plan=b"]
        assert made.validation.names == made.data.names  # type: ignore[union-attr]
        assert job(folder, text, 'data.drop=["age"]').data.names.coding.features == ["plan=a", "plan=b"]
    assert job(folder, 'model = "KMeans(2)"\ndata = "clicks.csv"\n').data.names.coding.features == ["a", "b", "label"]
    assert job(folder, CLICKS, "data.kind=csv").data.names is None
    assert job(folder, CLICKS.replace('"clicks.csv"', '{path = "clicks.csv", label = -1}')).data.names is None


def test_held_out_files_are_read_as_the_training_rows_are(folder: Path) -> None:
    for held_out in ('"ratings.csv"', '{path = "ratings.csv"}'):
        made = job(folder, f"validation = {held_out}\n{PLAIN}")
        assert made.validation.n == 400  # type: ignore[union-attr]
        assert made.validation.names == made.data.names  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "changes", "says"),
    [
        (f'model = "PMF(rank=0)"\n{RATINGS}', (), "../first.toml: model: PMF.rank=0: must be a whole number from 1"),
        (f'model = "PMF(rnk=3)"\n{RATINGS}', (), "../first.toml: model.rnk=3: must be left out; PMF takes rank, l2"),
        (f'model = "PMD"\n{RATINGS}', (), "../first.toml: model='PMD': must be one of PMF, ImplicitMF"),
        (f"model = 3\n{RATINGS}", (), '../first.toml: model=3: must be a text such as "PMF(rank=20)"'),
        (
            f"wrokers = 3\n{PLAIN}",
            (),
            "../first.toml: wrokers=3: must be left out: it is no field of a job; is workers",
        ),
        (f"budget = 'much'\n{PLAIN}", (), "../first.toml: budget='much': must be a finite number of US dollars"),
        (f"stop = 3\n{PLAIN}", (), "../first.toml: stop=3: must be a table of rules"),
        (f"epochs = -1\n{PLAIN}", (), "../first.toml: stop.epochs=-1: must be"),
        (f"{PLAIN}[stop]\nepoch = 1\n", (), "../first.toml: stop: Stop.epoch=1: must be named one of target, epochs"),
        (RATINGS, (), '../first.toml: model must be given, e.g. model = "PMF(rank=20)"'),
        ('model = "PMF"\n', (), '../first.toml: data must be given, e.g. data = "ratings.csv"'),
        (
            "model = PMF\n",
            (),
            '../first.toml: must be TOML: Invalid value (at line 1, column 9): model = PMF; "PMF(rank=20)" and the',
        ),
        ('model = "PMF"\ndata = "ratings.csv"\n', (), "must be ratings: {path = ..., user = "),
        (
            'model = "PMF"\ndata = "ratings.xyz"\n',
            (),
            "../first.toml: data='ratings.xyz': must be a file whose name ends",
        ),
        ('model = "PMF"\ndata = "none.csv"\n', (), "must be ratings: {path = "),
        (f"scale_in = 3\n{PLAIN}", (), '../first.toml: scale_in=3: must be "on", "off" or a table'),
        (PLAIN, ("workers=0",), "--set workers: workers=0: must be an integer >= 1"),
        (PLAIN, ("epochs=-1",), "--set epochs: stop.epochs=-1: must be"),
        (PLAIN, ("model.rank=0",), "--set model.rank: model: PMF.rank=0: must be"),
        (PLAIN, ("lr=3",), "--set lr: lr=3: must be left out: it is no field of a job; is SGD(learning_rate=...)"),
        (PLAIN, ("optimizer.b1=3",), "--set optimizer.b1: optimizer.b1=3: must be part of a given optimizer"),
        (
            f"backend = {{a = 3}}\n{PLAIN}",
            ("backend.a.b=1",),
            "--set backend.a.b: backend.a.b=1: must be part of a table",
        ),
        (PLAIN, ("sync=ISP(0.7",), "--set sync: sync='ISP(0.7': must be a text such as \"ISP(0.7)\""),
        (PLAIN, ("workers",), "--set workers: must be field=value, e.g. --set workers=4"),
        (PLAIN, ("data.user=film",), "--set data.user: data: user, item, rating, time="),
        ("model = \"PMF\"\ndata = \"__import__('os').system('false')\"\n", (), 'must be a text such as "clicks.csv"'),
    ],
)
def test_what_is_wrong_is_one_line_with_file_field_value_and_what_is_valid(
    folder: Path, text: str, changes: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        job(folder, text, *changes)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_told(folder: Path) -> None:
    for name, says in (("none.toml", "No such file"), (".", "Is a directory")):
        with pytest.raises(ConfigError, match=says):
            read(name)
    (folder / "bytes.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match="in UTF-8"):
        read(str(folder / "bytes.toml"))


def test_a_secret_in_an_option_is_not_repeated(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        job(folder, PLAIN, "redis=redis://:planted@elsewhere", "redis=3")
    assert "planted" not in str(caught.value)


def test_every_field_of_a_job_can_be_given() -> None:
    assert {"model", "data", "validation", "stop", "scale_in", *PARTS} <= set(FIELDS)
    assert not set(STOP_RULES) & set(FIELDS)


@given(st.text(max_size=60))
def test_no_text_is_run_or_escapes(text: str) -> None:
    table = {}
    with contextlib.suppress(CallError):
        table = table_of(text, callables("model"), PARTS["model"])
    assert not table or table["kind"] in callables("model")


def test_all_that_is_registered_can_be_called_but_models_that_are_source_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "_registered", dict(protocols._registered))

    @register_sync
    @specification
    @dataclass(frozen=True)
    class Patient(BSP):
        patience: int = 3
        kind: ClassVar[str] = "patient"

    assert job(folder, f'sync = "Patient(5)"\n{PLAIN}').sync == Patient(5)
    for field, base in (("model", Model), ("sync", Sync), ("algorithm", Algorithm)):
        public = [getattr(mlless_nb, name) for name in mlless_nb.__all__]
        classes = {each.__name__ for each in public if isinstance(each, type) and issubclass(each, base)}
        assert classes - {"NumpyModel", "TorchModel"} <= set(callables(field))
    assert not {"NumpyModel", "TorchModel"} & set(callables("model"))


@given(st.dictionaries(st.sampled_from(["rank", "l2", "biases"]), st.integers(1, 9), max_size=3))
def test_a_call_as_text_and_as_table_is_the_same(named: dict[str, int]) -> None:
    kinds = {"PMF": lambda rank=20, l2=None, biases=True: (rank, l2, biases)}
    text = f"PMF({', '.join(f'{name}={value}' for name, value in named.items())})"
    assert called(table_of(text, kinds, "PMF"), kinds) == called({"kind": "PMF", **named}, kinds)
