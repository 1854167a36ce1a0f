"""The machines of the box: network namespaces on one switch. Nothing routes out of them."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
#: Addresses of AWS, of Redis and of a relay in front of that, on the switch itself, and of the user's machine.
AWS, REDIS, RELAY, USER = "10.77.0.2", "10.77.0.3", "10.77.0.5", "10.77.0.4"
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _ip(*lines: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)


def make_switch() -> None:
    """In a network namespace that has nothing yet: the switch, and the addresses on it."""
    _ip(
        "link set lo up",
        # Its address is fixed: otherwise it would be that of one of its ports, and change as these come and go.
        "link add br0 address 02:00:00:00:00:01 type bridge",
        f"addr add {AWS}/16 dev br0",
        f"addr add {REDIS}/16 dev br0",
        f"addr add {RELAY}/16 dev br0",
        "link set br0 up",
    )


def make_machine(name: str, address: str, megabit: float | None = None) -> None:
    """A namespace with an interface on the switch; ``megabit`` per second shapes both of its directions."""
    _ip(
        f"netns add {name}",
        f"link add eth0 netns {name} type veth peer name v-{name}",
        f"link set v-{name} master br0 up",
    )
    subprocess.run(
        ["ip", "-n", name, "-batch", "-"],
        input=f"link set lo up\naddr add {address}/16 dev eth0\nlink set eth0 up\n",
        text=True,
        check=True,
        capture_output=True,
    )
    if megabit is not None:
        for where in (["-n", name], []):
            device = "eth0" if where else f"v-{name}"
            shape = ["tbf", "rate", f"{megabit:g}mbit", "burst", "256k", "latency", "50ms"]
            subprocess.run(
                ["tc", *where, "qdisc", "add", "dev", device, "root", *shape], check=True, capture_output=True
            )


def remove_machine(name: str) -> None:
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def within(name: str, make: Callable[[], T]) -> T:
    """What ``make`` returns in the namespace: a socket made there stays there. A thread enters it, and ends."""
    made: list[T] = []

    def enter() -> None:
        with open(f"/run/netns/{name}") as file:
            if _libc.setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {name}")
        made.append(make())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return made[0]


def listening(address: str, port: int) -> socket.socket:
    return socket.create_server((address, port), backlog=128)
