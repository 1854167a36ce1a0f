"""The notebook servers of this test run, a browser for the tests of a module, and a notebook for each test."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lab import JUPYTERLAB, App, Lab, Notebook, chromium, find_chromium

Open = Callable[[list[str]], Notebook]


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def server_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[App], Lab]]:
    """The server of an application; it is started for the first test that needs it."""
    running: dict[App, Lab] = {}

    def server(app: App) -> Lab:
        if find_chromium() is None:
            _missing("no Chromium: apt-get install chromium")
        for package in (app.module, "playwright"):
            try:
                __import__(package)
            except ImportError:
                _missing(f"no {package}: pip install {package}")
        if app not in running:
            running[app] = Lab(tmp_path_factory.mktemp(app.module), app)
        return running[app]

    yield server
    for one in running.values():
        one.close()


@pytest.fixture
def lab(request: pytest.FixtureRequest, server_of: Callable[[App], Lab]) -> Lab:
    """A running JupyterLab, or what `IN_BOTH` asks for."""
    return server_of(getattr(request, "param", JUPYTERLAB))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Chromium that reaches this machine's servers alone. Its event loop would disturb the tests of other modules."""
    if find_chromium() is None:
        _missing("no Chromium: apt-get install chromium")
    with chromium(tmp_path_factory.mktemp("chromium")) as context:
        yield context


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
