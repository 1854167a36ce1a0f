"""Jobs on files in the object storage: functions prepare them, within the budget, and nothing else stays there."""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.jobs import finish
from servers import S3_BACKEND, S3_BUCKET

from mlless_nb import (
    Adam,
    BudgetError,
    DataError,
    JobError,
    LogisticRegression,
    NumpyModel,
    ScaleIn,
    Stop,
    StoredFiles,
    TrainingJob,
    advise,
    datasets,
    train,
)
from mlless_nb.adviser import dry_run
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.preparation.run import Preparation

SCAN = Preparation.scan

RNG = np.random.default_rng(4)


def svm_lines(n: int) -> list[str]:
    found = []
    for _ in range(n):
        ids = np.sort(RNG.choice(30, 5, replace=False)) + 1
        label = "+1" if (ids < 15).sum() > 2 else "-1"
        found.append(" ".join([label, *(f"{k}:{RNG.normal():.3f}" for k in ids)]))
    return found


LINES = svm_lines(1500)


@pytest.fixture
def bucket() -> Iterator[Path]:
    """The folder of a bucket of the local object storage, empty."""
    from lithops.constants import LITHOPS_TEMP_DIR

    folder = Path(LITHOPS_TEMP_DIR) / f"bucket-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    return folder


def stored(bucket: Path, lines: list[str], **changes: Any) -> StoredFiles:
    (bucket / "rows").mkdir(exist_ok=True)
    half = len(lines) // 3
    (bucket / "rows" / "part-0").write_text("\n".join(lines[:half]) + "\n\n")
    (bucket / "rows" / "part-1").write_bytes("\r\n".join(lines[half:]).encode())
    fields: dict[str, Any] = {"prefix": f"{bucket.name}/rows/", "format": "libsvm", "functions": 3}
    return StoredFiles(**(fields | changes))


def job(data: Any, **changes: Any) -> TrainingJob:
    fields: dict[str, Any] = {
        "model": LogisticRegression(),
        "optimizer": Adam(learning_rate=0.05),
        "data": data,
        "workers": 2,
        "stop": Stop(steps=12),
        "scale_in": ScaleIn.off(),
        "eval_every": 4,
    }
    return TrainingJob(**(fields | changes))


def left_in_storage() -> list[str]:
    """Everything in the local object storage that is not a user's file."""
    from lithops.constants import LITHOPS_TEMP_DIR

    found = []
    for folder, _, names in os.walk(LITHOPS_TEMP_DIR):
        found += [os.path.join(folder, name) for name in names if "/mlless-nb/" in f"{folder}/"]
    return [path for path in found if "/datasets/" not in path]


def test_a_dry_run_estimates_from_the_first_rows_and_leaves_nothing(bucket: Path) -> None:
    found = dry_run(job(stored(bucket, LINES), stop=Stop(epochs=10)))
    assert found.lines[0].startswith(f"dry run, nothing was started: logistic regression · {bucket.name}/rows/ · BSP")
    assert found.lines[1].startswith("2 files of 0.1 MB, about 1,500 rows by the first 500; functions count them when")
    assert re.match(r"2 workers, \d+ rows in a minibatch, priced as ", found.lines[2])
    assert found.lines[3].startswith("about $")
    assert found.job.data == stored(bucket, LINES)
    assert found.advice is not None
    assert not left_in_storage()
    too_many = dry_run(job(stored(bucket, LINES), minibatch=1000))
    assert (too_many.estimate, too_many.advice) == (None, None)
    assert too_many.lines[-1].startswith("no figures: minibatch=1000: ")


def test_advice_for_stored_files_is_measured_on_their_first_rows(bucket: Path) -> None:
    advice = advise(job(stored(bucket, LINES), stop=Stop(epochs=10)))
    assert advice.sizes.epochs == 10
    assert "this machine" in {option.place for option in advice.possible}
    open_target = advise(job(stored(bucket, LINES), stop=Stop(target=1e-6)))
    assert "1 epoch (the target is left open)" in repr(open_target)
    with pytest.raises(JobError, match=r"validation=.*rows that are here, as the data are"):
        advise(job(datasets.synthetic_clicks(200, n_features=20, seed=0), validation=stored(bucket, LINES)))
    assert not left_in_storage()


