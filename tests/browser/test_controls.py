"""What a person does in the dashboard: types, presses keys and buttons, hovers, zooms, resumes; and the end."""

from __future__ import annotations

import pytest
from applications import IN_BOTH
from lab import DEADLINE_S, Notebook
from test_dashboard import SETUP, Open, curve, dashboard, shown_run, wait_for_rows, wait_until_replaced

pytestmark = pytest.mark.browser

N_CELLS = "() => window.jupyterapp.shell.currentWidget.content.widgets.length"


def wait_for_text(notebook: Notebook, name: str, text: str) -> None:
    """Wait until the newest dashboard shows ``text`` in its field ``name``."""
    notebook.page.wait_for_function(
        "([name, text]) => [...document.querySelectorAll('.mlless')].at(-1)"
        "?.querySelector(`[data-text=${name}]`)?.textContent === text",
        arg=[name, text],
        timeout=DEADLINE_S * 1000,
    )


def height(notebook: Notebook) -> int:
    return int(dashboard(notebook).evaluate("(root) => root.offsetHeight"))


@pytest.mark.long
@IN_BOTH
def test_keys_stay_in_the_dashboard_and_nothing_is_done_before_the_supervisor_says_so(notebook: Open) -> None:
    slow = "run.scale_in = lambda n: run.telemetry.update(pending=('removing 1 worker ...',))"
    opened = shown_run(notebook, "run.telemetry.update(refusal='no worker would stay')", slow)
    field, notice = dashboard(opened).get_by_label("Budget $"), dashboard(opened).locator(".mlless-notice")
    n_cells = opened.page.evaluate(N_CELLS)
    table, events = dashboard(opened).get_by_role("button", name="Table"), dashboard(opened).locator(".mlless-events")
    for node in (table, dashboard(opened).locator("[data-against=seconds]"), events, field):
        node.focus()
        for key in ("a", "b", "x", "d", "d", "ArrowDown"):  # JupyterLab's keys to add, cut, delete and leave cells
            opened.page.keyboard.press(key)
            assert opened.page.evaluate(N_CELLS) == n_cells
        assert node.evaluate("(node) => node === document.activeElement")

    field.fill("0.00001")
    field.press("Enter")
    opened.page.wait_for_selector(".mlless-notice[data-tone=bad]")
    assert "must be at least" in notice.inner_text()
    drawn = int(dashboard(opened).get_attribute("data-rows"))
    wait_for_rows(opened, drawn + 10)
    assert field.input_value() == "0.00001"  # with its reason beside it
    assert "must be at least" in notice.inner_text()
    field.fill("80")
    field.press("Enter")
    wait_for_text(opened, "spent_note", "of $80.00")
    assert notice.get_attribute("data-tone") != "bad"

    tuner = dashboard(opened).locator("[data-ref=tuner]")
    tuner.click()
    dashboard(opened).get_by_role("button", name="Resume auto-tuner").click()
    dashboard(opened).get_by_role("button", name="Pause auto-tuner").wait_for()
    assert "cannot be undone" in dashboard(opened).locator(".mlless-controls").inner_text()

    opened.run(2)  # the supervisor refuses a command
    opened.page.wait_for_selector(".mlless-notice[data-tone=bad]")
    assert notice.inner_text() == "Refused: No worker would stay"
    opened.run(3)  # and is slow to answer the next one
    dashboard(opened).get_by_role("button", name="Remove a worker").click()
    opened.page.wait_for_selector(".mlless-notice[data-tone=pending]")
    assert notice.inner_text() == "removing 1 worker ..."
    wait_for_rows(opened, int(dashboard(opened).get_attribute("data-rows")) + 10)
    assert dashboard(opened).locator("[data-text=workers_text]").inner_text() == "8"

    restart = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    opened.page.evaluate(restart)
    wait_for_text(opened, "word", "Kernel restarted")
    text = dashboard(opened).inner_text()
    assert "The kernel was restarted; the run was stopped and saved: mlless_nb.attach('first')" in text
    assert not {"Stop", "Continue"} & set(dashboard(opened).get_by_role("button").all_inner_texts())  # nobody answers


@pytest.mark.long
@IN_BOTH
def test_a_restart_that_another_program_asked_for_is_noticed(notebook: Open) -> None:
    """Jupyter does not tell the page of it."""
    opened = shown_run(notebook)
    opened.restart_kernel_from_elsewhere()
    wait_for_text(opened, "word", "Kernel restarted")
    assert not {"Stop", "Continue"} & set(dashboard(opened).get_by_role("button").all_inner_texts())


