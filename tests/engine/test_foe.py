"""Somebody who has the password of the run's Redis writes updates: none is applied, and the run says so."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import redis
from engine.jobs import PATIENCE_S, job, wait_for_step
from servers import PrivateRedisProcess

import mlless_nb
from mlless_nb import BSP, Stop
from mlless_nb.kernels import encode_update

HUGE = 1e6


def test_a_forged_update_is_refused_and_told(redis_program: str, tmp_path: Path) -> None:
    server = PrivateRedisProcess(redis_program, tmp_path, "planted-foe")
    server.start()
    run = mlless_nb.train(
        job(redis=server.url, sync=BSP(), pattern="broadcast", partition="rows", stop=Stop(steps=10**6))
    )
    forged = encode_update(None, np.full((300, 6), HUGE, np.float32), 5, 0, 300, (0.0, 1.0, 0.0, 0.0)) + bytes(32)
    is_over = threading.Event()

    def write() -> None:
        with redis.Redis.from_url(server.url) as client:
            while not is_over.is_set():
                for key in client.scan_iter(f"mlless:{{{run.id}}}:frame:*"):
                    client.set(key, forged, xx=True, keepttl=True)

    foe = threading.Thread(target=write, daemon=True)
    try:
        wait_for_step(run, 3)
        foe.start()
        run.wait(PATIENCE_S)
    finally:
        is_over.set()
        run.stop()
        foe.join()
        run.wait(PATIENCE_S)
        server.kill()
    assert run.status == "failed"
    assert "was refused, its seal is wrong" in run.reason
    assert all(float(np.abs(array).max()) < HUGE for array in run.model.params.values())