@pytest.mark.long
@pytest.mark.parametrize("execution", ["workers", "map-reduce"])
def test_the_model_is_that_of_local_data_bit_for_bit(bucket: Path, tmp_path: Path, execution: str) -> None:
    path = tmp_path / "whole.svm"
    path.write_text("\n".join(LINES) + "\n")
    here = finish(job(datasets.libsvm(path), execution=execution, partition="rows"))
    there = finish(job(stored(bucket, LINES), execution=execution, budget=0.5))
    assert there.status == here.status == "finished", (there.reason, here.reason)
    for name, array in here.model.params.items():
        np.testing.assert_array_equal(there.model.params[name], array)
    np.testing.assert_array_equal(there.history["validation_loss"], here.history["validation_loss"])
    assert there.cost.preparation > 0
    assert "preparation" not in here.cost
    assert there.cost.total == pytest.approx(sum(there.cost.values()))
    assert "Everything is shut down" in there.telemetry.state.events[-1].text
    assert not left_in_storage()

    again = finish(job(stored(bucket, LINES, functions=1), execution=execution))
    assert again.cost.preparation < there.cost.preparation  # only the first pass: the packed data is used again
    np.testing.assert_array_equal(again.model.params["weights"], there.model.params["weights"])
    assert not left_in_storage()


@pytest.mark.long
def test_files_on_s3(s3: Any, tmp_path: Path) -> None:
    half = len(LINES) // 2
    s3.create_bucket(Bucket="other")
    s3.put_object(Bucket="other", Key="day/part-0", Body="\n".join(LINES[:half]).encode())
    s3.put_object(Bucket="other", Key="day/part-1", Body="\n".join(LINES[half:]).encode())
    before = {entry["Key"] for entry in s3.list_objects_v2(Bucket=S3_BUCKET).get("Contents", [])}
    run = finish(job(StoredFiles("s3://other/day/", "libsvm", 2), backend=S3_BACKEND, budget=0.5))
    assert run.status == "finished", run.reason
    after = {entry["Key"] for entry in s3.list_objects_v2(Bucket=S3_BUCKET)["Contents"]} - before
    assert after
    assert all(key.startswith("mlless-nb/datasets/") for key in after), after
    path = tmp_path / "whole.svm"
    path.write_text("\n".join(LINES) + "\n")
    np.testing.assert_array_equal(
        run.model.params["weights"], finish(job(datasets.libsvm(path))).model.params["weights"]
    )