@pytest.mark.long
@IN_BOTH
def test_after_a_click_on_the_dashboard_keys_do_not_reach_the_notebook(notebook: Open) -> None:
    opened = shown_run(notebook, "print('a cell to delete')")
    n_cells = opened.page.evaluate(N_CELLS)
    remove = dashboard(opened).get_by_role("button", name="Remove a worker")
    empty = [dashboard(opened).locator(part).first for part in (".mlless-figures", ".mlless-plot", ".mlless-strip")]
    for place in (*empty, dashboard(opened).locator("[data-text=metric_text]"), dashboard(opened), remove):
        place.click(position={"x": 3, "y": 3})
        opened.page.keyboard.press("d")
        opened.page.keyboard.press("d")
        assert opened.page.evaluate(N_CELLS) == n_cells

    opened.page.locator(".jp-Notebook .jp-InputPrompt").nth(2).click()  # the notebook's own keys work as ever
    opened.page.keyboard.press("d")
    opened.page.keyboard.press("d")
    opened.page.wait_for_function(f"(n) => ({N_CELLS})() === n", arg=n_cells - 1)
    assert dashboard(opened).count() == 1


@pytest.mark.long
@IN_BOTH
def test_one_crosshair_for_all_charts_zoom_axes_and_a_run_that_diverges(notebook: Open) -> None:
    diverges = "run = FakeRun(n_steps=100_000, budget_usd=None)\nrun.diverges = 1.12\nrun.advance(300)\nshow(run)"
    opened = notebook([SETUP, "run = FakeRun(n_steps=100_000)\nrun.advance(200)\nshow(run)", diverges])
    opened.run(0)
    opened.run(1)
    wait_for_rows(opened, 199)
    plots, tips = dashboard(opened).locator(".mlless-plot"), dashboard(opened).locator(".mlless-tip")
    width = [plots.nth(i).evaluate("(plot) => plot.offsetWidth") for i in range(3)]
    assert width[0] == pytest.approx(sum(width[1:]), rel=0.1)

    box = plots.nth(1).bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    tips.first.wait_for()
    texts = tips.all_inner_texts()
    assert len({text.splitlines()[0] for text in texts}) == 1
    assert ["validation" in texts[0] or "training" in texts[0], "8 workers" in texts[1], "$" in texts[2]] == [True] * 3

    dashboard(opened).get_by_role("button", name="dollars").click()
    titles = [plots.nth(i).locator("> svg > text").last.text_content() for i in range(3)]
    assert titles == ["dollars spent", "dollars spent", "seconds"]  # dollars against dollars say nothing
    dashboard(opened).get_by_role("button", name="step", exact=True).click()

    whole, box = curve(opened, 0), plots.first.bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + 150, box["y"] + 60)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 250, box["y"] + 60)
    opened.page.mouse.up()
    assert curve(opened, 0) != whole
    plots.nth(2).dblclick()
    assert curve(opened, 0) == whole

    opened.run(2)
    wait_for_rows(opened, 299)
    log = dashboard(opened).get_by_role("button", name="log scale")
    assert log.get_attribute("aria-pressed") == "true"
    texts = dashboard(opened).locator(".mlless-plot").first.locator("text").all_text_contents()
    assert {"1e1", "1e6"} <= set(texts)
    button, loss = log.bounding_box(), plots.first.bounding_box()
    assert button is not None
    assert loss is not None
    assert button["x"] + button["width"] < loss["x"] + loss["width"], "it would look like one of another chart"
    events = dashboard(opened).locator(".mlless-events")
    free, *shadows = events.evaluate(
        """(box) => {
            const { lineHeight, fontSize, backgroundSize } = getComputedStyle(box);
            const [above, below] = backgroundSize.split(", ").slice(-2).map((size) => parseFloat(size.split(" ")[1]));
            return [(parseFloat(lineHeight) - parseFloat(fontSize)) / 2, above, below];
        }"""
    )
    assert max(shadows) <= free, "a shadow would lie over a line's text"
    assert any(text.startswith("↑ up to") for text in texts)
    log.click()
    assert log.get_attribute("aria-pressed") == "false"
    assert cut_off(opened) == []


@pytest.mark.long
@IN_BOTH
def test_nothing_is_cut_and_nothing_shifts_at_any_width(notebook: Open) -> None:
    begin = "run = FakeRun(n_steps=400, budget_usd=0.03)\nshow(run)\nrun.telemetry.update(baseline_loss=1.126, "
    begin += "description='PMF rank 128 · a-file-with-quite-a-long-name.parquet · ISP 0.7')"
    longer = "run.telemetry.update(best_step=123456, best_epoch=123.4, rate_usd_s=0.0123)\n"
    longer += "for _ in range(9): run.telemetry.add_event(22.5, 'something has happened')"
    opened = notebook([SETUP, begin, "run.advance(250)", "run.advance(400)", longer])
    opened.run(0)
    opened.run(1)
    dashboard(opened).wait_for()
    starting = height(opened)
    opened.run(2)
    wait_for_rows(opened, 249)
    assert "step 250 of 400" in dashboard(opened).inner_text()
    assert height(opened) == starting
    for width in (250, 360, 500, 700, 1000):  # the first is what JupyterLab leaves of a page of 360
        dashboard(opened).evaluate("(root, width) => { root.style.width = `${width}px` }", width)
        opened.page.wait_for_function(
            "(width) => document.querySelector('.mlless').offsetWidth === width"
            " && document.querySelector('.mlless-plot svg').viewBox.baseVal.width"
            " === document.querySelector('.mlless-plot').clientWidth",
            arg=width,
        )
        assert cut_off(opened) == []
        tops = dashboard(opened).locator(".mlless-head button").evaluate_all("(all) => all.map((one) => one.offsetTop)")
        assert len(set(tops)) == 1 or width == 250

    def narrow_heights() -> list[int]:
        heights = []
        for width in (250, 360):
            dashboard(opened).evaluate("(root, width) => { root.style.width = `${width}px` }", width)
            assert cut_off(opened) == []
            heights.append(height(opened))
        return heights

    shorter = narrow_heights()
    opened.run(4)
    dashboard(opened).get_by_text("(step 123,456)").wait_for()
    assert narrow_heights() == shorter
    dashboard(opened).evaluate("(root) => { root.style.width = '' }")
    wide = dashboard(opened).evaluate("(root) => root.offsetWidth")
    live = dashboard(opened).element_handle()
    opened.run(3)
    wait_until_replaced(opened, live)
    wait_for_text(opened, "word", "Finished")
    assert height(opened) == pytest.approx(starting, abs=2)
    assert dashboard(opened).evaluate("(root) => root.offsetWidth") == pytest.approx(wide, abs=2)


