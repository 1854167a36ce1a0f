"""The widgets' modules in a page that has nothing of Jupyter, as VS Code and others load them: anywidget's contract.

What these programs put around a module is theirs, and not here.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "widgets"))

from fake_run import FakeRun
from fake_sweep import FakeSweep

from mlless_nb.search import uniform
from mlless_nb.widgets import Dashboard, leaderboard
from mlless_nb.widgets.live_leaderboard import Leaderboard

pytestmark = [pytest.mark.browser, pytest.mark.long]

#: Loads a module from its text, with a model that has ``values``; what it sends is in ``window.sent``.
LOAD = """async ({ esm, css, values, snapshot }) => {
    const bytes = Uint8Array.from(atob(snapshot), (letter) => letter.charCodeAt(0));
    const held = { ...values, snapshot: new DataView(bytes.buffer) };
    const listeners = new Map();
    window.sent = [];
    window.tell = (name, ...of) => (listeners.get(name) ?? []).forEach((listener) => listener(...of));
    window.change = (name, value) => { held[name] = value; window.tell(`change:${name}`); };
    const model = {
        get: (name) => held[name], set() {}, save_changes() {}, off() {},
        send: (message, callbacks) => { window.sent.push(message); window.callbacks = callbacks; },
        on: (name, listener) => listeners.set(name, [...(listeners.get(name) ?? []), listener]),
    };
    document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
    const made = (await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })))).default;
    const widget = typeof made === "function" ? await made() : made;
    await widget.initialize?.({ model });
    await widget.render({ model, el: document.querySelector("main") });
}"""


@pytest.fixture
def page(browser: Any) -> Any:
    """An empty page in VS Code's dark theme; the module must raise no error in it."""
    errors: list[str] = []
    opened = browser.new_page()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.set_content("<!doctype html><body class='vscode-dark'><main></main></body>")
    assert opened.evaluate("[typeof window.jupyterapp, typeof window.require, typeof window.requirejs]") == (
        ["undefined"] * 3
    )
    yield opened
    opened.close()
    assert errors == []


def load(page: Any, widget: Any) -> None:
    """Show ``widget``, as its traits are now."""
    names = ("status", "earlier", "table", "chart", "is_stopping", "is_over", "if_restarted")
    values = {name: getattr(widget, name) for name in names if widget.has_trait(name)}
    snapshot = base64.b64encode(getattr(widget, "snapshot", b"")).decode()
    css = (Path(leaderboard.__file__).parent / f"{type(widget).__name__.lower()}.css").read_text("utf-8")
    page.evaluate(LOAD, {"esm": str(widget._esm), "css": css, "values": values, "snapshot": snapshot})


def test_the_dashboard_is_drawn_follows_the_theme_and_sends_commands(page: Any) -> None:
    run = FakeRun()
    run.advance(200)
    load(page, Dashboard(run))
    page.wait_for_function("() => Number(document.querySelector('.mlless')?.dataset.rows) === 200")
    assert page.locator(".mlless").evaluate("(root) => root.classList.contains('dark')")
    assert page.locator(".mlless-plot path").count() > 3
    assert "Running" in page.locator(".mlless-head").inner_text()
    page.get_by_role("button", name="Stop", exact=True).click()
    assert {"hello", "stop"} == set(page.evaluate("window.sent.map((message) => message.cmd)"))
    ended = run.telemetry.state
    page.evaluate("() => window.tell('comm_live_update')")
    page.wait_for_function("() => document.querySelector('.mlless-head').textContent.includes('Kernel restarted')")
    assert ended.is_live


#: The kernel has read the newest message.
IS_READ = "() => window.callbacks.iopub.status({ content: { execution_state: 'idle' } })"
SENT = "window.sent.map((message) => message.cmd)"


def test_a_restart_that_the_page_is_not_told_of_is_noticed(page: Any) -> None:
    """As by a program that calls Jupyter's interface: the new kernel reads the messages and does not answer them."""
    load(page, Dashboard(FakeRun()))
    page.evaluate("() => window.tell('msg:custom', { kind: 'pong' }, [])")
    page.evaluate(IS_READ)
    page.wait_for_function(f"() => {SENT}.includes('ping')")  # as nothing comes any more
    assert "Kernel restarted" not in page.locator(".mlless-head").inner_text()
    page.evaluate(IS_READ)
    page.wait_for_function("() => document.querySelector('.mlless-head').textContent.includes('Kernel restarted')")
    assert not page.get_by_role("button", name="Stop", exact=True).is_visible()


