"""JupyterLab and Notebook 7 with servers of their own, in temporary folders and on free loopback ports; a browser page
that drives them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from servers import free_port

CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
#: Long, because two cores, slow ones perhaps, carry a server, a kernel and a browser.
DEADLINE_S = 180.0


@dataclass(frozen=True)
class App:
    """A program that shows notebooks: its module, the option that lets a page be driven, a notebook's address."""

    module: str
    exposed: str
    address: str


#: In a workspace of its own: the default one brings back the notebooks of earlier tests.
JUPYTERLAB = App("jupyterlab", "--LabApp.expose_app_in_browser=True", "lab/workspaces/{name}/tree/{name}.ipynb")
NOTEBOOK_7 = App("notebook", "--JupyterNotebookApp.expose_app_in_browser=True", "notebooks/{name}.ipynb")


def find_chromium() -> str | None:
    """The browser's program, None when there is none."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """A browser with an empty profile in ``folder``; it reaches this machine's servers and no other address."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(folder),
            executable_path=find_chromium(),
            headless=True,
            args=CHROMIUM_ARGS,
            viewport={"width": 1280, "height": 900},
        )
        context.set_default_timeout(DEADLINE_S * 1000)
        context.route(
            lambda url: url.startswith("http") and urlsplit(url).hostname != "127.0.0.1", lambda route: route.abort()
        )
        yield context
        context.close()


class Lab:
    """A running server of ``app`` whose notebooks lie in ``folder / "notebooks"``."""

    def __init__(self, folder: Path, app: App = JUPYTERLAB) -> None:
        self.app = app
        self.notebooks = folder / "notebooks"
        self.notebooks.mkdir()
        self.token = secrets.token_hex(16)
        self.port = free_port()
        own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR", "IPYTHONDIR")
        env = {**os.environ, **{name: str(folder / name.lower()) for name in own}, "HOME": str(folder)}
        env.pop("MLLESS_PROGRESS", None)
        quiet = (
            folder
            / "jupyterlab_settings_dir"
            / "@jupyterlab"
            / "apputils-extension"
            / "notification.jupyterlab-settings"
        )
        quiet.parent.mkdir(parents=True)
        quiet.write_text('{"fetchNews": "false"}')
        self._log = (folder / "server.log").open("wb")
        self._server = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    app.module,
                    "--no-browser",
                    "--allow-root",
                    "--ip=127.0.0.1",
                    f"--port={self.port}",
                ),
                *(
                    f"--IdentityProvider.token={self.token}",
                    app.exposed,
                    "--ServerApp.port_retries=0",
                ),
                f"--ServerApp.root_dir={self.notebooks}",
            ],
            env=env,
            cwd=self.notebooks,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._log_path = folder / "server.log"
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and self._server.poll() is None:
            try:
                self.api("status")
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise RuntimeError(f"{self.app.module} did not start:\n{self._log_path.read_text()[-2000:]}")

    def api(self, path: str, method: str = "GET", timeout_s: float = 10.0) -> Any:
        """What the server's REST interface answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{path}", method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            body = reply.read()
            return json.loads(body) if body else None

    def close(self) -> None:
        """End the server and its kernels."""
        for kernel in self.api("kernels"):
            self.api(f"kernels/{kernel['id']}", "DELETE")
        self._server.terminate()
        self._server.wait(DEADLINE_S)
        self._log.close()


class Notebook:
    """A notebook of code cells, open in a browser page."""

    def __init__(self, lab: Lab, page: Any, name: str, cells: list[str]) -> None:
        self.lab, self.page, self.path = lab, page, f"{name}.ipynb"
        empty = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        code = [{**empty, "id": f"c{i}", "source": source} for i, source in enumerate(cells)]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        content = {"cells": code, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (lab.notebooks / self.path).write_text(json.dumps(content))
        self.open()

    def open(self) -> None:
        """Open the notebook, or open it again."""
        address = self.lab.app.address.format(name=self.path.removesuffix(".ipynb"))
        self.page.goto(f"http://127.0.0.1:{self.lab.port}/{address}?token={self.lab.token}")
        self.wait_for_kernel()

    def reload(self) -> None:
        """Reload the page, as a person does."""
        self.page.reload()
        self.wait_for_kernel()

    def wait_for_kernel(self) -> None:
        """Wait until the notebook is there, nothing lies over it, and its kernel answers."""
        self.page.wait_for_function(
            """() => {
                const panel = window.jupyterapp?.shell?.currentWidget;
                return panel?.content?.model && panel.sessionContext?.session?.kernel?.connectionStatus === "connected"
                    && panel.content.widgets.length > 0 && !document.getElementById("jupyterlab-splash");
            }""",
            timeout=DEADLINE_S * 1000,
        )

    def start(self, cell: int) -> None:
        """Run a cell without waiting for its end."""
        self.page.evaluate(
            """(cell) => {
                const { shell, commands } = window.jupyterapp;
                shell.currentWidget.content.activeCellIndex = cell;
                void commands.execute("notebook:run-cell");
            }""",
            cell,
        )

    def run(self, cell: int) -> None:
        """Run a cell to its end."""
        self.start(cell)
        self.page.wait_for_function(
            """(cell) => {
                const model = window.jupyterapp.shell.currentWidget.content.widgets[cell].model;
                return model.executionCount !== null && model.executionState !== "running";
            }""",
            arg=cell,
            timeout=DEADLINE_S * 1000,
        )

    def save(self) -> dict[str, Any]:
        """Save the notebook; what lies on the disk then."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        return json.loads((self.lab.notebooks / self.path).read_text())

    def text(self, cell: int) -> str:
        """What the cell's output shows as text."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-Cell-outputArea").inner_text()

    def theme(self, name: str) -> None:
        """Change the theme: ``Light`` or ``Dark``."""
        change = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
        self.page.evaluate(change, f"JupyterLab {name}")
        self.page.wait_for_function(
            """(light) => document.body.dataset.jpThemeLight === light
                && !document.getElementById("jupyterlab-splash")""",
            arg="true" if name == "Light" else "false",
        )

    def restart_kernel(self) -> None:
        """Restart the notebook's kernel, as the button does, and wait until the new one answers."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self.wait_for_kernel()

    def restart_kernel_from_elsewhere(self) -> None:
        """Restart the notebook's kernel by the server's interface, as another program does, and wait for it."""
        (kernel,) = [each["kernel"]["id"] for each in self.lab.api("sessions") if each["path"] == self.path]
        self.lab.api(f"kernels/{kernel}/restart", "POST", DEADLINE_S)

    def end_kernel(self) -> None:
        """End the notebook's kernel."""
        for session in self.lab.api("sessions"):
            if session["path"] == self.path:
                self.lab.api(f"sessions/{session['id']}", "DELETE")
