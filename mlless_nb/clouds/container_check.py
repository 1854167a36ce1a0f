"""What a run on containers would trip over: Lithops' configuration, image, cluster and storage, a line each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..driver.backends.cluster_rights import missing_right
from ..driver.backends.lithops_config import for_cloud, not_installed, secrets_of
from ..driver.backends.pods import ANSWER_S, CONNECT_S, TAG, cause_of, check_image
from ..errors import JobError, MllessError
from ..redaction import remember
from .doctor import Finding, UnfitError

#: Backends whose functions are containers; of these, the one on which runs were seen (`tests/cloud`).
BACKENDS, TRIED = ("k8s", "code_engine", "gcp_cloudrun", "knative"), ("k8s",)
AGAIN = "mlless-nb runtime build k8s"
#: An object that is written and deleted.
PROBE = "mlless-nb/check"


def examine(path: Path | None = None) -> list[Finding]:
    """All checks; nothing is started.

    Parameters
    ----------
    path : Path, optional
        Of Lithops' configuration; None: where Lithops looks for it.
    """
    findings: list[Finding] = []

    def check(name: str, ask: Callable[[], str]) -> bool:
        try:
            findings.append(Finding(name, True, ask()))
        except MllessError as error:
            findings.append(Finding(name, False, str(error)))
        return findings[-1].is_good

    whole: list[dict[str, Any]] = []
    if not check("configuration", lambda: _configuration(path, whole)):
        return findings
    config, backend = whole[0], whole[0]["lithops"]["backend"]
    check("image", lambda: _image(config[backend]))
    if backend == "k8s":
        check("cluster", lambda: _cluster(config["k8s"]))
    check("storage", lambda: _storage(config))
    return findings


def _configuration(path: Path | None, whole: list[dict[str, Any]]) -> str:
    from lithops.config import default_config, load_config

    try:
        config = load_config(str(path) if path is not None else None, log=False)
        remember(*secrets_of(config))
        backend = str(config.get("lithops", {}).get("backend"))
        if backend in BACKENDS and not isinstance(config.get(backend), dict):
            config[backend] = {}
        config = default_config(config_data=for_cloud(config, backend))
    except ModuleNotFoundError as error:
        raise UnfitError(f"packages of {backend} are to be installed; {not_installed(str(error.name))}") from None
    except Exception as error:
        raise UnfitError(f"Lithops says: {_line(error)}") from None
    if backend not in BACKENDS:
        raise UnfitError(f"backend {backend}: this is for {', '.join(BACKENDS)}")
    whole.append(config)
    tried = "" if backend in TRIED else "; nobody has run functions of mlless_nb there yet"
    lifetime_s = config[backend]["runtime_timeout"]
    return f"backend {backend}, storage {config['lithops']['storage']}, functions live {lifetime_s} s{tried}"


def _image(section: dict[str, Any]) -> str:
    image = str(section.get("runtime", "default"))
    if image == "default":
        raise UnfitError(f"runtime is not set, and Lithops' own image has no mlless_nb: {AGAIN}")
    try:
        check_image(image)
    except JobError as error:
        raise UnfitError(str(error)) from None
    is_ours = TAG.fullmatch(image.rpartition(":")[2]) is not None
    return f"{image}, {'this Python and mlless_nb' if is_ours else 'whose mlless_nb is compared when functions start'}"


def _cluster(section: dict[str, Any]) -> str:
    try:
        from lithops.serverless.backends.k8s import ServerlessBackend

        backend = ServerlessBackend(dict(section), None)
        missing = missing_right(backend, (CONNECT_S, ANSWER_S))
    except ModuleNotFoundError as error:
        raise UnfitError(f"{error.name} is not installed: pip install 'mlless_nb[k8s]'") from None
    except Exception as error:
        raise UnfitError(
            f"{cause_of(error) if hasattr(error, 'status') else _line(error)}: is the kubeconfig right?"
        ) from None
    if missing:
        raise UnfitError(missing)
    return f"{backend.cluster}, namespace {backend.namespace}: jobs can be created"


def _storage(config: dict[str, Any]) -> str:
    from lithops import Storage

    try:
        storage = Storage(config=config)
        storage.put_object(storage.bucket, PROBE, b"mlless_nb")
        storage.delete_object(storage.bucket, PROBE)
    except Exception as error:
        raise UnfitError(f"{config['lithops']['storage']}: {_line(error)}") from None
    return f"{storage.backend}, {storage.bucket} can be written"


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0][:300]
