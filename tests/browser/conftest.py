"""One JupyterLab and one browser for all tests of a module."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lab import CHROMIUM_ARGS, DEADLINE_S, Lab, Notebook, find_chromium

Open = Callable[[list[str]], Notebook]


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running JupyterLab."""
    if find_chromium() is None:
        _missing("no Chromium: apt-get install chromium")
    for package in ("jupyterlab", "playwright"):
        try:
            __import__(package)
        except ImportError:
            _missing(f"no {package}: pip install {package}")
    running = Lab(tmp_path_factory.mktemp("lab"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def browser(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Chromium that is allowed no address but the Lab's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("chromium")),
            executable_path=find_chromium(),
            headless=True,
            args=CHROMIUM_ARGS,
            viewport={"width": 1280, "height": 900},
        )
        context.set_default_timeout(DEADLINE_S * 1000)
        own = f"127.0.0.1:{lab.port}"
        context.route(lambda url: own not in url and url.startswith("http"), lambda route: route.abort())
        yield context
        context.close()


@pytest.fixture
def notebook(lab: Lab, browser: Any, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Open a new notebook with these cells; the dashboard must raise no error in its page."""
    errors: list[str] = []
    opened: list[Notebook] = []

    def open_notebook(cells: list[str]) -> Notebook:
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
        opened.append(Notebook(lab, page, re.sub(r"\W+", "-", request.node.name).strip("-"), cells))
        return opened[-1]

    yield open_notebook
    for one in opened:
        one.end_kernel()
        one.page.close()
    # the widget's module is a blob; JupyterLab's own faults are not this test's
    assert [error for error in errors if "blob:" in error] == []
