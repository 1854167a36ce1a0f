"""The watchdog: what is under its care goes when its owner does; keys only when the owner could not see to them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from mlless_nb.driver.servers.watchdog import Watchdog
from mlless_nb.errors import ServiceError

OWNER = """
import os, sys
from mlless_nb.driver.servers.watchdog import Watchdog
watchdog = Watchdog().start()
watchdog.add_keys([{url!r}], "mlless:mine:")
watchdog.add_path({path!r})
print(watchdog.folder, flush=True)
{then}
"""


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), 9)", "pass", "watchdog.close()"])
def test_paths_go_and_keys_unless_it_was_closed(then: str, redis_url: str, tmp_path: Path) -> None:
    client = redis.Redis.from_url(redis_url)
    for key in ("mlless:mine:job", "mlless:mine:bus:events", "mlless:other:job"):
        client.set(key, "")
    path = tmp_path / "a file"
    path.touch()
    code = OWNER.format(url=redis_url, path=str(path), then=then)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
    give_up_at = time.monotonic() + 30
    while folder.exists() and time.monotonic() < give_up_at:
        time.sleep(0.02)
    assert not folder.exists()
    assert not path.exists()
    kept = {b"mlless:mine:job", b"mlless:mine:bus:events"} if then == "watchdog.close()" else set()
    assert set(client.keys("*")) == {b"mlless:other:job", *kept}


def test_closing_may_be_done_twice_and_ends_it() -> None:
    watchdog = Watchdog().start()
    assert (watchdog.folder.stat().st_mode & 0o777) == 0o700
    watchdog.close()
    watchdog.close()
    assert not watchdog.folder.exists()
    with pytest.raises(ServiceError, match="not running"):
        watchdog.add_path("/nowhere/at/all")