def test_after_a_restart_an_ended_run_is_not_continued_by_a_button(page: Any) -> None:
    run = FakeRun()
    run.job = object()
    run.advance(50)
    run.telemetry.update(status="stopped", reason="stopped by you")
    load(page, Dashboard(run))
    go_on = page.get_by_role("button", name="Continue", exact=True)
    go_on.click()
    page.evaluate(IS_READ)
    go_on.wait_for(state="hidden")
    assert page.locator(".mlless-notice").inner_text() == "The kernel was restarted."
    assert "Stopped" in page.locator(".mlless-head").inner_text()


#: Makes the next draw of the charts seem to take an hour.
SLOW_DRAW = """() => {
    const root = document.querySelector(".mlless");
    const now = performance.now.bind(performance);
    let passed = 0;
    performance.now = () => now() + passed;
    window.wasSlow = false;
    const get = () => {
        delete root.clientWidth;
        passed = 3.6e6;
        window.wasSlow = true;
        return root.clientWidth;
    };
    Object.defineProperty(root, "clientWidth", { configurable: true, get });
    window.tell("change:snapshot");
}"""
#: Twenty more rows arrive.
MORE_ROWS = """() => {
    const rows = new DataView(new Float32Array(20 * 8).fill(1).buffer);
    window.tell("msg:custom", { kind: "rows", first: 200, status: {} }, [rows]);
}"""


def test_a_draw_that_took_long_once_holds_up_neither_answers_nor_curves(page: Any) -> None:
    """As the first one may, while the page around it is loading."""
    run = FakeRun()
    run.advance(200)
    widget = Dashboard(run)
    load(page, widget)
    page.wait_for_function("() => Number(document.querySelector('.mlless')?.dataset.rows) === 200")
    page.evaluate(SLOW_DRAW)
    page.wait_for_function("() => window.wasSlow")
    page.evaluate("(status) => window.change('status', status)", {**widget.status, "word": "Stopping"})
    page.wait_for_function(
        "() => document.querySelector('.mlless-head').textContent.includes('Stopping')", timeout=20_000
    )
    page.evaluate(SLOW_DRAW)
    page.wait_for_function("() => window.wasSlow")
    page.evaluate(MORE_ROWS)
    page.wait_for_function("() => Number(document.querySelector('.mlless').dataset.rows) === 220", timeout=20_000)


def tell(page: Any, widget: Dashboard, spent_text: str, **changes: Any) -> None:
    """Let the page draw another status; ``spent_text`` is what it shows then."""
    page.evaluate("(status) => window.change('status', status)", {**widget.status, "spent_text": spent_text, **changes})
    page.wait_for_function(
        "(text) => document.querySelector('[data-text=spent_text]').textContent === text", arg=spent_text
    )


def answer(page: Any, ok: bool, text: str = "") -> None:
    """Answer the newest command."""
    page.evaluate(
        "([ok, text]) => window.tell('msg:custom', { kind: 'ack', id: window.sent.at(-1).id, ok, text }, [])",
        [ok, text],
    )


def test_a_budget_that_is_typed_stays_until_it_is_accepted(page: Any) -> None:
    run = FakeRun(budget_usd=0.1)
    run.advance(200)
    widget = Dashboard(run)
    load(page, widget)
    page.wait_for_function("() => Number(document.querySelector('.mlless')?.dataset.rows) === 200")
    field, apply = page.get_by_label("Budget $"), page.get_by_role("button", name="Apply")
    assert field.input_value() == "0.10"
    field.fill("0.80")
    apply.focus()  # by Tab; and it takes a moment to be pressed
    tell(page, widget, "$0.0171")
    tell(page, widget, "$0.0172", budget_value="0.50")  # by somebody else
    assert field.input_value() == "0.80"
    page.keyboard.press("Space")
    page.wait_for_function("() => window.sent.at(-1).cmd === 'budget'")
    assert page.evaluate("window.sent.at(-1).value") == "0.80"
    answer(page, False, "must be at least $0.90")
    tell(page, widget, "$0.0173", budget_value="0.50")
    assert field.input_value() == "0.80"  # with its reason beside it
    assert "at least $0.90" in page.locator(".mlless-notice").inner_text()

    field.fill("0.95")
    apply.click()
    answer(page, True)
    tell(page, widget, "$0.0174", budget_value="0.50")
    tell(page, widget, "$0.0175", budget_value="0.50", pending=["setting the budget to $0.95 ..."])
    assert field.input_value() == "0.95"
    tell(page, widget, "$0.0176", budget_value="0.95")
    tell(page, widget, "$0.0177", budget_value="0.30")
    assert field.input_value() == "0.30"  # again the present one


