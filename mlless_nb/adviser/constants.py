"""The constants of the analytic model, from ``constants.toml``."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

import numpy as np


@dataclass(frozen=True)
class Link:
    """A link: bytes per second, and seconds of a request's latency."""

    bytes_s: float
    latency_s: float


@dataclass(frozen=True)
class VM:
    """A virtual machine: its cores, its price and the network between several of them."""

    name: str
    cores: int
    usd_per_h: float
    link: Link


@dataclass(frozen=True)
class Gpu:
    """A VM with a GPU: its price, and its speed relative to one core."""

    label: str
    usd_per_h: float
    speedup: float


@dataclass(frozen=True)
class Constants:
    """See ``constants.toml``; ``channels`` has the links between functions by the name of the store."""

    workers: tuple[int, ...]
    functions_s: tuple[float, ...]
    vms_s: tuple[float, ...]
    data: Link
    channels: Mapping[str, Link]
    labels: Mapping[str, str]
    vms: Mapping[str, VM]
    gpu: Gpu

    def start_s(self, n_workers: int, *, are_vms: bool = False) -> float:
        """Seconds until ``n_workers`` functions (or VMs) can begin: between table 6's numbers of workers, linear."""
        return float(np.interp(n_workers, self.workers, self.vms_s if are_vms else self.functions_s))


@functools.cache
def constants() -> Constants:
    """The constants of ``constants.toml``."""
    entry = tomllib.loads((resources.files(__package__) / "constants.toml").read_text("utf-8"))
    vms = {
        name: VM(name, vm["cores"], vm["usd_per_h"], Link(vm["bytes_s"], vm["latency_s"]))
        for name, vm in entry["vms"].items()
    }
    channels = {
        name: vms[channel["vm"]].link if "vm" in channel else Link(channel["bytes_s"], channel["latency_s"])
        for name, channel in entry["channels"].items()
    }
    labels = {name: channel["label"] for name, channel in entry["channels"].items()}
    start_up = {name: tuple(values) for name, values in entry["start_up"].items()}
    return Constants(
        **start_up, data=Link(**entry["data"]), channels=channels, labels=labels, vms=vms, gpu=Gpu(**entry["gpu"])
    )
