"""A function whose invocation is carried out by another one: a platform may start one twice, with the money for one."""

from __future__ import annotations

import contextlib
import zlib

from ..bus import open_bus
from ..bus.messages import Invocation, StartedTwice
from ..exchange import Coordinator
from ..exchange.slots import invoked_s_in
from ..exchange.storage.coordinator import StorageCoordinator
from ..money.budget import Prepaid
from ..storage.objects import ObjectStore

#: The first part of what such functions have spent until they book it, and twice that until they tell of it: each has
#: two of its own.
SECOND = 1 << 32
#: Reads and writes of its word where messages are objects: it has to find the end of the supervisor's.
TELL = (5, 2)
#: Seconds that such a function waits for a broker to take its word: nothing pays for them.
TELL_S = 2.0


def carries_it_out(invocation: Invocation, log: Coordinator) -> bool:
    """Whether who has the slot was started by this ``invocation``, too. The claim of its place may be lost."""
    holder = log.at_work([invocation.slot]).get(invocation.slot)
    return holder is not None and invoked_s_in(holder) == invocation.invoked_s


def book(
    invocation: Invocation, log: Coordinator, prepaid: Prepaid, objects: ObjectStore, nonce: str, *, tells: bool = True
) -> None:
    """Count what this function has spent as reserved, also above the cap, so that the others get no more.

    That comes first: it may be killed before it has told the supervisor, for the bill and an event, and then nobody
    would know of it. Raises `LostData`. Without ``tells`` the supervisor has billed it as one that did not start.
    """
    requested = prepaid.storage_nusd
    part, spent = SECOND + zlib.crc32(nonce.encode()), prepaid.alone_nusd
    if tells and isinstance(log, StorageCoordinator) and log.requested_nusd is not None:
        known, telling = log.requested_nusd, prepaid.rates.requests_nusd(*TELL)
        log.requested_nusd = lambda: known() + telling
        spent += telling - prepaid.rates.requests_nusd(0, 1)  # two last writes are in it: the books, and one of these
    log.refund(-spent, invocation.slot, part)
    if not tells:
        return
    with contextlib.suppress(Exception):  # it is in the books in any case
        where, insecure = (invocation.bus_url, invocation.job_id), invocation.insecure
        with contextlib.closing(open_bus(*where, insecure, broker_patience_s=TELL_S, objects=objects)) as bus:
            booked = spent
            if invocation.redis_urls:  # else there was nothing to connect to, and a second write would cost more
                spent = prepaid.alone_nusd
                log.refund(booked - spent, invocation.slot, SECOND + part)
            else:  # its requests are known by the books
                spent = max(spent - requested, 0)
            bus.send("supervisor", StartedTwice(invocation.slot, spent).encode())
