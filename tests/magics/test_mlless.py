"""The magics in a real shell, over an engine that only records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from mlless_nb import ISP, PMF, SGD, datasets
from mlless_nb.driver.running.stop_requests import request_of
from mlless_nb.errors import CommandError, JobError, ServiceError
from mlless_nb.money.owner import Owner
from mlless_nb.tracking import RunLedger, Runs, TrackedRun

BODY = "model = PMF(rank=3)\noptimizer = SGD(learning_rate=0.5)\ndata = ratings\n"
LINE = "--minibatch 50 --workers 2"


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def notebook(shell: InteractiveShell) -> InteractiveShell:
    ratings = datasets.synthetic_ratings(30, 20, 400, rank=2, seed=0)
    shell.push({"PMF": PMF, "SGD": SGD, "ISP": ISP, "ratings": ratings})
    return shell


def train(notebook: InteractiveShell, line: str = "", body: str = BODY) -> None:
    notebook.run_cell_magic("mlless", f"{LINE} {line}", body)


class TestTrain:
    def test_returns_at_once_with_a_handle(self, notebook: InteractiveShell, stage: Any) -> None:
        train(notebook, "--budget 0.25 --epochs 3 --target 0.8 --seed 0 --name first")

        (run,) = stage.runs
        assert notebook.user_ns["first"] is run
        assert (run.job.name, run.job.workers, run.job.cap_usd, run.job.seed) == ("first", 2, 0.25, 0)
        assert (run.job.stop.epochs, run.job.stop.target) == (3, 0.8)
        assert stage.shown == [(run, False)]
        assert run.status == "running"

    def test_resume_names_the_run_to_go_on_from(self, notebook: InteractiveShell, stage: Any) -> None:
        train(notebook)
        assert stage.resumed is None
        train(notebook, "--resume first --name second")
        assert stage.resumed == "first"
        assert notebook.user_ns["second"] is stage.runs[1]

    def test_a_job_that_does_not_fit_the_run_is_told_at_its_line(self, notebook: InteractiveShell, stage: Any) -> None:
        stage.error = JobError("model.rank", 3, "4, as in run 'first'")
        with pytest.raises(UsageError, match=r"line 2 of the cell: model\.rank=3: must be 4, as in run 'first'"):
            train(notebook, "--resume first")

    def test_without_a_name_the_handle_is_run(self, notebook: InteractiveShell, stage: Any) -> None:
        train(notebook)

        assert notebook.user_ns["run"] is stage.runs[0]
        assert "model" not in notebook.user_ns

    def test_a_name_that_the_cell_does_not_use_is_told(
        self, notebook: InteractiveShell, stage: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        train(notebook, body=BODY + "note = 1\n")

        assert "not used in the cell, and not kept after it: note" in capsys.readouterr().out
        assert len(stage.runs) == 1

    @pytest.mark.parametrize(
        ("line", "body", "is_warned"),
        [
            ("--redis redis://:planted-in-line@localhost", BODY, True),
            ("", BODY + "redis = 'redis://:planted-in-cell@localhost'\n", True),
            (
                "",
                BODY + "backend = {'lithops': {'backend': 'localhost'}, 'aws': {'secret_access_key': 'planted-key'}}\n",
                True,
            ),
            ("", BODY + "redis = 'redis://:${OUR_PASSWORD}@localhost'\n", False),
            ("", BODY + "redis = url\n", False),
        ],
        ids=["line", "cell", "configuration", "named", "variable"],
    )
    def test_a_secret_that_is_written_out_is_warned_of(
        self,
        notebook: InteractiveShell,
        stage: Any,
        capsys: pytest.CaptureFixture[str],
        line: str,
        body: str,
        is_warned: bool,
    ) -> None:
        notebook.user_ns["url"] = "redis://:planted-in-variable@localhost"
        train(notebook, line, body)

        said = capsys.readouterr().out
        assert ("warning: the notebook keeps the secret that this cell writes out" in said) == is_warned
        assert "planted" not in said
        assert len(stage.runs) == 1

    def test_options_reach_the_job(self, notebook: InteractiveShell, stage: Any) -> None:
        train(
            notebook,
            "--validation none --redis redis://a --redis redis://b --memory-mb 512 --insecure --detach --name my-run",
        )

        job = stage.runs[0].job
        assert (job.validation, job.redis, job.memory_mb, job.insecure) == (None, ["redis://a", "redis://b"], 512, True)
        assert job.detach is True
        assert notebook.user_ns["my_run"] is stage.runs[0]

    def test_variables_expand_in_the_line(self, notebook: InteractiveShell, stage: Any) -> None:
        notebook.user_ns["cap"] = 0.2
        train(notebook, "--budget {cap * 2} --steps $steps".replace("$steps", "4"))

        assert stage.runs[0].job.cap_usd == 0.4

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("--wrokers 4", "--wrokers 4: not an option; is --workers meant?"),
            ("--batch-size 50", "--batch-size 50: not an option; is --minibatch meant?"),
            ("--lr 3", "--lr 3: not an option; is SGD(learning_rate=...) or Adam"),
            ("--data 3", "--data 3: not an option; write `data = ...` into the cell"),
            ("--workers four", "'four' is not an integer"),
            ("--budget much", "'much' is not a number"),
            ("--workers", "expected one argument"),
            ("--on-interrupt explode", "invalid choice"),
            ("--workers 0 --epochs 1", "line 1 of the cell: workers=0"),
            ("--name class", "must not be a keyword or builtin of Python"),
            ("--name ratings", "the notebook has a variable ratings"),
            ("--name 1st", "line 1 of the cell: name='1st'"),
        ],
    )
    def test_wrong_options_are_one_line(self, notebook: InteractiveShell, stage: Any, line: str, says: str) -> None:
        with pytest.raises(UsageError) as caught:
            notebook.run_cell_magic("mlless", f"--minibatch 50 {line}", BODY)

        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not stage.runs

    def test_a_syntax_error_starts_nothing(self, notebook: InteractiveShell, stage: Any) -> None:
        with pytest.raises(UsageError, match="line 3 of the cell: "):
            train(notebook, body="model = PMF(rank=3)\noptimizer = = 1\n")
        assert not stage.runs

    def test_an_error_of_the_engine_points_at_the_line(self, notebook: InteractiveShell, stage: Any) -> None:
        stage.error = JobError("sync", ISP(0.7), "another")
        with pytest.raises(UsageError, match="line 5 of the cell: sync="):
            train(notebook, body=BODY + "sync = ISP(0.7)\n")
        stage.error = ServiceError("Redis does not answer")
        with pytest.raises(UsageError, match=r"^Redis does not answer$"):
            train(notebook)
        assert "run" not in notebook.user_ns

    def test_a_traceback_of_the_users_own_code_shows_the_cell(self, notebook: InteractiveShell, capsys: Any) -> None:
        notebook.user_ns["load"] = lambda: {}["nothing"]

        result = notebook.run_cell(f"%%mlless {LINE}\nmodel = PMF(rank=3)\ndata = load()\n")

        assert isinstance(result.error_in_exec, KeyError)
        assert "data = load()" in capsys.readouterr().out


class TestSecondRun:
    def test_of_a_live_name_is_refused_with_its_cost(self, notebook: InteractiveShell, stage: Any) -> None:
        train(notebook, "--name first")
        with pytest.raises(
            UsageError, match=r"--name first: a run of this name is live \(\$0.01250 so far, at step 7\)"
        ):
            train(notebook, "--name first")
        train(notebook, "--name second")
        assert [run.name for run in stage.runs] == ["first", "second"]

    def test_is_started_by_force(self, notebook: InteractiveShell, stage: Any) -> None:
        train(notebook)
        train(notebook, "--force")
        train(notebook, "--force")
        assert [run.name for run in stage.runs] == ["run", "run-2", "run-3"]
        assert notebook.user_ns["run"] is stage.runs[0]
        assert notebook.user_ns["run_3"] is stage.runs[2]

    def test_is_fine_once_the_first_has_ended(self, notebook: InteractiveShell, stage: Any) -> None:
        train(notebook)
        stage.runs[0].end()
        train(notebook)
        assert len(stage.runs) == 2


class TestWait:
    def test_blocks_by_itself_where_nobody_can_click(self, notebook: InteractiveShell, stage: Any) -> None:
        stage.frontend = "batch"
        train(notebook)
        assert stage.shown == [(stage.runs[0], True)]
        assert stage.runs[0].status == "finished"

    @pytest.mark.parametrize(("kind", "blocks"), [("live", False), ("voila", False), ("none", False), ("batch", True)])
    def test_front_ends(self, notebook: InteractiveShell, stage: Any, kind: str, blocks: bool) -> None:
        stage.frontend = kind
        train(notebook)
        assert stage.shown == [(stage.runs[0], blocks)]

    def test_a_failure_fails_the_cell(self, notebook: InteractiveShell, stage: Any) -> None:
        stage.prepare = lambda run: run.waits.append(lambda: run.end("failed", "worker 1 was lost at step 9"))
        with pytest.raises(UsageError, match="run: worker 1 was lost at step 9"):
            train(notebook, "--wait")
        assert notebook.user_ns["run"].status == "failed"

    def test_interrupt_stops_the_run(self, notebook: InteractiveShell, stage: Any, capsys: Any) -> None:
        stage.prepare = lambda run: run.waits.append(interrupt)

        train(notebook, "--wait")

        run = stage.runs[0]
        assert (run.commands, run.status) == ([("stop", None)], "stopped")
        said = capsys.readouterr().out.splitlines()
        assert "interrupted at step 7, $0.01250 so far" in said[0]
        assert "stopped after step 7" in said[1]

    def test_the_last_line_says_what_the_model_is_worth(
        self, notebook: InteractiveShell, stage: Any, capsys: Any
    ) -> None:
        told = {"validation_loss": 0.66, "best_loss": 0.65, "best_step": 5, "best_epoch": 0.5, "metric": "log loss"}

        def worthless(run: Any) -> None:
            run.telemetry.update(baseline_loss=0.55, **told)
            run.waits.append(interrupt)

        stage.prepare = worthless
        train(notebook, "--wait")
        last = capsys.readouterr().out.splitlines()[-1]
        assert "stopped after step 7, best 0.6500 at epoch 0.5 (step 5)" in last
        assert last.endswith("its model is kept; no better than predicting the base rate (0.55).")
        notebook.run_line_magic("mlless", "status")
        assert "best 0.6500 at epoch 0.5 (step 5)" in (line := capsys.readouterr().out)
        assert "no better than predicting the base rate (0.55)" in line

    def test_second_interrupt_returns_at_once(self, notebook: InteractiveShell, stage: Any, capsys: Any) -> None:
        stage.prepare = lambda run: run.waits.extend([interrupt, lambda: None, interrupt])

        train(notebook, "--wait")

        assert stage.runs[0].commands == [("stop", None)]
        assert stage.runs[0].status == "running"
        assert "still run, $0.01250 so far" in capsys.readouterr().out

    def test_interrupt_may_detach(self, notebook: InteractiveShell, stage: Any, capsys: Any) -> None:
        stage.prepare = lambda run: run.waits.append(interrupt)

        train(notebook, "--wait --on-interrupt detach")

        assert stage.runs[0].commands == []
        assert "%mlless stop run ends it" in capsys.readouterr().out

    def test_wait_command_detaches_on_interrupt(self, notebook: InteractiveShell, stage: Any, capsys: Any) -> None:
        (run,) = stage.add("first")
        run.waits.append(interrupt)

        notebook.run_line_magic("mlless", "wait")

        assert (run.commands, run.status) == ([], "running")
        assert "first: goes on, $0.01250 so far" in capsys.readouterr().out

    def test_wait_command_gives_up_after_its_seconds(self, notebook: InteractiveShell, stage: Any, capsys: Any) -> None:
        (run,) = stage.add("first")
        notebook.run_line_magic("mlless", "wait first 0")
        assert run.status == "running"
        notebook.run_line_magic("mlless", "wait first")
        assert run.status == "finished"
        assert "10 epochs are over" in capsys.readouterr().out


class TestVerbs:
    def test_commands_reach_the_run(self, notebook: InteractiveShell, stage: Any, capsys: Any) -> None:
        (run,) = stage.add("first")
        for line in ("stop", "scale_in", "scale_in 2 first", "budget $0.40", "tune on", "tune first off"):
            notebook.run_line_magic("mlless", line.replace("$0", "0"))

        assert run.commands[:4] == [("stop", None), ("scale_in", 1), ("scale_in", 2), ("budget", 0.4)]
        assert run.commands[4:] == [("tune", True), ("tune", False)]
        said = capsys.readouterr().out.splitlines()
        assert len(said) == 6
        assert all(line.startswith("first: asked ") for line in said)

    def test_a_run_of_an_earlier_kernel_is_to_be_attached_to(
        self, notebook: InteractiveShell, stage: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.add("first")
        monkeypatch.setattr("mlless_nb.driver.listing.known", lambda: [TrackedRun("a", "films", 1.0)])
        with pytest.raises(UsageError, match="of an earlier kernel or another notebook: %mlless attach films first"):
            notebook.run_line_magic("mlless", "report films")

    def test_a_run_of_another_process_is_asked_to_stop(
        self, notebook: InteractiveShell, stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
    ) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        stage.add("first")[0].end()  # an ended one of that name is not meant
        RunLedger().begin(TrackedRun("a", "first", 1.0), Owner.this())
        request_of("a").parent.mkdir(parents=True)
        notebook.run_line_magic("mlless", "stop first")
        assert capsys.readouterr().out == "first: asked to stop, in another process\n"
        assert request_of("a").exists()

    def test_names_may_be_quoted(self, notebook: InteractiveShell, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        (run,) = stage.add("first")
        notebook.run_line_magic("mlless", 'stop "first"')
        assert run.commands == [("stop", None)]
        asked: list[Any] = []
        monkeypatch.setattr("mlless_nb.runs", lambda last, **options: asked.append(options) or Runs([]))
        notebook.run_line_magic("mlless", "runs --project ''")
        assert asked == [{"project": ""}]  # the runs of no project

    def test_the_only_live_run_is_meant(self, notebook: InteractiveShell, stage: Any) -> None:
        first, second, third = stage.add("first", "second", "third")
        first.end()
        with pytest.raises(UsageError, match="which one\\? live are second, third"):
            notebook.run_line_magic("mlless", "stop")
        third.end()
        notebook.run_line_magic("mlless", "stop")
        notebook.run_line_magic("mlless", f"stop {second.id}")
        assert second.commands == [("stop", None), ("stop", None)]

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("stopp", "must be one of status, stop, .*; is stop meant"),
            ("stop nobody", "no run is called nobody; there is first"),
            ("stop first", r"first has ended \(finished\)"),
            ("tune", "must say on or off"),
            ("tune on off", "must say on or off"),
            ("scale_in 1 2", "must be one whole number of workers"),
            ("scale_in 1.5", "must be a whole number of workers"),
            ("budget 1 2", "must be one amount"),
            ("budget a b", "a b is not one run"),
            ("wait 1 2", "must be one number of seconds"),
            ("runs all", "must be a number of runs"),
            ("runs \u00b2", "must be a number of runs"),
            ("spend all", "must be without a name"),
            ("compare first", "%mlless compare: must name two runs or more, e.g. %mlless compare first second"),
            ("forget", "must name runs"),
            ("runs --porject x", "must be one of --project, --sweep"),
            ('stop "first', '%mlless stop "first: No closing quotation'),
        ],
    )
    def test_mistakes_are_one_line(self, notebook: InteractiveShell, stage: Any, line: str, says: str) -> None:
        stage.add("first")[0].end()
        with pytest.raises(UsageError, match=says) as caught:
            notebook.run_line_magic("mlless", line)
        assert "\n" not in str(caught.value)

    def test_a_refused_command_is_one_line(
        self, notebook: InteractiveShell, stage: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (run,) = stage.add("first")

        def refuse(n: int) -> None:
            raise CommandError("the last worker cannot be removed")

        monkeypatch.setattr(run, "scale_in", refuse)
        with pytest.raises(UsageError, match=r"^the last worker cannot be removed$"):
            notebook.run_line_magic("mlless", "scale_in 1")

    def test_status(self, notebook: InteractiveShell, stage: Any, capsys: Any) -> None:
        notebook.run_line_magic("mlless", "")
        assert "no run yet" in capsys.readouterr().out
        first, _ = stage.add("first", "second", pending=("removing 1 worker ...",))
        first.end()
        notebook.run_line_magic("mlless", "status")
        said = capsys.readouterr().out.splitlines()
        assert len(said) == 1
        assert said[0].startswith("second: running")
        assert said[0].endswith("removing 1 worker ...")
        notebook.run_line_magic("mlless", "budget second")
        assert capsys.readouterr().out.startswith("second: no cap")

    def test_attach_shows_a_run_and_keeps_its_handle(self, notebook: InteractiveShell) -> None:
        notebook.run_line_magic("mlless", "attach far-away")
        assert notebook.user_ns["far_away"].commands == [("dashboard", None)]
        with pytest.raises(UsageError, match="%mlless attach: must name one run"):
            notebook.run_line_magic("mlless", "attach")

    def test_dashboard_shows_a_run_again(self, notebook: InteractiveShell, stage: Any) -> None:
        first, second = stage.add("first")[0], stage.add("second")[0]
        notebook.run_line_magic("mlless", "dashboard first")
        assert (first.commands, second.commands) == ([("dashboard", None)], [])

    def test_report_shows_a_bundle_that_stays(self, notebook: InteractiveShell, stage: Any) -> None:
        stage.add("first")[0].end()
        with capture_output() as captured:
            notebook.run_line_magic("mlless", "report")
        assert captured.outputs[0].data == {"image/svg+xml": "<svg/>", "text/plain": "report of first"}