@pytest.mark.long
def test_separate_validation_files_and_a_second_run_from_the_first(bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_text("\n".join(LINES[:1000]) + "\n")
    (tmp_path / "test.svm").write_text("\n".join(LINES[1000:]) + "\n")
    for name in ("train", "test"):
        (bucket / name).mkdir()
        (bucket / name / "part-0").write_bytes((tmp_path / f"{name}.svm").read_bytes())
    pair = [datasets.libsvm(tmp_path / f"{name}.svm", n_features=30) for name in ("train", "test")]
    files = [StoredFiles(f"{bucket.name}/{name}/", "libsvm", 2, n_features=30) for name in ("train", "test")]
    here, there = (finish(job(data, validation=validation)) for data, validation in (pair, files))
    np.testing.assert_array_equal(there.model.params["weights"], here.model.params["weights"])
    np.testing.assert_array_equal(there.history["validation_loss"], here.history["validation_loss"])
    assert not left_in_storage()

    more, more_here = there.resume(stop=Stop(steps=5)), here.resume(stop=Stop(steps=5))
    more.wait(180)
    more_here.wait(180)
    np.testing.assert_array_equal(more.model.params["weights"], more_here.model.params["weights"])
    with pytest.raises(JobError, match="of shape"):
        train(job(stored(bucket, LINES, n_features=40)), resume=there)


@pytest.mark.long
def test_a_stop_while_functions_prepare_the_data(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop comes when the first function of the second stage is invoked."""
    invoke = LithopsLauncher.invoke
    preparing, go_on = threading.Event(), threading.Event()

    def slow(self: LithopsLauncher, payloads: list[str]) -> None:
        if '"stage":"scatter"' in payloads[0]:
            preparing.set()
            assert go_on.wait(60)
        invoke(self, payloads)

    monkeypatch.setattr(LithopsLauncher, "invoke", slow)
    run = train(job(stored(bucket, LINES), seed=9))
    assert preparing.wait(60)
    run.stop()
    go_on.set()
    run.wait(60)
    assert run.status == "stopped"
    assert run.cost.preparation > 0
    assert "workers" not in run.cost or not run.cost.workers
    assert not left_in_storage()


@pytest.mark.parametrize(
    ("format", "local"),
    [
        pytest.param("csv", lambda path: datasets.csv(path, 0), marks=pytest.mark.long),
        pytest.param("criteo", datasets.criteo, marks=pytest.mark.long),
    ],
)
def test_jobs_on_other_formats(bucket: Path, tmp_path: Path, format: str, local: Any) -> None:
    separator, rows = {"csv": ",", "criteo": "\t"}[format], []
    for _ in range(900):
        numbers = [str(RNG.integers(-3, 60)) if RNG.random() < 0.9 else "" for _ in range(13)]
        words = [f"{RNG.integers(500):x}" for _ in range(26)] if format == "criteo" else []
        rows.append(separator.join([str(RNG.integers(2)), *numbers, *words]))
    path = tmp_path / "whole"
    path.write_text("\n".join(rows) + "\n")
    (bucket / "rows").mkdir()
    for number in range(3):
        (bucket / "rows" / f"part-{number}").write_text("\n".join(rows[300 * number : 300 * (number + 1)]))
    more = {"label": 0} if format == "csv" else {}
    there = finish(job(StoredFiles(f"{bucket.name}/rows/", format, 3, **more), optimizer=None))
    here = finish(job(local(path), optimizer=None))
    np.testing.assert_array_equal(there.model.params["weights"], here.model.params["weights"])
    assert there.status == "finished", there.reason


def drop_first(monkeypatch: pytest.MonkeyPatch, stage: str, n_times: int) -> Callable[[], int]:
    """Lose the first function of ``stage``, ``n_times``; returns how often that was done so far."""
    invoke, n_lost = LithopsLauncher.invoke, 0

    def lossy(self: LithopsLauncher, payloads: list[str]) -> None:
        nonlocal n_lost
        if n_lost < n_times and f'"stage":"{stage}"' in payloads[0]:
            n_lost += 1
            payloads = [payloads[0].replace("PartCall", "Nothing"), *payloads[1:]]
        invoke(self, payloads)

    monkeypatch.setattr(LithopsLauncher, "invoke", lossy)
    return lambda: n_lost


@pytest.mark.long
@pytest.mark.parametrize("stage", ["scan", "cut"])
def test_functions_that_are_lost_are_invoked_again(bucket: Path, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n_lost = drop_first(monkeypatch, stage, 1)
    run = finish(job(stored(bucket, LINES), seed=len(stage), budget=0.5))
    assert n_lost() == 1
    assert run.status == "finished", run.reason
    assert not left_in_storage()


@pytest.mark.long
def test_functions_that_are_lost_twice_end_the_run(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_first(monkeypatch, "scatter", 2)
    run = finish(job(stored(bucket, LINES), seed=2))
    assert run.status == "failed"
    assert "of the preparation's 'scatter' was lost or failed 2 times: no report" in run.reason
    assert run.cost.preparation > 0
    assert not left_in_storage()


class Undefined:
    """A model whose loss is no number."""

    def parameters(self, n_features: int, seed: int) -> dict[str, Any]:
        return {"w": np.zeros(n_features)}

    def loss(self, params: dict[str, Any], X: Any, y: Any) -> float:
        return float("nan")

    def gradients(self, params: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
        return {"w": np.zeros_like(params["w"])}


def test_a_written_model_is_tried_on_the_first_rows_before_a_function_is_invoked(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoked: list[Any] = []
    monkeypatch.setattr(LithopsLauncher, "invoke", lambda self, payloads: invoked.append(payloads))
    with pytest.raises(JobError, match=r"model='Undefined': .* whose loss is a finite number"):
        train(job(stored(bucket, LINES), model=NumpyModel(Undefined), budget=0.5))
    assert not invoked
    assert not left_in_storage()


def test_a_budget_that_does_not_pay_for_the_functions_is_refused(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoked: list[Any] = []
    monkeypatch.setattr(LithopsLauncher, "invoke", lambda self, payloads: invoked.append(payloads))
    with pytest.raises(BudgetError, match=r"budget=0\.0002: must be at least .* prepare the data with 3 functions"):
        train(job(stored(bucket, LINES), budget=0.0002))
    assert not invoked
    assert not left_in_storage()


def test_a_budget_that_is_used_up_meanwhile_ends_the_functions(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions' first grant does not pay for a start, and all else of the budget is kept."""
    with monkeypatch.context() as patch:
        patch.setattr(Preparation, "_check_budget", lambda self, n: None)
        with pytest.raises(
            BudgetError, match=r"budget=0\.0002: must be more: functions that prepare the data have used"
        ):
            train(job(stored(bucket, LINES), budget=0.0002))

        patch.setattr(Preparation, "_grant_nusd", lambda self, n: self._rates.function_nusd(0.01))
        patch.setattr(Preparation, "scan", scan_with_all_kept)
        with pytest.raises(BudgetError, match=r"must be more: functions that prepare the data have used"):
            train(job(stored(bucket, LINES), budget=0.01))
    assert not left_in_storage()


def scan_with_all_kept(self: Preparation, spec: StoredFiles) -> Any:
    grants = spec.functions * self._grant_nusd(spec.functions)
    cap, reserved = self._log.money()
    assert cap is not None
    self._reserve(cap - reserved - grants)
    return SCAN(self, spec)


def test_a_run_is_capped_when_its_data_uses_the_budget_up(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_all(self: Preparation, nusd: int) -> None:
        cap, reserved = self._log.money()
        assert cap is not None
        self._reserve(cap - reserved)

    monkeypatch.setattr(Preparation, "keep", keep_all)
    run = finish(job(stored(bucket, LINES), budget=0.05, seed=13))
    assert run.status == "capped"
    assert "functions that prepare the data have used" in run.reason
    assert 0 < run.cost.preparation <= run.cost.total <= 0.05
    assert not left_in_storage()


def test_bad_rows_are_one_line(bucket: Path) -> None:
    lines = list(LINES)
    lines[1200] = "1 2:x"
    name = bucket.name
    with pytest.raises(DataError, match=rf"{name}/rows/part-1, line 701='1 2:x.*': must be .*; reading cost \$0\.00"):
        train(job(stored(bucket, lines)))
    (bucket / "rows" / "part-1").write_text("")
    with pytest.raises(DataError, match=rf"{name}/rows/part-1='an empty object': must be a file with at least one row"):
        train(job(StoredFiles(f"{name}/rows/", "libsvm", 2)))
    assert not left_in_storage()


def test_what_does_not_suit_the_rows_is_refused_once_they_are_counted(bucket: Path) -> None:
    with pytest.raises(ValueError, match="workers=9: must be at most"):
        train(job(stored(bucket, LINES), workers=9, minibatch=1000))


def test_what_needs_rows_here_says_so() -> None:
    files = StoredFiles("bucket/rows/", "libsvm")
    with pytest.raises(DataError, match="must be rows that are here"):
        _ = job(files).n_train


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"prefix": "bucket", "format": "libsvm"}, "prefix='bucket': must be 'bucket/prefix'"),
        ({"prefix": "bucket/a", "format": "json"}, "format='json': must be one of 'libsvm', 'criteo', 'csv'"),
        ({"prefix": "bucket/a", "format": "csv", "functions": 0}, "functions=0: must be an integer from 1 to 1000"),
        ({"prefix": "bucket/a", "format": "libsvm", "label": "y"}, "label='y': must be left out"),
        ({"prefix": "bucket/a", "format": "csv", "n_features": 3}, "n_features=3: must be left out"),
        ({"prefix": "bucket/a", "format": "csv", "label": 1.5}, "label=1.5: must be the name of a column"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        StoredFiles(**arguments)
