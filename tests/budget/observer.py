"""The lives of a trial's processes, as the system and they themselves tell them, and the bill that follows from these.

Nothing here is known from the meter, the budget or the messages of a run: a function lives from the birth of the
process that it was started with to the death of its own, and is billed for all of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlless_nb.money import Rates, price_profile

#: Longest wait for something that processes are to do, seconds.
PATIENCE_S = 180.0
HERE = Path(__file__).parent


@dataclass
class Life:
    """A process: its id and those of its group and parent, when it was born and died, and what it said.

    Parameters
    ----------
    pid, group, parent : int
    born_s : float
        On this process' monotonic clock.
    died_s : float or None
        None while it lives.
    slot : int or None
        Of a function, -1 is the supervisor; None of another process.
    returned_s : float or None
        When the function returned, by its own word, None if it did not.
    was_in_vain : bool
        Whether it had nothing to do, as another one had its slot.
    gets, puts : int
        Requests to the object storage.
    """

    pid: int
    group: int
    parent: int
    born_s: float
    died_s: float | None = None
    slot: int | None = None
    returned_s: float | None = None
    was_in_vain: bool = False
    gets: int = 0
    puts: int = 0

    @property
    def has_returned(self) -> bool:
        """Whether it is a function that has returned."""
        return self.returned_s is not None


@dataclass(frozen=True)
class Span:
    """A function's billed life, seconds on the observer's clock."""

    slot: int
    began_s: float
    ended_s: float
    returned_s: float | None  # None: it was killed
    was_in_vain: bool = False

    def span_s(self, tail_s: float) -> float:
        """Its billed length: to its death, or to ``tail_s`` after its return, which its wrapper needs."""
        ended_s = self.ended_s if self.returned_s is None else self.returned_s + tail_s
        return ended_s - self.began_s


class Observer:
    """Hears all processes that inherit `environment`.

    Parameters
    ----------
    folder : Path
        For its socket.
    """

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "observer")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen(256)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._changed = threading.Condition()
        self.lives: list[Life] = []
        self._invoked: list[tuple[int, list[int]]] = []  # process groups, and the slots of their functions
        self._of: dict[socket.socket, tuple[list[Life], list[bytes]]] = {}
        self._is_closed = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def environment(self, skew_s: float = 0.0, folder: Path | None = None) -> dict[str, str]:
        """The environment of a trial's first process.

        Clocks of its processes are up to ``skew_s`` seconds off, and what they keep is in ``folder``, if one is given.
        """
        # Lithops gives processes with one session the same ids.
        env = {name: value for name, value in os.environ.items() if name != "__LITHOPS_SESSION_ID"}
        path = [str(HERE / "reporting"), str(HERE.parent / "audit"), str(HERE.parent)]
        env |= {"PYTHONPATH": os.pathsep.join(path), "MLLESS_OBSERVER": self._path}
        if folder is not None:
            env |= {"TMPDIR": str(folder), "XDG_DATA_HOME": str(folder / "data")}
        return env | ({"MLLESS_CLOCK_SKEW_S": repr(skew_s)} if skew_s else {})

    # -- hearing

    def _listen(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(0.5):
                now_s = time.monotonic()
                if key.fileobj is self._listener:
                    connection, _address = self._listener.accept()
                    connection.setblocking(False)
                    self._of[connection] = ([], [b""])
                    self._selector.register(connection, selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj, now_s)

    def _hear(self, connection: socket.socket, now_s: float) -> None:
        life, (buffered,) = self._of[connection]
        try:
            said = connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        with self._changed:
            if not said:
                for one in life:
                    one.died_s = now_s
                self._selector.unregister(connection)
                connection.close()
                del self._of[connection]
            else:
                *lines, rest = (buffered + said).split(b"\n")
                self._of[connection][1][0] = rest
                for line in lines:
                    self._note(life, json.loads(line), now_s)
            self._changed.notify_all()

    def _note(self, life: list[Life], facts: dict[str, Any], now_s: float) -> None:
        if "pid" in facts:
            life.append(Life(facts["pid"], facts["group"], facts["parent"], birth_s(facts["pid"], now_s)))
            self.lives += life
            return
        (one,) = life
        if "invoked" in facts:
            self._invoked.append((facts["invoked"], facts["slots"]))
        one.gets += facts.get("gets", 0)
        one.puts += facts.get("puts", 0)
        one.slot = facts.get("slot", one.slot)
        if "returned_s" in facts:
            one.returned_s, one.was_in_vain = facts["returned_s"], facts["in_vain"]

    # -- asking

    def wait(self, condition: Callable[[], object], patience_s: float = PATIENCE_S) -> bool:
        """Whether ``condition`` comes true; it is looked at whenever a process says something or dies."""
        give_up_at = time.monotonic() + patience_s
        with self._changed:
            while not condition():
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, 0.5))
            return True

    def functions(self, slot: int | None = None) -> list[Life]:
        """The functions, or those of one slot, that live."""
        return [
            life for life in self.lives if life.slot is not None and life.died_s is None and slot in (None, life.slot)
        ]

    def are_gone(self) -> bool:
        """Whether every process that was heard of has died."""
        return all(life.died_s is not None for life in self.lives)

    def spans(self) -> list[Span]:
        """The spans of all functions, which have ended; also of those that were killed before they could say a word."""
        leaders = {life.group: life for life in reversed(self.lives)}
        spans = {
            (life.group, life.slot): Span(
                life.slot, leaders[life.group].born_s, life.died_s or math.inf, life.returned_s, life.was_in_vain
            )
            for life in self.lives
            if life.slot is not None
        }
        for group, slots in self._invoked:
            if leader := leaders.get(group):
                silent = [slot for slot in slots if (group, slot) not in spans]
                died_s = self._silent_functions_died_s(group, len(silent)) or [leader.died_s or math.inf] * len(silent)
                for slot, at_s in zip(silent, died_s, strict=True):
                    spans[group, slot] = Span(slot, leader.born_s, at_s, None)
        return list(spans.values())

    def _silent_functions_died_s(self, group: int, n: int) -> list[float]:
        """When the ``n`` functions of ``group`` that never said their slot died; empty if other processes may be them.

        A function has started none; all functions have one price, so that it does not matter which is whose.
        """
        parents = {life.parent for life in self.lives}
        found = [
            life.died_s or math.inf
            for life in self.lives
            if life.group == group != life.pid and life.slot is None and life.pid not in parents
        ]
        return found if len(found) == n else []

    def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        self._thread.join()
        for connection in list(self._of):
            connection.close()
        self._selector.close()
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def birth_s(pid: int, heard_s: float) -> float:
    """When the kernel started process ``pid``, on the monotonic clock; the time it was heard if it is gone."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return heard_s
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return min(time.monotonic() - since_boot_s, heard_s)


