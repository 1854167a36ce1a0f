"""The widgets' modules in a page that has nothing of Jupyter, as VS Code and others load them: anywidget's contract.

What these programs put around a module is theirs, and not here.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "widgets"))

from fake_run import FakeRun

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
        get: (name) => held[name], set() {}, save_changes() {}, off() {}, send: (message) => window.sent.push(message),
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
    names = ("status", "earlier", "table", "is_stopping")
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
        best_so_far, spaces = None, ()

    load(page, Leaderboard(Sweep()))
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
