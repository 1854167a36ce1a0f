"""The faults: each does its harm to a live run and says in words what it did."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable

from chaos.scene import Scene, name_of

from mlless_nb.bus.messages import Aged

Fault = Callable[[Scene], str]
FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    """Register a fault under ``name``."""

    def register(function: Fault) -> Fault:
        FAULTS[name] = function
        return function

    return register


# -- functions


@fault("worker killed")
def kill_worker(scene: Scene) -> str:
    """Kill -9 a worker."""
    return f"{scene.kill(scene.choose(1))} killed"


@fault("supervisor killed")
def kill_supervisor(scene: Scene) -> str:
    """Kill -9 the supervisor."""
    return f"{scene.kill(scene.choose(1, among='supervisor'))} killed"


@fault("several killed")
def kill_several(scene: Scene) -> str:
    """Kill -9 some functions, the supervisor may be among them."""
    return f"{scene.kill(scene.choose(scene.rng.randint(2, 4), among='all'))} killed"


@fault("all killed")
def kill_all(scene: Scene) -> str:
    """Kill -9 all functions."""
    scene.kill(scene.choose(scene.case.workers + 1, among="all"))
    return "all functions killed"


@fault("worker frozen past its lease")
def freeze(scene: Scene) -> str:
    """Stop a worker until it counts as lost, and let it come back: a zombie."""
    victims = scene.choose(1)
    for slot, process in victims:
        scene.signal(slot, process, signal.SIGSTOP)
        scene.until(lambda slot=slot, process=process: scene.processes().get(slot, process) != process, 60.0)  # type: ignore[misc]
        scene.signal(slot, process, signal.SIGCONT)
    return f"{', '.join(f'worker {slot}' for slot, _ in victims)} frozen past its lease, then awake"


@fault("straggler")
def straggle(scene: Scene) -> str:
    """Let a worker run for a tenth of the time only."""
    victims, until = scene.choose(1), time.monotonic() + scene.rng.uniform(0.5, 2.0)
    for slot, process in victims:
        while scene.is_live and time.monotonic() < until:
            scene.signal(slot, process, signal.SIGSTOP)
            time.sleep(0.18)
            scene.signal(slot, process, signal.SIGCONT)
            time.sleep(0.02)
        scene.hit.pop(slot, None)
    return f"{', '.join(f'worker {slot}' for slot, _ in victims)} ten times slower for a while"


@fault("runner killed")
def kill_runner(scene: Scene) -> str:
    """Kill -9 the process of Lithops whose children the first functions are."""
    group = scene.services.launcher.process_groups[0]
    with contextlib.suppress(ProcessLookupError):
        os.kill(group, signal.SIGKILL)
    return "Lithops' runner killed"


@fault("invoked twice")
def invoke_twice(scene: Scene) -> str:
    """Invoke a function that is at work once more."""
    slot = scene.rng.randrange(-1, scene.case.workers)
    with scene.before_the_end():
        scene.services.invoke_functions([scene.payload(slot)], f"runs/{scene.run.id}")
    return f"{name_of(slot)} invoked twice"


@fault("killed during a checkpoint")
def kill_during_checkpoint(scene: Scene) -> str:
    """Kill -9 a worker when the first part of a new checkpoint appears."""
    before = set(scene.parts())
    scene.until(lambda: bool(set(scene.parts()) - before), 20.0)
    return f"{scene.kill(scene.choose(1))} killed during a checkpoint"


@fault("killed during an eviction")
def kill_during_eviction(scene: Scene) -> str:
    """Remove a worker by hand and kill -9 one at once."""
    scene.run.scale_in(1)
    return f"{scene.kill(scene.choose(1))} killed during an eviction"


@fault("killed during a hand-over")
def kill_during_hand_over(scene: Scene) -> str:
    """Ask the driver for a successor of a function, as an old one does, and kill -9 it or another one meanwhile."""
    slot, before = scene.rng.randrange(-1, scene.case.workers), set(scene.services.launcher.process_groups)
    scene.driver._fault_handler.aged.append(Aged([slot]))
    scene.until(lambda: bool(set(scene.services.launcher.process_groups) - before), 20.0)
    time.sleep(scene.rng.uniform(0.0, 0.5))
    victims = (
        scene.choose(1) if scene.rng.random() < 0.5 else [one for one in scene.choose(9, among="all") if one[0] == slot]
    )
    return f"{scene.kill(victims)} killed during a hand-over of {name_of(slot)}"


# -- checkpoints


def damage(scene: Scene, how: Callable[[bytes], bytes | None]) -> str:
    """Damage a part of the newest checkpoint, and kill -9 a worker, so that it is needed."""
    objects = scene.services.launcher.objects
    if not scene.until(lambda: bool(scene.parts()), 20.0):
        return "no checkpoint to damage;"
    key = scene.rng.choice(scene.parts()[-scene.case.workers :])
    blob = how(objects.get(key))
    if blob is None:
        objects.delete([key])
    else:
        objects.put(key, blob)
    return f"{key.split('/', 2)[-1]} damaged, {scene.kill(scene.choose(1))} killed:"


@fault("checkpoint part deleted")
def delete_part(scene: Scene) -> str:
    """Delete a part of the newest checkpoint."""
    return f"{damage(scene, lambda blob: None)} deleted"


@fault("checkpoint part truncated")
def truncate_part(scene: Scene) -> str:
    """Cut a part of the newest checkpoint short."""
    return f"{damage(scene, lambda blob: blob[: scene.rng.randrange(len(blob))])} truncated"


@fault("checkpoint part with a flipped byte")
def flip_byte(scene: Scene) -> str:
    """Flip a byte in a part of the newest checkpoint."""

    def flip(blob: bytes) -> bytes:
        at = scene.rng.randrange(len(blob))
        return blob[:at] + bytes([blob[at] ^ (1 << scene.rng.randrange(8))]) + blob[at + 1 :]

    return f"{damage(scene, flip)} a byte flipped"


# -- Redis


@fault("Redis stopped")
def stop_redis(scene: Scene) -> str:
    """Stop the process of Redis for a while."""
    return pause_redis(scene, scene.rng.uniform(0.2, 3.0))


def pause_redis(scene: Scene, pause_s: float) -> str:
    """Stop the process of Redis for ``pause_s`` seconds."""
    process = scene.redis_process()
    os.kill(process, signal.SIGSTOP)
    time.sleep(pause_s)
    os.kill(process, signal.SIGCONT)
    return f"Redis stopped for {pause_s:.1f} s"


@fault("CLIENT PAUSE")
def client_pause(scene: Scene) -> str:
    """Let Redis answer nobody for a while."""
    pause_s = scene.rng.uniform(0.2, 3.0)
    with scene.redis() as client:
        client.client_pause(int(pause_s * 1000))
    return f"Redis paused for {pause_s:.1f} s (CLIENT PAUSE)"


@fault("Redis emptied")
def empty_redis(scene: Scene) -> str:
    """Remove every key."""
    with scene.redis() as client:
        client.flushall()
    return "Redis emptied"


@fault("Redis restarted empty")
def restart_redis_empty(scene: Scene) -> str:
    """Kill -9 Redis, and start it without its data."""
    server = scene.servers.redis
    assert server is not None
    server.kill()
    shutil.rmtree(server.folder / "appendonlydir", ignore_errors=True)
    server.start()
    return "Redis killed and restarted empty"


@fault("Redis restarted from an older file")
def restart_redis_from_the_past(scene: Scene) -> str:
    """Kill -9 Redis, and start it with its append-only file of some steps ago."""
    server = scene.servers.redis
    assert server is not None
    folder, older = server.folder / "appendonlydir", server.folder / "older"
    shutil.rmtree(older, ignore_errors=True)
    shutil.copytree(folder, older)
    step = scene.step
    scene.until(lambda: scene.step > step + scene.case.checkpoint_every, 20.0)
    scene.has_past = True
    server.kill()
    shutil.rmtree(folder)
    older.rename(folder)
    server.start()
    return f"Redis killed and restarted with its data of about step {step}"


@fault("private Redis killed")
def kill_private_redis(scene: Scene) -> str:
    """Kill -9 the server that the driver has started."""
    os.kill(scene.redis_process(), signal.SIGKILL)
    return "the private Redis killed"


@fault("watchdog killed")
def kill_watchdog(scene: Scene) -> str:
    """Kill -9 the shell that guards the private Redis, which dies with it."""
    os.kill(scene.services.embedded._finalizer.peek()[2][0].pid, signal.SIGKILL)
    return "the watchdog of the private Redis killed"


# -- RabbitMQ


@fault("RabbitMQ restarted")
def restart_rabbitmq(scene: Scene) -> str:
    """Kill -9 the broker and start it again."""
    server = scene.servers.rabbit
    assert server is not None
    server.kill()
    began = time.monotonic()
    server.start()
    return f"RabbitMQ killed and restarted after {time.monotonic() - began:.1f} s"


@fault("RabbitMQ cut off")
def cut_off_rabbitmq(scene: Scene) -> str:
    """Pass on nothing to or from the broker for more than ten seconds, and never again on the old connections."""
    relay = scene.servers.relay
    assert relay is not None
    away_s = scene.rng.uniform(11.0, 14.0)
    relay.go_silent()
    time.sleep(away_s)
    relay.come_back()
    return f"RabbitMQ cut off for {away_s:.1f} s"


# -- the object storage


@fault("storage throttled")
def throttle(scene: Scene) -> str:
    """Answer most requests to the object storage with 503 for a while."""
    assert scene.servers.throttle is not None
    for_s = scene.rng.uniform(1.0, 4.0)
    scene.servers.throttle(for_s)
    return f"the object storage answers 503 for {for_s:.1f} s"
