"""One pod: a container from an unpacked image, in a network namespace of its own, under its limits."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from cloud import cgroup, network
from cloud.registry import Unpacked
from cloud.sandbox_process import remove, started

#: MB of /tmp.
TMP_MB = 512
#: Of a unit of memory, bytes.
UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}
_numbers = itertools.count(1)


def bytes_of(quantity: str) -> int:
    """A quantity of memory of Kubernetes', "128Mi"."""
    number, unit = re.fullmatch(r"(\d+)(\w*)", quantity).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def cores_of(quantity: str) -> float:
    """A quantity of processors, "0.2" or "200m"."""
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


class Pod:
    """Started when it is made.

    Parameters
    ----------
    name : str
    container : dict
        As in a pod's specification.
    image : Unpacked
    folder : Path
        The box's.
    """

    def __init__(self, name: str, container: dict[str, Any], image: Unpacked, folder: Path) -> None:
        number = next(_numbers)
        self.name, self._machine = name, f"p{number}"
        self.address = f"10.77.{100 + number // 250}.{1 + number % 250}"
        limits = container["resources"]["limits"]
        self._group = cgroup.made(
            f"{cgroup.PREFIX}{os.environ['MLLESS_BOX']}-p{number}",
            bytes_of(limits["memory"]) >> 20,
            cores_of(limits["cpu"]),
            ends_whole=True,  # as Kubernetes does from version 1.28 on
        )
        network.make_machine(self._machine, self.address)
        given = {entry["name"]: self._value(entry) for entry in container.get("env", ())}
        own = dict(each.split("=", 1) for each in image.config["Env"])
        uid, _, gid = image.config["User"].partition(":")
        (place := folder / name).mkdir()
        self.log = folder / f"{name}.log"
        self.began = time.monotonic()
        self._process: subprocess.Popen[bytes] = started(
            self._machine,
            {
                "folder": str(place),
                "image": str(image.root),
                "groups": self._group.files(),
                "binds": [
                    ("/etc/hosts", "/etc/hosts"),
                    (str(folder / "bundle.pem"), "/etc/ssl/certs/ca-certificates.crt"),  # real names have real ones
                ],
                "tmp_mb": TMP_MB,
                "command": self._command(container, given, own["PATH"], image),
                "environment": {**own, **given, "AWS_CA_BUNDLE": own["SSL_CERT_FILE"], "HOSTNAME": name},
                "user": (int(uid), int(gid)),
                "cwd": image.config["WorkingDir"],
            },
            self.log,
        )

    def _value(self, entry: dict[str, Any]) -> str:
        if "valueFrom" in entry:
            assert entry["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
            return self.address
        return str(entry.get("value", ""))

    @staticmethod
    def _command(container: dict[str, Any], given: dict[str, str], path: str, image: Unpacked) -> list[str]:
        """The program with its arguments, in which "$(NAME)" stands for a variable."""
        program, *rest = [*container["command"], *container.get("args", ())]
        found = [f"{folder}/{program}" for folder in path.split(":") if (image.root / folder[1:] / program).exists()]
        return [
            *(found[:1] or [program]),
            *(re.sub(r"\$\((\w+)\)", lambda name: given.get(name[1], name[0]), each) for each in rest),
        ]

    @property
    def peak_mb(self) -> float:
        return self._group.peak_mb

    @property
    def is_out_of_memory(self) -> bool:
        return self._group.is_out_of_memory

    def wait(self, timeout_s: float) -> int:
        """The status of its program, once it has ended."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        self._group.kill()

    def close(self) -> None:
        """Remove what is left of it; its program has ended or is killed."""
        remove(self._machine, self._group, self._process)
