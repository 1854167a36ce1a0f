"""The part of a Lithops configuration that functions need. Lithops itself ships all of it in every payload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...redaction import SECRET_NAME, in_configuration
from . import deployed

#: Lifetime of a local function, and of one of a cloud where Lithops has no word for it, seconds.
LOCAL_LIFETIME_S, LIFETIME_S = 7 * 86_400, 600
#: In the place of Lithops' defaults: functions live as long as the cloud lets them, and what starts them longer.
DEFAULTS = {
    "aws_lambda": {"runtime_timeout": deployed.LIFETIME_S},
    "k8s": {"runtime_timeout": 86_400, "master_timeout": 86_400},
}
#: The extra of Lithops that installs a cloud's packages, by the prefix of a missing module's name.
EXTRAS = {
    "alibabacloud": "aliyun",
    "azure": "azure",
    "boto": "aws",
    "google": "gcp",
    "httplib2": "gcp",
    "ibm": "ibm",
    "kubernetes": "kubernetes",
    "oci": "oracle",
    "oss2": "aliyun",
}


def not_installed(module: str) -> str:
    """That a module is missing which Lithops needs for a backend, and what installs it."""
    extra = next((extra for start, extra in EXTRAS.items() if module.startswith(start)), "all")
    return f"{module} is not: pip install 'lithops[{extra}]'"


def configured(backend: str | Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """Lithops' configuration and the name of its backend: one of both, the other is None.

    A name that `mlless-nb deploy` has written a profile for stands for that.
    """
    profile = deployed.find(backend)
    if profile is not None:
        return profile.lithops_config(), None
    return (None, backend) if isinstance(backend, str) else (copied(backend), None)


def for_local(config: dict[str, Any] | None, n_functions: int, runtime: str) -> dict[str, Any]:
    """``config`` for functions that are processes of this machine, started by ``runtime``."""
    config = config or {"lithops": {"backend": "localhost", "storage": "localhost"}}
    config.setdefault("lithops", {})["data_cleaner"] = False
    config["lithops"].setdefault("execution_timeout", LOCAL_LIFETIME_S)
    local = config.setdefault("localhost", {})
    local.update(version=1, worker_processes=n_functions)
    local.setdefault("runtime", runtime)
    return config


def for_cloud(config: dict[str, Any] | None, name: str | None) -> dict[str, Any] | None:
    """``config``, or Lithops' own file if None, with our defaults where it does not decide; None if there is none."""
    if config is None:
        from lithops.config import load_config

        config = load_config(log=False)
        if not config.get(str(name)):  # Lithops says what is missing
            return None
    backend = name or config.get("lithops", {}).get("backend")
    section = config.get(backend)
    if isinstance(section, dict):
        for key, value in DEFAULTS.get(str(backend), {}).items():
            section.setdefault(key, value)
    return config


def for_functions(config: Mapping[str, Any]) -> dict[str, Any]:
    """What functions of ``config`` need, as a copy.

    They open the object storage, so they get its section with its keys. Of the backend's section they need the settings
    but no secret, unless it is the storage's, too, or its functions are to be invoked by a function (Lithops'
    ``remote_invoker``). All other sections, of other clouds, brokers and monitors, stay here.
    """
    general = config["lithops"]
    backend, storage = general.get("backend"), general.get("storage")
    kept: dict[str, Any] = {"lithops": without_secrets(general)}
    if "monitoring" in kept["lithops"]:
        kept["lithops"]["monitoring"] = "storage"  # another one would need its section; nothing here listens to it
    if backend in config:
        section = config[backend]
        invokes = isinstance(section, Mapping) and section.get("remote_invoker")
        kept[backend] = dict(section) if invokes else without_secrets(section)
    if storage in config:
        kept[storage] = dict(config[storage])
    return kept


def can_functions_invoke(config: Mapping[str, Any]) -> bool:
    """Whether functions of ``config`` get all that it takes to invoke others: no part of its section is left out."""
    backend = config["lithops"].get("backend")
    if backend == "k8s":  # its client is not in the image, and pods have no right to make others
        return False
    return bool(for_functions(config).get(backend, {}) == config.get(backend, {}))


def copied(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that shares no dictionary with the user's configuration."""
    return {key: copied(value) if isinstance(value, Mapping) else value for key, value in config.items()}


def without_secrets(section: Any) -> Any:
    """A section without the fields that hold secrets by their names, as a copy."""
    if isinstance(section, Mapping):
        return {name: without_secrets(each) for name, each in section.items() if not SECRET_NAME.search(str(name))}
    return list(section) if isinstance(section, list) else section


def secrets_of(config: Mapping[str, Any]) -> Iterator[str]:
    """The secrets in a configuration, to be hidden from texts."""
    return in_configuration(config)
