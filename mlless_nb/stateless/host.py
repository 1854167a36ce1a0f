"""The host of an event-driven run on one machine: turns each call on the control bus into a process of its own.

It stands for a cloud's services that deliver messages and invoke functions, and is not billed, as these are paid for by
the functions' prices. It has everything imported and no data, so that a fork of it is a warm start. It knows nothing of
steps. A process that ends without having returned is reported as lost; the driver sends its part to another one.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from contextlib import suppress

from ..bus import Bus, open_bus
from ..bus.messages import Command, Invocation, Message
from ..errors import DecodeError, ServiceError
from ..exchange import RedisCoordinator
from ..storage.objects import ObjectStore
from .functions import run_call
from .invoking import TOPIC
from .messages import Call, Done

#: Longest wait for calls between two checks which processes have ended, seconds.
POLL_S = 0.05
#: Seconds between two checks whether the driver is alive.
LEASE_POLL_S = 2.0


def serve(job: Invocation, objects: ObjectStore) -> str:
    """Run the functions of ``job`` until the driver says stop, or is lost."""
    bus = open_bus(job.bus_url, job.job_id, insecure=job.insecure)
    log = RedisCoordinator(job.redis_urls, job.job_id, job.generation, f"{os.getpid()}")
    at_work: dict[int, Call] = {}
    looked_at, is_over = time.monotonic(), False
    try:
        while not is_over or at_work:
            for body in bus.receive(TOPIC, POLL_S):
                message = _decoded(body)
                if isinstance(message, Command) and message.do == "stop":
                    is_over = True
                elif isinstance(message, Call):
                    at_work[_start(message, objects)] = message
            for pid, how in _ended(at_work):
                call = at_work.pop(pid)
                if how:
                    _report(bus, log, call, pid, how)
            if time.monotonic() - looked_at > LEASE_POLL_S:
                looked_at = time.monotonic()
                if not log.alive(["driver"])[0]:
                    break
    finally:
        for pid in at_work:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        bus.close()
        log.close()
    return ""


def _decoded(body: bytes) -> Message | None:
    with suppress(DecodeError):
        return Message.decode(body)
    return None


def _start(call: Call, objects: ObjectStore) -> int:
    """Fork a process that does what ``call`` says; returns its id. It has connections of its own."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        objects.gets = objects.puts = 0
        run_call(call, objects)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _ended(at_work: dict[int, Call]) -> list[tuple[int, str]]:
    """The processes that have ended, and how; "" if a process returned."""
    found = []
    for pid in list(at_work):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            found.append((pid, "" if code == 0 else f"killed by signal {-code}" if code < 0 else f"exit code {code}"))
    return found


def _report(bus: Bus, log: RedisCoordinator, call: Call, pid: int, how: str) -> None:
    """Report the function of ``call`` as lost; all of its grant counts as spent."""
    now_s, launched_at_s = log.now_s(), call.launched_at_s
    times = launched_at_s, launched_at_s, now_s
    done = Done(call.stage, call.step, call.index, call.attempt, pid, *times, call.granted_nusd, 0, f"lost: {how}")
    with suppress(ServiceError):
        bus.send("driver", done.encode())
