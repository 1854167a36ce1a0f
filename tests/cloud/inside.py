"""The box's first process, in namespaces of its own: lays the network out, starts the servers, and obeys the tests.

Each line of the standard input is an order as JSON, answered by a line; all ends with the input.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import certifi
from cloud import certificates, front, kube_api, network
from cloud.cluster import Cluster
from cloud.fleet import Fleet
from cloud.lambda_api import LambdaApi
from cloud.registry import Registry

REDIS_NAME, PASSWORD = "redis.box.test", "s3cret-of-redis"
#: The same Redis, far away: what goes there and comes back is held up by a relay.
FAR_NAME = "far.redis.box.test"
RELAY = Path(__file__).parents[2] / "benchmarks" / "delaying_relay.py"
#: Of `mlless-nb deploy`, of a user of Kubernetes, and one that nobody makes.
BUCKETS = ("mlless-nb-123456789012-us-east-1", "objects-of-kubernetes", "bucket-of-nobody")
SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def _lay_over(target: Path, text: str, folder: Path) -> None:
    """Put ``text`` in the place of a file of this machine, for the box alone."""
    copy = folder / target.name
    copy.write_text(text)
    if target.exists():
        subprocess.run(["mount", "--bind", str(copy), str(target)], check=True)


def _start_redis(folder: Path, authority: Path, certificate: Path, key: Path) -> None:
    options = {
        "port": 0,
        "tls-port": 6379,
        "bind": network.REDIS,
        "tls-cert-file": certificate,
        "tls-key-file": key,
        "tls-ca-cert-file": authority,
        "tls-auth-clients": "no",
        "requirepass": PASSWORD,
        "save": "",
        "dir": folder,
    }
    command = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with (folder / "redis.log").open("w") as log:
        subprocess.Popen(["redis-server", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _start_relay(one_way_s: float) -> None:
    words = [sys.executable, str(RELAY), network.RELAY, "6379", network.REDIS, "6379", repr(one_way_s)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()  # once it listens


def cpu_s() -> tuple[float, float]:
    """Seconds of the processors that the processes have used that are in the box, and all of this machine."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            ticks += sum(map(int, path.read_text().rpartition(")")[2].split()[11:13]))
    everybody = sum(map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:4]))  # user, nice, system
    return ticks / os.sysconf("SC_CLK_TCK"), everybody / os.sysconf("SC_CLK_TCK")


def main(folder: Path) -> None:
    """Start everything; the certificate and the hosts are known to all of the box's processes, and to no other."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    names = [*front.names(BUCKETS), kube_api.NAME, REDIS_NAME, FAR_NAME]
    authority, certificate, key = certificates.make(folder, names)
    network.make_switch()
    network.make_machine("user", network.USER)
    bundle = Path(certifi.where()).read_text() + authority.read_text()
    (folder / "bundle.pem").write_text(bundle)
    _lay_over(Path(certifi.where()), bundle, folder)
    _lay_over(SYSTEM_BUNDLE, bundle, folder)
    hosts = "127.0.0.1 localhost\n" + "".join(f"{network.AWS} {name}\n" for name in names[:-2])
    hosts += f"{network.REDIS} {REDIS_NAME}\n{network.RELAY} {FAR_NAME}\n"
    _lay_over(Path("/etc/hosts"), hosts, folder)
    _lay_over(Path("/etc/resolv.conf"), "", folder)
    _start_redis(folder, authority, certificate, key)
    fleet, aws = Fleet(folder), front.Front(certificate, key)
    api = LambdaApi(folder, fleet, aws.object_of)
    aws.serve(api)
    registry = Registry(folder)
    cluster = Cluster(folder, registry)
    kube_api.serve(cluster, certificate, key)
    (folder / "kubeconfig").write_text(kube_api.configuration(authority))

    def obey(order: dict[str, Any]) -> Any:
        match order:
            case {"set": str(name), "value": value}:  # quota, retry_after_s, megabit
                fleet.change(name, value)
            case {"kill": str(request)}:
                return fleet.kill(request)
            case {"forget": _}:
                fleet.forget()
            case {"requests": _}:
                said, api.requests[:] = list(api.requests), []
                return said
            case {"called": _}:
                called = {who: sorted(actions) for who, actions in aws.called.items()}
                for actions in aws.called.values():
                    actions.clear()
                return called
            case {"broken": _}:
                return aws.broken
            case {"functions": _}:
                return {
                    n: {k: f[k] for k in ("MemorySize", "Timeout", "code", "layers")} for n, f in api.functions.items()
                }
            case {"relay": float(one_way_s)}:
                _start_relay(one_way_s)
            case {"cpu_s": _}:
                return cpu_s()
            case {"push": str(archive)}:
                return registry.push(Path(archive))
            case {"root": str(image)}:
                return str(registry.images[image].root)
            case {"tag": str(name), "image": str(image)}:
                registry.images[name] = registry.images[image]
            case {"withdraw": list(names)}:
                registry.withdrawn = set(names)
            case {"deny": list(actions)}:
                cluster.denied = set(actions)
            case {"kill_pod": str(name)}:
                return cluster.kill(name)
            case {"timeout": seconds}:
                for function in api.functions.values():
                    function["Timeout"] = seconds
        return None

    print(json.dumps({"pid": os.getpid(), "ready_s": time.time()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(obey(json.loads(line))), flush=True)
    fleet.close()
    cluster.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