@dataclass(frozen=True)
class TrueBill:
    """What a run has cost by the spans of its processes, US dollars."""

    workers: float
    supervisor: float
    storage: float
    servers: float

    @property
    def without_servers(self) -> float:
        """All but the servers, whose started seconds are billed whole."""
        return self.workers + self.supervisor + self.storage

    @property
    def total(self) -> float:
        """The sum."""
        return self.without_servers + self.servers


def until_missed(spans: list[Span]) -> list[Span]:
    """The spans with those of functions that were killed until another one was started in their place.

    Nobody can know when a function was killed; it is missed a little later, and replaced at once.
    """
    found = []
    for span in spans:
        later = [one.began_s for one in spans if one.slot == span.slot and one.began_s >= span.ended_s]
        is_missed = span.returned_s is None and later
        found.append(dataclasses.replace(span, ended_s=min(later)) if is_missed else span)
    return found


def true_bill(
    spans: list[Span], lives: list[Life], memory_mb: int, servers: Sequence[str], prices: str = "aws-lambda-x86"
) -> TrueBill:
    """The bill of a run: prices times what its functions have lived and its processes have requested.

    ``servers`` are those that it has used, as in `PriceProfile.servers`.
    """
    profile = price_profile(prices)
    price, requests = profile.function, profile.requests["storage"].usd
    tail_s = Rates(profile, memory_mb).tail_s

    def of(these: list[Span]) -> float:
        lengths = [max(span.span_s(tail_s), price.minimum_s) for span in these]
        quanta = sum(math.ceil(length / price.quantum_s - 1e-6) for length in lengths)
        return quanta * price.quantum_s * memory_mb / 1024 * price.usd_per_gb_s + len(these) * price.request_usd

    servers_s = max(span.ended_s for span in spans) - min(span.began_s for span in spans) if spans else 0.0
    gets, puts = (sum(getattr(life, name) for life in lives) for name in ("gets", "puts"))
    return TrueBill(
        of([span for span in spans if span.slot >= 0]),
        of([span for span in spans if span.slot < 0]),
        gets * requests["get"] + puts * requests["put"],
        math.ceil(servers_s) * servers_usd_s(servers, prices),
    )


def servers_usd_s(servers: Sequence[str], prices: str = "aws-lambda-x86") -> float:
    """Dollars per second of ``servers``, as in `true_bill`."""
    return sum(price_profile(prices).servers[name].usd_per_h for name in servers) / 3600
