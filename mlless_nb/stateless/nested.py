"""How a function invokes others through Lithops."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

#: Lithops numbers the executors of a process under this name, and hands it on to the processes that this one starts; it
#: would grow with every function in a chain.
SESSION = "__LITHOPS_SESSION_ID"
#: What Lithops asks of the object storage for one call of `invoke`: the runtime's data; the code and the payloads.
GETS, PUTS = 1, 2


def invoke(function: Callable[..., Any], payloads: list[str], name: str, memory_mb: int) -> None:
    """Invoke ``function`` for each of ``payloads``; Lithops passes its configuration on in the environment.

    ``name`` is that of the calling function, which no other one has in the run.
    """
    import lithops

    own = os.environ.get(SESSION, "")
    os.environ[SESSION] = f"{'-'.join(own.split('-')[:2])}-{name}"  # of the driver's executor, whose files are removed
    try:
        executor = lithops.FunctionExecutor(log_level=None)
        invoke_in_region(executor)
        arguments = [{"payload": payload} for payload in payloads]
        executor.map(function, arguments, chunksize=1, runtime_memory=memory_mb, exclude_modules=["mlless_nb"])
        executor.job_monitor.stop()
        executor.invoker.stop()
    finally:
        os.environ[SESSION] = own


def invoke_in_region(executor: Any) -> None:
    """Have Lithops' ``executor`` invoke functions in China, too: hosts there end otherwise than it thinks."""
    backend: Any = getattr(executor.compute_handler, "backend", None)
    if getattr(backend, "name", "") == "aws_lambda" and backend.region.startswith("cn-"):
        backend.host = urlsplit(backend.lambda_client.meta.endpoint_url).netloc
