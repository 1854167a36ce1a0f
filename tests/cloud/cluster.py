"""A cluster of Kubernetes in the box: jobs, their pods, and who watches them."""

from __future__ import annotations

import contextlib
import copy
import json
import queue
import re
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cloud.pod import Pod
from cloud.registry import Registry

Thing = dict[str, Any]
#: Seconds before the first pod that failed is replaced; the next ones wait twice as long each.
BACK_OFF_S = 10.0
#: Most of a log that a container that failed leaves as its message.
MESSAGE_BYTES = 2048
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Refused(Exception):  # noqa: N818 - Kubernetes' own names are in it
    """An error of the API: its status and reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def exit_code(ended: int | str) -> int:
    """A container's, of a sandbox that ended with a status, or with a signal below 256; a word is why it was killed."""
    if isinstance(ended, str):
        ended = -signal.SIGKILL
    number = -ended if ended < 0 else 256 - ended if ended > 256 - signal.NSIG else 0
    return 128 + number if number else int(ended)


class Cluster:
    """Jobs in one namespace; what happens to pods is written to ``pods.jsonl`` in ``folder``."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self._folder, self._registry = folder, registry
        self._things: dict[str, dict[str, Thing]] = {"jobs": {}, "pods": {}}
        self._running: dict[str, Pod] = {}
        self._watchers: list[tuple[str, Callable[[Thing], bool], queue.Queue[Thing]]] = []
        self._lock, self._version = threading.RLock(), 1
        #: What the user may not do, such as "create jobs".
        self.denied: set[str] = set()
        self._log = (folder / "pods.jsonl").open("a", buffering=1)

    # -- what is stored

    def _changed(self, kind: str, event: str, thing: Thing) -> None:
        with self._lock:
            self._version += 1
            thing["metadata"]["resourceVersion"] = str(self._version)
            told = {"type": event, "object": copy.deepcopy(thing)}
            for wanted, matches, inbox in self._watchers:
                if wanted == kind and matches(thing):
                    inbox.put(told)

    def list(self, kind: str, matches: Callable[[Thing], bool]) -> Thing:
        with self._lock:
            items = [copy.deepcopy(thing) for thing in self._things[kind].values() if matches(thing)]
        version, name = ("batch/v1", "JobList") if kind == "jobs" else ("v1", "PodList")
        return {
            "apiVersion": version,
            "kind": name,
            "metadata": {"resourceVersion": str(self._version)},
            "items": items,
        }

    def get(self, kind: str, name: str) -> Thing:
        with self._lock:
            if name not in self._things[kind]:
                raise Refused(404, "NotFound", f'{kind} "{name}" not found')
            return copy.deepcopy(self._things[kind][name])

    def watch(self, kind: str, matches: Callable[[Thing], bool], seconds: float) -> Iterator[Thing]:
        """What is there, then what happens, for so long."""
        inbox: queue.Queue[Thing] = queue.Queue()
        with self._lock:
            for thing in self.list(kind, matches)["items"]:
                inbox.put({"type": "ADDED", "object": thing})
            self._watchers.append(entry := (kind, matches, inbox))
        give_up_at = time.monotonic() + seconds
        try:
            while (left_s := give_up_at - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    yield inbox.get(timeout=left_s)
        finally:
            with self._lock:
                self._watchers.remove(entry)

    # -- jobs

    def create(self, job: Thing) -> Thing:
        name = job["metadata"]["name"]
        if not _NAME.fullmatch(name):
            raise Refused(422, "Invalid", f'Job.batch "{name}" is invalid: metadata.name: Invalid value')
        with self._lock:
            if name in self._things["jobs"]:
                raise Refused(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
            job["metadata"]["uid"] = str(uuid.uuid4())
            job["status"] = {"active": job["spec"].get("parallelism", 1)}
            self._things["jobs"][name] = job
            self._changed("jobs", "ADDED", job)
        for _ in range(job["status"]["active"]):
            threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return job

    def delete(self, kind: str, name: str) -> Thing:
        with self._lock:
            gone = self._things[kind].pop(name, None)
            if gone is None:
                raise Refused(404, "NotFound", f'{kind} "{name}" not found')
            self._changed(kind, "DELETED", gone)
        for pod in self._pods_of(name) if kind == "jobs" else [name]:
            self._stop(pod)
            with self._lock:
                ended = self._things["pods"].get(pod) if pod not in self._running else None
            if ended is not None and ended["status"]["phase"] in ("Succeeded", "Failed"):
                self._forget(ended)
        return gone

    def _pods_of(self, job: str) -> list[str]:
        with self._lock:
            return [n for n, pod in self._things["pods"].items() if pod["metadata"]["labels"]["job-name"] == job]

    def _stop(self, pod: str) -> None:
        with self._lock:
            running = self._running.get(pod)
        if running is not None:
            running.kill()

    def kill(self, pod: str) -> bool:
        """Kill a pod's processes, as when its node is gone."""
        with self._lock:
            is_there = pod in self._running
        self._stop(pod)
        return is_there

    # -- pods

    def _run(self, job: Thing) -> None:
        spec, meta = job["spec"]["template"]["spec"], job["metadata"]
        container, name = spec["containers"][0], f"{meta['name']}-{uuid.uuid4().hex[:5]}"
        labels = {"job-name": meta["name"], "batch.kubernetes.io/job-name": meta["name"]}
        pod: Thing = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels, "uid": str(uuid.uuid4())},
            "spec": copy.deepcopy(spec),
            "status": {"phase": "Pending"},
        }
        with self._lock:
            self._things["pods"][name] = pod
            self._changed("pods", "ADDED", pod)
        image = self._registry.pull(container["image"])
        if image is None:
            return self._waits(pod, container["image"])
        try:
            running = Pod(name, container, image, self._folder)
        except Exception as error:
            self._log.write(json.dumps({"pod": name, "event": "failed", "error": repr(error)}) + "\n")
            raise
        with self._lock:
            self._running[name] = running
            is_wanted = meta["name"] in self._things["jobs"]
            pod["status"] = {"phase": "Running", "podIP": running.address}
            self._changed("pods", "MODIFIED", pod)
        self._log.write(json.dumps({"event": "began", "pod": name, "at_s": time.time()}) + "\n")
        if not is_wanted:
            running.kill()
        return self._watch_over(job, pod, running)

    def _waits(self, pod: Thing, image: str) -> None:
        """For an image that is not in the registry: until its job is deleted, as the cluster's nodes do."""
        state = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
        with self._lock:
            self._say_of_container(pod, waiting=state)
            self._changed("pods", "MODIFIED", pod)
        while pod["metadata"]["labels"]["job-name"] in self._things["jobs"]:
            time.sleep(0.1)
        self._forget(pod)

    @staticmethod
    def _say_of_container(pod: Thing, **state: Thing) -> None:
        container = pod["spec"]["containers"][0]
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False}
        pod["status"]["containerStatuses"] = [{**status, "restartCount": 0, "state": state}]

    def _watch_over(self, job: Thing, pod: Thing, running: Pod) -> None:
        name, status = pod["metadata"]["name"], job["status"]
        try:
            ended: int | str = running.wait(job["spec"]["activeDeadlineSeconds"])
        except subprocess.TimeoutExpired:
            ended = "DeadlineExceeded"
        peak_mb, lived_s = running.peak_mb, time.monotonic() - running.began
        is_good, was_too_small = ended == 0, running.is_out_of_memory
        running.close()
        end = {"exitCode": exit_code(ended), "reason": "Completed" if is_good else "Error"}
        if was_too_small:
            end["reason"] = "OOMKilled"
        elif not is_good and pod["spec"]["containers"][0].get("terminationMessagePolicy") == "FallbackToLogsOnError":
            end["message"] = running.log.read_text()[-MESSAGE_BYTES:]
        note = {
            "pod": name,
            "at_s": time.time(),
            "status": ended,
            "lived_s": round(lived_s, 3),
            "peak_mb": round(peak_mb, 1),
        }
        self._log.write(json.dumps({"event": "ended", **note}) + "\n")
        with self._lock:
            del self._running[name]
            pod["status"]["phase"] = "Succeeded" if is_good else "Failed"
            self._say_of_container(pod, terminated=end)
            self._changed("pods", "MODIFIED", pod)
            status["active"] -= 1
            kind = "succeeded" if is_good else "failed"
            status[kind] = status.get(kind, 0) + 1
            is_listed = self._things["jobs"].get(job["metadata"]["name"]) is job
            if is_listed:
                self._changed("jobs", "MODIFIED", job)
        if not is_good and is_listed:
            self._after_failure(job)
        if not is_listed:
            self._forget(pod)

    def _after_failure(self, job: Thing) -> None:
        """End the others of a job with too many failed pods; else replace this one, unless another has succeeded."""
        name, status = job["metadata"]["name"], job["status"]
        if status["failed"] > job["spec"].get("backoffLimit", 6):
            for other in self._pods_of(name):
                self._stop(other)
            return
        time.sleep(BACK_OFF_S * 2 ** (status["failed"] - 1))
        with self._lock:
            if self._things["jobs"].get(name) is not job or status.get("succeeded"):
                return
            status["active"] += 1
        self._run(job)

    def _forget(self, pod: Thing) -> None:
        with self._lock:
            self._things["pods"].pop(pod["metadata"]["name"], None)
            self._changed("pods", "DELETED", pod)

    def close(self) -> None:
        for running in list(self._running.values()):
            running.close()
