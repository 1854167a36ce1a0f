"""The checks of a `TrainingJob`: of single fields, and of fields that depend on each other. Errors name the field."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..bus.urls import is_loopback, mask_url
from ..data.dataset import Dataset
from ..data.ratings import Ratings
from ..data.stored_files import StoredFiles
from ..errors import DataError, JobError
from ..exchange.stores import check_store, most_frame_bytes, store_kind
from ..frames.sources import column_names, described, is_frame
from ..models import Model, registered_models
from ..money.catalogue import price_profile, profile_names
from ..plurals import count
from ..redaction import in_configuration, remember
from ..validation import check_choice, check_positive_integer, is_integer
from .algorithm import Algorithm, DecidedSteps, GradientAveraging, registered_algorithms
from .execution import EXECUTIONS, WORKERS
from .limits import Stop
from .optimizers import FTRL, OPTIMIZERS, SGD
from .rate_schedule import SCHEDULES
from .scale_in import ScaleIn
from .sync import Sync, registered_syncs

if TYPE_CHECKING:
    from .job import TrainingJob

#: Size of a frame without its values, at most.
HEADER_BYTES = 128
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
#: Least ``speculation``: less is within what the shares of two workers, or two machines, differ.
LEAST_STRAGGLING = 1.5
#: Valid values of the fields that choose one of a few words.
CHOICES = {
    "aggregate": ("mean", "sum"),
    "codec": ("float32", "bf16", "int8"),
    "pattern": ("auto", "broadcast", "scatter-reduce", "allreduce"),
    "partition": ("auto", "rows", "user"),
    "schedule": SCHEDULES,
    "execution": EXECUTIONS,
}


def check_types(job: TrainingJob) -> None:
    """Raise unless each field has a valid type; hide the secrets in fields that may hold some from all texts."""
    for value in (job.redis, job.redis_for_functions, job.bus, job.store, job.backend, dict(os.environ)):
        remember(*in_configuration(value))
    models = tuple(registered_models().values())
    for name, kinds, valid in (
        ("model", models, " or ".join(f"{model.__name__}(...)" for model in models)),
        (
            "optimizer",
            (*OPTIMIZERS.values(), type(None)),
            ", ".join(f"{optimizer.__name__}(...)" for optimizer in OPTIMIZERS.values()) + " or None",
        ),
        ("data", (Dataset,), ""),
        ("sync", (Sync,), _any_of(*(kind.form for kind in registered_syncs().values()))),
        (
            "algorithm",
            (Algorithm, type(None)),
            _any_of(*(kind.form for kind in registered_algorithms().values()), "None"),
        ),
        ("stop", (Stop,), "Stop(target=..., epochs=..., ...)"),
        ("scale_in", (ScaleIn,), "ScaleIn(...) or ScaleIn.off()"),
        (
            "backend",
            (str, Mapping),
            "'embedded', the name of a Lithops backend or a Lithops configuration (a dict)",
        ),
        ("insecure", (bool,), "True or False"),
        ("detach", (bool, type(None)), "True, False or None"),
    ):
        if not isinstance(value := getattr(job, name), kinds):
            if name == "data":
                raise _no_dataset(value, job.model)
            raise JobError(name, _masked(value) if name == "backend" else value, valid)
    if isinstance(job.backend, Mapping) and not isinstance(job.backend.get("lithops", {}), Mapping):
        raise JobError("backend", type(job.backend), "a Lithops configuration, with a dict under 'lithops'")
    if not isinstance(job.bus, (str, type(None))):
        raise JobError("bus", _masked(job.bus), "a string or None")
    if not isinstance(job.name, (str, type(None))):
        raise JobError("name", job.name, "a string or None")


def _any_of(*forms: str) -> str:
    """``forms`` as what is valid: ``"BSP(), ASP() or None"``."""
    return f"{', '.join(forms[:-1])} or {forms[-1]}"


def _no_dataset(value: object, model: Model) -> JobError:
    """The error for ``data`` that is no dataset; it names the one call that makes a dataset of a table."""
    if not is_frame(value):
        valid = "a dataset, e.g. datasets.ratings(frame, user=...) or datasets.table(frame, label=...)"
        return JobError("data", value, valid)
    names, shown = column_names(value), described(value)
    if model.data_kind == "ratings":
        columns = [*names[:3], "...", "...", "..."][:3]
        arguments = (f"{field}={name!r}" for field, name in zip(("user", "item", "rating"), columns, strict=True))
        return JobError("data", shown, f"a dataset: datasets.ratings(frame, {', '.join(arguments)})")
    label = ", label='...'" if model.needs_labels else ""  # any column may be that of the labels
    return JobError("data", shown, f"a dataset: datasets.table(frame{label})")


def check_values(job: TrainingJob) -> None:
    """Raise unless each field by itself has a valid value."""
    check_positive_integer("workers", job.workers, or_none=True)
    check_positive_integer("minibatch", job.minibatch, or_none=True)
    check_positive_integer("eval_every", job.eval_every, or_none=True)
    check_positive_integer("checkpoint_every", job.checkpoint_every, or_none=True)
    if not is_integer(job.memory_mb) or not 128 <= job.memory_mb <= 10240:
        raise JobError("memory_mb", job.memory_mb, "an integer between 128 and 10240 (MB)")
    times = job.speculation
    is_number = isinstance(times, (int, float)) and not isinstance(times, bool)
    if times != "off" and not (is_number and LEAST_STRAGGLING <= float(times) < math.inf):
        raise JobError("speculation", times, f"'off', or a number >= {LEAST_STRAGGLING:g} (times the median worker)")
    if not is_integer(job.seed) or job.seed < 0:
        raise JobError("seed", job.seed, "an integer >= 0")
    check_positive_integer("local_steps", job.local_steps)
    for name, choices in CHOICES.items():
        check_choice(name, getattr(job, name), choices)
    if job.name is not None and not NAME.fullmatch(job.name):
        raise JobError("name", job.name, "letters, digits, _ and -, beginning with a letter, at most 64 in all")
    if job.prices not in profile_names():
        raise JobError("prices", job.prices, "one of " + ", ".join(repr(name) for name in profile_names()))
    _check_store(job)
    if isinstance(job.validation, bool) or not isinstance(job.validation, (float, int, Dataset, type(None))):
        raise JobError("validation", job.validation, "a fraction between 0 and 1, a dataset, or None")
    if isinstance(job.validation, (float, int)) and not 0 < job.validation < 1:
        raise JobError("validation", job.validation, "a fraction between 0 and 1, a dataset, or None")
    for name in ("redis", "redis_for_functions"):
        given = getattr(job, name)
        urls = [given] if isinstance(given, str) else given
        if urls is not None and (not isinstance(urls, list) or not urls or not all(isinstance(u, str) for u in urls)):
            raise JobError(name, _masked(given), "a URL such as 'redis://host:6379/0', a list of them, or None")
    if job.redis_for_functions is not None and len(job.function_redis_urls or []) != len(job.redis_urls or []):
        valid = "as many URLs as redis has, in the same order: the same servers as functions reach them"
        raise JobError("redis_for_functions", _masked(job.redis_for_functions), valid)


def _check_store(job: TrainingJob) -> None:
    """Raise unless there is such a store, the price profile has its price, and its servers are private."""
    check_store(job.store)
    kind = store_kind(job.store)
    if kind is None:
        return
    priced = [name for name in profile_names() if kind.component in {"", *price_profile(name).components}]
    if job.prices not in priced:
        raise JobError("prices", job.prices, f"one with a price of {kind.component}: " + ", ".join(map(repr, priced)))
    hosts = kind.open_hosts(job.store.partition("://")[2])
    if not job.insecure and not all(map(is_loopback, hosts)):
        valid = "on this machine, or set insecure=True: everyone in its network can read and change what is on it"
        raise JobError("store", mask_url(job.store), valid)


def check_kinds(job: TrainingJob) -> None:
    """Raise unless data and validation set are of the kind that the model is trained on."""
    job.model.check_kind(job.data)
    if isinstance(job.validation, Dataset):
        job.model.check_kind(job.validation, "validation")


def check_data(job: TrainingJob) -> None:
    """Raise unless the model can be trained on the rows, and the rows are not all the same."""
    job.model.check_data(job.data)
    if why := job.model.nothing_to_learn(job.data):
        raise DataError("data", job.data, f"rows that differ; {why}: nothing can be learnt")


def check_validation_set(job: TrainingJob) -> None:
    """Raise unless a given validation set has the kind and shape of the training rows."""
    validation = job.validation
    if not isinstance(validation, Dataset):
        return
    if isinstance(validation, StoredFiles):  # their shape is known when functions have read them
        job.model.check_kind(validation, "validation")
        return
    if validation.kind != job.data.kind or validation.shape != job.data.shape:
        raise JobError(
            "validation",
            validation,
            f"of the same kind and shape as data ({job.data.kind}, {job.data.shape}); it is "
            f"{validation.kind}, {validation.shape}" + ("; like=data codes it alike" if job.data.names else ""),
        )
    if validation.names != job.data.names:
        valid = "coded as data, as by datasets.ratings or datasets.table(..., like=data); its ids or columns are others"
        raise JobError("validation", validation, valid)
    job.model.check_data(validation, "validation")


def check_partition(job: TrainingJob) -> None:
    """Raise unless pattern, partition and optimiser suit the protocol, the model and the data."""
    for name, without in (("pattern", ("scatter-reduce", "allreduce")), ("partition", ("user",))):
        if not job.sync.is_complete and (chosen := getattr(job, name)) in without:
            others = " or ".join(repr(choice) for choice in CHOICES[name] if choice not in without)
            raise JobError(name, chosen, f"{others} with {job.sync}, whose workers are not at the same step")
    if isinstance(job.optimizer, SGD) and job.optimizer.per_sample and not hasattr(job.model, "sgd_pass"):
        able = " and ".join(kind.__name__ for kind in registered_models().values() if hasattr(kind, "sgd_pass"))
        raise JobError("SGD.per_sample", True, f"False with {job.model}: it is for {able}")
    if job.partition == "user":
        if not isinstance(job.data, Ratings):
            raise JobError("partition", job.partition, "'auto' or 'rows', or ratings as data")
        if job.data.n_raters < job.workers:
            raise JobError("workers", job.workers, f"at most {job.data.n_raters}, the users with ratings")


def check_algorithm(job: TrainingJob) -> None:
    """Raise unless the algorithm is the only one that trains the model, if there is only one."""
    only = job.model.algorithm
    if only is not None and job.algorithm.kind != only:
        raise JobError("algorithm", job.algorithm, f"left out for {job.model}: only {only!r} trains it")


def check_memory(job: TrainingJob) -> None:
    """Raise unless the tables fit into a function's memory.

    Ids that are not numbered from 0 make tables of billions of rows; such a job is refused before any function starts.
    """
    n_rows, width = job.model.table_shape(job.data.shape)
    needed_mb = job.needed_mb(is_by_user=job.partition == "user")
    if needed_mb > job.memory_mb:
        raise JobError(
            "memory_mb",
            job.memory_mb,
            f"at least {needed_mb} (MB): {job.model} has {n_rows:,} x {width} parameters on data of shape "
            f"{job.data.shape}; are its ids numbered from 0, without gaps?",
        )


def check_frames(job: TrainingJob) -> None:
    """Raise unless the store takes a frame of every parameter, as workers hand them over at the end."""
    if job.execution != WORKERS or job.workers == 1:  # updates are in the object storage, or none is exchanged
        return
    if store_kind(job.store) is None and not _publishes_all(job):  # Redis: checkpoints and models are elsewhere
        return
    most_bytes, (n_rows, width) = most_frame_bytes(job.store), job.model.table_shape(job.data.shape)
    n_bytes = 4 * n_rows * width + HEADER_BYTES
    if n_bytes > most_bytes:
        most = f"one that takes frames of {n_bytes} bytes ({n_rows:,} x {width} parameters); this one takes at most"
        raise JobError("store", mask_url(job.store), f"{most} {most_bytes}")


def _publishes_all(job: TrainingJob) -> bool:
    """Whether a frame may have every parameter: of a dense update, or of what was kept back before a hand-over."""
    optimizer = job.optimizer
    # A minibatch touches little of a table that is too large.
    if not isinstance(optimizer, FTRL) and optimizer.lazy == "auto":
        optimizer = dataclasses.replace(optimizer, lazy=True)
    is_sparse = isinstance(job.algorithm, GradientAveraging) and not optimizer.moves_untouched(job.model.dense_l2)
    return not is_sparse or job.sync.filters or job.codec != "float32"


def check_workers(job: TrainingJob) -> None:
    """Raise unless there is a minibatch for each worker in every step."""
    if job.n_minibatches < job.local_steps:
        is_decided = isinstance(job.local_steps, DecidedSteps)
        field, value = ("algorithm", job.algorithm) if is_decided else ("local_steps", job.local_steps)
        valid = f"at most {count(job.n_minibatches, 'local step')}, the number of minibatches"
        of = f"{count(job.n_train, 'training row')} in minibatches of {job.minibatch}"
        raise JobError(field, value, f"{valid} ({of})")
    if job.n_minibatches < job.workers * job.local_steps:
        most = job.n_minibatches // job.local_steps
        raise JobError(
            "workers",
            job.workers,
            f"at most {most}, for {count(job.n_minibatches, 'minibatch')} ({count(job.n_train, 'training row')} in "
            f"minibatches of {job.minibatch}), {job.local_steps} to a step; fewer workers or a smaller minibatch would "
            "do",
        )


def _masked(value: object) -> object:
    """An invalid ``value`` of a field that may hold secrets, made safe to show: only its type if it is not plain."""
    if isinstance(value, list):
        return [_masked(one) for one in value]
    if isinstance(value, (int, float, type(None))):
        return value
    return mask_url(value) if isinstance(value, str) else type(value)