def cut_off(notebook: Notebook) -> list[str]:
    """What the newest dashboard does not show as a whole: texts that reach out of it, or of their chart."""
    found: list[str] = dashboard(notebook).evaluate(
        """(root) => {
            const edge = root.getBoundingClientRect();
            const words = 'button, label, input, .mlless-value, .mlless-key, .mlless-small, h4';
            const out = [...root.querySelectorAll(words)].filter((node) => {
                const box = node.getBoundingClientRect();
                return node.getClientRects().length && (box.right > edge.right || box.left < edge.left);
            });
            const charts = [...root.querySelectorAll('.mlless-plot')].filter((plot) => plot.getClientRects().length);
            const texts = charts.flatMap((plot) => [...plot.querySelectorAll('text')].filter((text) => {
                const [a, b] = [text.getBoundingClientRect(), plot.getBoundingClientRect()];
                return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
            }));
            return [...out, ...texts].map((node) => node.textContent.trim() || node.className);
        }"""
    )
    return found


@pytest.mark.long
@IN_BOTH
def test_the_end_keeps_hover_zoom_and_axes_and_goes_on_in_its_place(notebook: Open) -> None:
    reason = "the budget does not pay for another step; $0.000058 of $0.0007 is left, kept to end in good order"
    opened = shown_run(
        notebook, f"%load_ext mlless_nb\nfirst = run\nrun.end('capped', {reason!r})", "print(run.commands)"
    )
    wait_for_rows(opened, 10)
    live = dashboard(opened).element_handle()
    opened.run(2)
    wait_until_replaced(opened, live)
    wait_for_text(opened, "word", "Budget reached")
    (output,) = opened.save()["cells"][1]["outputs"]
    assert set(output["data"]) == {"image/svg+xml", "text/html", "text/plain"}  # what stays in the notebook
    for width in (360, 500, 700):
        dashboard(opened).evaluate("(root, width) => { root.style.width = `${width}px` }", width)
        lines = dashboard(opened).locator(".mlless-lines")
        assert lines.evaluate("(e) => e.scrollHeight <= e.clientHeight"), width
    dashboard(opened).evaluate("(root) => { root.style.width = '' }")
    text = dashboard(opened).inner_text()
    for part in ('first.model.save("first.npz")', "--resume first", "best 0."):
        assert part in text
    dashboard(opened).locator("summary").click()
    assert "Cost: workers $" in dashboard(opened).inner_text()
    dashboard(opened).get_by_role("button", name="seconds").click()
    box = dashboard(opened).locator(".mlless-plot").first.bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + 150, box["y"] + 60)
    dashboard(opened).locator(".mlless-tip").first.wait_for()

    more = dashboard(opened).get_by_label("Continue with +$")
    assert f"--budget {more.input_value()} goes on" in text
    more.fill("a lot")
    more.press("Enter")
    opened.page.wait_for_selector(".mlless-notice[data-tone=bad]")
    more.fill("0.04")
    more.press("Enter")
    wait_for_text(opened, "spent_note", "of $0.04")
    wait_for_text(opened, "word", "Running")
    opened.run(3)
    assert "('resume', 0.04)" in opened.text(3)


@pytest.mark.long
@IN_BOTH
def test_a_run_that_goes_on_after_a_reload_says_how_it_is_shown(notebook: Open) -> None:
    opened = shown_run(notebook, "first = run\nrun.end('capped', 'Enough.')", "show(first)")
    live = dashboard(opened).element_handle()
    opened.run(2)
    wait_until_replaced(opened, live)
    opened.save()
    opened.reload()
    wait_for_text(opened, "word", "Budget reached")
    more = dashboard(opened).get_by_label("Continue with +$")
    more.fill("0.04")
    more.press("Enter")
    opened.page.get_by_text("first.dashboard() shows it if it does not appear here").first.wait_for()
    opened.run(3)  # as that does
    wait_for_text(opened, "spent_note", "of $0.04")
    wait_for_text(opened, "word", "Running")