def test_a_page_that_is_loaded_after_a_refusal_has_the_present_budget(page: Any) -> None:
    run = FakeRun(budget_usd=0.1)
    run.advance(3)
    run.telemetry.update(refusal="no worker would stay")
    load(page, Dashboard(run))
    page.wait_for_function("() => Number(document.querySelector('.mlless')?.dataset.rows) === 3")
    assert page.get_by_label("Budget $").input_value() == "0.10"


def test_one_worker_that_is_left_is_told_as_one(page: Any) -> None:
    run = FakeRun(workers=2, removes_at=(100,))
    run.advance(200)
    load(page, Dashboard(run))
    page.wait_for_function("() => Number(document.querySelector('.mlless')?.dataset.rows) === 200")
    chart = page.locator(".mlless-plot > svg[role=img]").nth(1)
    assert chart.get_attribute("aria-label") == "1 worker of 2, removed at 1 step"
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.5 * box["height"])
    tip = page.locator(".mlless-tip").nth(1)
    tip.wait_for()
    assert tip.inner_text().splitlines()[-1] == "1 worker"


def test_the_leaderboard_is_drawn_and_its_stop_is_asked_for_until_it_is_confirmed(page: Any) -> None:
    class Sweep:
        """One that has not begun."""

        name, status, sampler, n_trials, metric, spent, budget, is_live = (
            "s",
            "running",
            "tpe",
            3,
            "RMSE",
            0.0,
            1.0,
            True,
        )
        trials: tuple[Any, ...] = ()
        ranked: tuple[Any, ...] = ()
        best_so_far = None
        spaces: ClassVar = {"rate": uniform(0, 1)}

    load(page, Leaderboard(Sweep()))
    assert page.locator(".mlless-labels span").all_inner_texts() == ["rate", "best RMSE"]
    stop = page.get_by_role("button", name="Stop the sweep")
    assert "0 of 3 trials" in page.locator(".mlless-sweep").inner_text()
    stop.click()
    page.wait_for_function("() => window.sent.length > 1")
    assert page.locator(".mlless-sweep button").is_disabled()
    page.evaluate("() => window.change('is_stopping', true)")
    n_sent = page.evaluate("window.sent.length")
    page.evaluate("() => window.change('table', '<b>another</b>')")
    assert "another" in page.locator(".mlless-sweep").inner_text()
    assert page.locator(".mlless-sweep button").inner_text() == "Stopping ..."
    assert page.evaluate("window.sent.length") == n_sent
    page.evaluate("() => window.tell('comm_live_update')")
    assert "s: the kernel was restarted; its trials were stopped" in page.locator(".mlless-sweep").inner_text()


def test_a_sweep_notices_a_restart_that_the_page_is_not_told_of(page: Any) -> None:
    load(page, Leaderboard(FakeSweep()))
    board = page.locator(".mlless-sweep")
    page.wait_for_function(f"() => {SENT}.includes('ping')")
    page.evaluate("() => window.tell('msg:custom', { kind: 'pong' }, [])")
    page.evaluate(IS_READ)
    n_sent = page.evaluate("window.sent.length")
    page.wait_for_function(f"() => {SENT}.length > {n_sent}")
    assert "running" in board.inner_text()
    page.evaluate(IS_READ)
    page.get_by_role("button", name="The kernel was restarted").wait_for()
    assert "rates: the kernel was restarted; its trials were stopped and saved" in board.inner_text()
    assert board.locator("td:last-child").all_inner_texts().count("running") == 0


def test_the_trials_of_a_live_sweep_are_drawn_and_nothing_moves_as_there_are_more(page: Any) -> None:
    sweep = FakeSweep()
    later, sweep.trials = sweep.trials, []
    widget = Leaderboard(sweep)
    load(page, widget)
    chart, trials = page.locator(".mlless-coordinates"), page.locator(".mlless-coordinates .trial")
    before = chart.bounding_box()
    assert trials.count() == 0
    sweep.trials = later
    widget._draw()
    for name in ("table", "chart"):
        page.evaluate("([name, value]) => window.change(name, value)", [name, getattr(widget, name)])
    assert trials.count() == 2
    assert chart.bounding_box() == before
    told = chart.locator("svg").get_attribute("aria-label")
    assert told.startswith("parallel coordinates of 2 trials; the best one: rate 3, ")
