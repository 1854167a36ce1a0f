"""A run's functions on a cloud: deployed and counted before it, invoked within a deadline, and why they failed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ... import remedies
from ...errors import ServiceError
from ...stateless import nested
from .call_failures import Failure, failures_in, n_notes
from .deliveries import Deliveries, deliveries_of
from .pods import Pods, cause_of, check_image, pods_of

#: An invocation that waits longer in AWS' queue, seconds, is dropped: its run has replaced it.
QUEUED_S = 60
#: Polls of the last notes of functions, each a request, and seconds between two.
NOTES_POLLS, NOTES_POLL_S = 5, 0.5


def said_of(error: Exception, config: Mapping[str, Any] | None, name: str | None = None) -> str:
    """An error of Lithops in one line, with the remedy if it is one of AWS.

    ``config`` is Lithops' configuration, ``name`` that of a backend where there is none. Other clouds have errors with
    AWS' codes, too, and other remedies.
    """
    general = (config or {}).get("lithops", {})
    is_aws = any(str(each).startswith("aws_") for each in (general.get("backend"), general.get("storage"), name))
    return (is_aws and remedies.known(error)) or cause_of(error)


class CloudFunctions:
    """What Lithops leaves open on a cloud.

    Parameters
    ----------
    executor : lithops.FunctionExecutor
    memory_mb : int
    """

    def __init__(self, executor: Any, memory_mb: int) -> None:
        self._executor, self._memory_mb = executor, memory_mb
        nested.invoke_in_region(executor)
        self._deliveries: Deliveries | None = deliveries_of(executor)
        self._pods: Pods | None = pods_of(executor)
        self._n_invoked = 0

    @property
    def _name(self) -> str:
        """Lithops' name of the runtime: an image, or the layer."""
        return str(self._executor.compute_handler.get_runtime_info()["runtime_name"])

    def deploy(self) -> None:
        """Deploy the functions where they are not yet there, as Lithops would at the first invocation."""
        from lithops.version import __version__

        name = self._name
        if self._pods is not None:
            check_image(name)
        key = self._executor.compute_handler.get_runtime_key(name, self._memory_mb, __version__)
        is_known = bool(self._executor.internal_storage.get_runtime_meta(key))
        select = partial(self._executor.invoker.select_runtime, "", self._memory_mb)
        if self._pods is not None:
            self._pods.check_rights(is_known=is_known)
            if not is_known:
                self._pods.deploy(name, select)
            self._pods.start_master(name)
            return
        if is_known:
            return
        select()
        client = getattr(self._executor.compute_handler.backend, "lambda_client", None)
        if client is not None:  # a lost worker is replaced by its run: AWS must not start it a second time
            with contextlib.suppress(Exception):  # not permitted
                client.put_function_event_invoke_config(
                    FunctionName=key.rpartition("/")[2], MaximumRetryAttempts=0, MaximumEventAgeInSeconds=QUEUED_S
                )

    @property
    def quota(self) -> int | None:
        """Functions that the account may run at once; None if that cannot be known."""
        client = getattr(getattr(self._executor.compute_handler, "backend", None), "lambda_client", None)
        with contextlib.suppress(Exception):  # not permitted
            if client is not None:
                limits = client.get_account_settings()["AccountLimit"]
                return int(limits.get("UnreservedConcurrentExecutions", limits["ConcurrentExecutions"]))
        return None

    def allow(self, n: int) -> None:
        """Have Lithops invoke up to ``n`` functions at once, whatever its configuration says."""
        self._executor.invoker.max_workers = n

    def begin(self) -> None:
        """To be called before functions are invoked."""
        if hasattr(self._executor.invoker, "running_workers"):
            # Lithops keeps calls back while those before run, and hears of none that has ended: its monitor is stopped.
            self._executor.invoker.running_workers = 0
        if self._deliveries is not None:
            self._deliveries.begin()
        if self._pods is not None and self._n_invoked:  # else it has just been started
            self._pods.start_master(self._name)

    def accepted(self, n: int) -> None:
        """To be called after ``n`` functions were invoked; raises ServiceError if one was refused."""
        self._n_invoked += n
        if self._deliveries is not None:
            self._deliveries.wait(n)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """Wait until each function has written its last note, so that this can be removed; lost ones write none.

        Where pods were lost, those that the cluster has started for them may wait for calls that nobody assigns: they
        are removed afterwards, since a cluster that does not answer must not keep the run's objects.
        """
        is_complete = False
        try:
            is_complete = self._await_notes()
            yield
        finally:
            if self._pods is not None and not is_complete:
                self._pods.remove_jobs()

    @property
    def leaves_notes(self) -> bool:
        """Whether functions that fail as they start leave notes; pods may never start, or again and again."""
        return self._pods is None

    def have_ended(self) -> bool:
        """Whether all that were invoked have ended, and none was lost: each has written its last note; a request."""
        storage = self._executor.storage
        return n_notes(storage, storage.bucket, str(self._executor.executor_id)) >= self._n_invoked

    def _await_notes(self) -> bool:
        for _ in range(NOTES_POLLS if self._n_invoked else 0):
            if self.have_ended():
                return True
            time.sleep(NOTES_POLL_S)
        return not self._n_invoked

    def failures(self) -> list[Failure]:
        """What Lithops has noted of this run's functions that failed, and what the cluster says of their pods."""
        storage = self._executor.storage
        try:
            noted = failures_in(storage, storage.bucket, str(self._executor.executor_id))
        except Exception as error:
            raise ServiceError(f"object storage: reading why functions failed: {error}") from error
        return noted + (self._pods.failures() if self._pods is not None else [])
