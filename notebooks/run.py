"""Run a notebook without a browser: pass on what it prints as it prints it, and keep the executed copy.

Usage: ``python run.py NOTEBOOK FOLDER``. The exit code is 1 when a cell failed; the copy is written all the same.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

#: Cells with this tag show results: the text form of all they display is passed on too.
RESULT_TAG = "result"


class LiveClient(NotebookClient):
    """Executes a notebook and writes its text to the terminal while it comes."""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """See nbclient: called with each message of the kernel that belongs to a cell."""
        kind, content = msg["msg_type"], msg["content"]
        if kind == "stream":
            print(content["text"], end="", flush=True)
        elif kind == "execute_result" or (kind == "display_data" and RESULT_TAG in cell.metadata.get("tags", [])):
            print(content["data"].get("text/plain", ""), flush=True)
        return super().process_message(msg, cell, cell_index)

    def pass_on_interrupts(self, **_: Any) -> None:
        """Hand Ctrl-C to the cell that runs, as a notebook does: a cell that trains stops its run in good order."""
        loop, tasks = asyncio.get_running_loop(), set()

        def interrupt() -> None:
            tasks.add(loop.create_task(self.km.interrupt_kernel()))

        loop.add_signal_handler(signal.SIGINT, interrupt)


def run(notebook: Path, folder: Path) -> int:
    """Execute ``notebook`` in its own folder, write the executed copy into ``folder``; the process's exit code."""
    document = nbformat.read(notebook, as_version=4)
    folder.mkdir(parents=True, exist_ok=True)
    code = 0
    with tempfile.TemporaryDirectory(prefix="mlless-") as sockets:
        # Unix sockets: nobody else on this machine can talk to the kernel.
        client = LiveClient(
            document,
            kernel_name="python3",
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
            timeout=None,
            startup_timeout=120,
            resources={"metadata": {"path": str(notebook.parent)}},
            on_cell_start=lambda cell, cell_index: print_heading(document, cell_index),
        )
        client.on_notebook_start = client.pass_on_interrupts
        try:
            client.execute()
        except CellExecutionError as error:
            print(f"\n{notebook.name}: a cell failed: {error.ename}: {error.evalue}", file=sys.stderr)
            code = 1
    executed = (folder / notebook.name).resolve()
    nbformat.write(document, executed)
    print(f"\nexecuted notebook: {executed}", flush=True)
    return code


def print_heading(document: Any, cell_index: int) -> None:
    """Print the heading, if any, that opens the text right above the cell."""
    above = document.cells[cell_index - 1] if cell_index else None
    if above is not None and above.cell_type == "markdown" and above.source.startswith("#"):
        print(f"\n{above.source.splitlines()[0].lstrip('# ')}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(run(Path(sys.argv[1]).resolve(), Path(sys.argv[2])))
