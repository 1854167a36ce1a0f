"""A worker's function that invokes the functions of other slots, see `mlless_nb.driver.launch.fan_out`."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from ..bus import open_bus
from ..bus.messages import Invocation, Trouble
from ..stateless import nested
from ..storage.objects import ObjectStore


def invite(invocation: Invocation, objects: ObjectStore, function: Callable[..., Any]) -> threading.Thread | None:
    """Invoke the functions that this one has to, beside its own work; a failure is reported to the driver.

    Parameters
    ----------
    invocation : Invocation
        This function's; the others differ from it in their slot and grant.
    objects : ObjectStore
        Its storage, which counts the requests that Lithops makes.
    function : callable
        The entry point of functions.

    Returns
    -------
    threading.Thread or None
        To be joined before the function ends; None if there is nobody to invoke.
    """
    if not invocation.invites:
        return None
    thread = threading.Thread(target=_invite, args=(invocation, objects, function), name="mlless-invite", daemon=True)
    thread.start()
    return thread


def _invite(invocation: Invocation, objects: ObjectStore, function: Callable[..., Any]) -> None:
    slots = [slot for slot, _ in invocation.invites]
    others = [
        dataclasses.replace(invocation, slot=slot, granted_nusd=nusd, invites=[]) for slot, nusd in invocation.invites
    ]
    objects.gets += nested.GETS
    objects.puts += nested.PUTS
    try:
        payloads = [one.encode().decode() for one in others]
        nested.invoke(function, payloads, f"w{invocation.slot}", invocation.memory_mb)
    except Exception as error:
        reason = f"worker {invocation.slot} could not invoke others: {type(error).__name__}: {error}"
        trouble = Trouble(slots[0], 0, reason, is_lost=True, others=slots[1:])
        # If that fails too, the supervisor misses them after a while.
        with (
            contextlib.suppress(Exception),
            contextlib.closing(
                open_bus(invocation.bus_url, invocation.job_id, insecure=invocation.insecure, objects=objects)
            ) as bus,
        ):
            bus.send("driver", trouble.encode())
