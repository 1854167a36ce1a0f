"""AWS Lambda's API, as far as boto3 and Lithops call it: functions, layers, quota, invocations."""

from __future__ import annotations

import base64
import datetime
import hashlib
import io
import json
import re
import shutil
import threading
import uuid
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cloud.fleet import Fleet

#: AWS' limits, bytes: code and layers unzipped, a zip file in a request, an event.
UNZIPPED, DIRECT, EVENT = 262_144_000, 52_428_800, 1_048_576
ACCOUNT, REGION = "123456789012", "us-east-1"
MEMORY_MB, LIFETIME_S = (128, 10_240), (1, 900)


class Refusal(Exception):  # noqa: N818 - AWS' own name is in it
    """An error of the API: its status and AWS' name of it."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


def _sha(blob: bytes) -> str:
    return base64.b64encode(hashlib.sha256(blob).digest()).decode()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000+0000")


def _unzip(blob: bytes, folder: Path) -> int:
    """Unzipped bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        archive.extractall(folder)
        for entry in archive.infolist():
            mode = entry.external_attr >> 16 & 0o777
            (folder / entry.filename).chmod(mode if mode and not entry.is_dir() else 0o755)
        return sum(entry.file_size for entry in archive.infolist())


class LambdaApi:
    """The functions and layers of the account, and who may run them: ``fleet``."""

    def __init__(self, folder: Path, fleet: Fleet, object_of: Callable[[str, str], bytes]) -> None:
        self._folder, self._fleet, self._object_of = folder, fleet, object_of
        self.functions: dict[str, dict[str, Any]] = {}
        self._layers: dict[str, dict[int, dict[str, Any]]] = {}
        self._n_layers, self._numbers = 0, dict[str, int]()
        self.requests: list[str] = []

    # -- code

    def _blob(self, code: Mapping[str, Any]) -> bytes:
        if "S3Bucket" in code:
            return self._object_of(code["S3Bucket"], code["S3Key"])
        blob = base64.b64decode(code["ZipFile"])
        if len(blob) > DIRECT:
            raise Refusal(413, "RequestEntityTooLargeException", f"Request must be smaller than {DIRECT} bytes")
        return blob

    def _code(self, name: str, blob: bytes, arns: list[str]) -> dict[str, Any]:
        """Unzip a function's code and layers."""
        size = _unzip(blob, code := self._folder / "code" / name)
        found = [self._layer(*arn.split(":")[-2:]) for arn in arns]
        size += sum(layer["size"] for layer in found)
        layers = self._folder / "layers-of" / ("-".join(layer["folder"].name for layer in found) or "none")
        layers.mkdir(parents=True, exist_ok=True)
        for layer in found if not any(layers.iterdir()) else ():
            shutil.copytree(layer["folder"], layers, dirs_exist_ok=True, symlinks=True)
        if size > UNZIPPED:
            message = f"Function code combined with layers exceeds the maximum allowed size of {UNZIPPED} bytes."
            raise Refusal(400, "InvalidParameterValueException", f"{message} The actual size is {size} bytes.")
        return {"code": str(code), "layers": str(layers), "CodeSize": len(blob), "CodeSha256": _sha(blob)}

    # -- layers

    def _layer(self, name: str, number: str) -> dict[str, Any]:
        try:
            return self._layers[name][int(number)]
        except (KeyError, ValueError):
            raise Refusal(404, "ResourceNotFoundException", f"Layer version {name}:{number} does not exist.") from None

    def publish_layer(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        blob, arn = self._blob(asked["Content"]), f"arn:aws:lambda:{REGION}:{ACCOUNT}:layer:{name}"
        self._n_layers += 1
        folder = self._folder / "layers" / str(self._n_layers)
        size = _unzip(blob, folder)
        if size > UNZIPPED:
            raise Refusal(400, "InvalidParameterValueException", f"Unzipped size must be smaller than {UNZIPPED} bytes")
        number = self._numbers[name] = self._numbers.get(name, 0) + 1  # that of a deleted version is never used again
        told = {
            "LayerArn": arn,
            "LayerVersionArn": f"{arn}:{number}",
            "Version": number,
            "Description": asked.get("Description", ""),
            "CreatedDate": _now(),
            "CompatibleRuntimes": asked.get("CompatibleRuntimes", []),
            "CompatibleArchitectures": asked.get("CompatibleArchitectures", []),
        }
        self._layers.setdefault(name, {})[number] = {"folder": folder, "size": size, "told": told}
        return told | {"Content": {"CodeSize": len(blob), "CodeSha256": _sha(blob)}}

    def list_layers(self) -> dict[str, Any]:
        newest = {name: versions[max(versions)]["told"] for name, versions in self._layers.items() if versions}
        names = ("LayerName", "LayerArn", "LatestMatchingVersion")
        return {"Layers": [dict(zip(names, (n, told["LayerArn"], told), strict=True)) for n, told in newest.items()]}

    def delete_layer(self, name: str, number: str) -> None:
        self._layers.get(name, {}).pop(int(number), None)

    # -- functions

    def _function(self, name: str) -> dict[str, Any]:
        name = unquote(name).split(":")[-1]
        if name not in self.functions:
            arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"
            raise Refusal(404, "ResourceNotFoundException", f"Function not found: {arn}")
        return self.functions[name]

    @staticmethod
    def _told(function: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value for name, value in function.items() if name[0].isupper() and name not in ("Code", "Tags")
        } | {
            "Layers": [{"Arn": arn} for arn in function["Layers"]],
            "State": "Active",
            "LastUpdateStatus": "Successful",
        }

    @staticmethod
    def _check(asked: Mapping[str, Any]) -> None:
        for name, (least, most) in {"MemorySize": MEMORY_MB, "Timeout": LIFETIME_S}.items():
            if not least <= asked.get(name, least) <= most:
                raise Refusal(400, "ValidationException", f"{name}: Member must have value between {least} and {most}")

    def create(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["FunctionName"]
        if name in self.functions:
            raise Refusal(409, "ResourceConflictException", f"Function already exist: {name}")
        if not re.fullmatch(r"[A-Za-z0-9-_]{1,64}", name):
            raise Refusal(400, "ValidationException", f"functionName: {name}")
        self._check(asked)
        self.functions[name] = {
            "MemorySize": 128,
            "Timeout": 3,
            "Environment": {"Variables": {}},
            "Layers": [],
            "Tags": {},
            "PackageType": "Zip",
            **asked,
            **self._code(name, self._blob(asked["Code"]), asked.get("Layers", [])),
            "FunctionArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}",
            "Version": "$LATEST",
            "LastModified": _now(),
        }
        return self._told(self.functions[name])

    def update(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        """UpdateFunctionCode and UpdateFunctionConfiguration: environments are new afterwards."""
        self._check(asked)
        function = self._function(name)
        function |= {key: value for key, value in asked.items() if key in function and key != "Code"}
        blob = self._blob(asked) if {"ZipFile", "S3Bucket"} & set(asked) else None
        if blob is not None:
            function |= self._code(function["FunctionName"], blob, function["Layers"])
        self._fleet.forget(function["FunctionName"])
        return self._told(function)

    def delete(self, name: str) -> None:
        function = self._function(name)
        del self.functions[function["FunctionName"]]
        self._fleet.forget(function["FunctionName"])

    def event_settings(self, name: str, asked: dict[str, Any] | None) -> dict[str, Any]:
        function = self._function(name)
        if asked is not None:
            function["event"] = {key: value for key, value in asked.items() if key.startswith("Maximum")}
        if "event" not in function:
            raise Refusal(404, "ResourceNotFoundException", f"The function {name} doesn't have an EventInvokeConfig")
        return {"FunctionArn": function["FunctionArn"], "LastModified": 0.0, **function["event"]}

    def settings(self) -> dict[str, Any]:
        most = {"ConcurrentExecutions": self._fleet.quota, "UnreservedConcurrentExecutions": self._fleet.quota}
        sizes = {"CodeSizeUnzipped": UNZIPPED, "CodeSizeZipped": DIRECT, "TotalCodeSize": 80_530_636_800}
        return {
            "AccountLimit": most | sizes,
            "AccountUsage": {"FunctionCount": len(self.functions), "TotalCodeSize": 0},
        }

    def invoke(self, name: str, payload: bytes, how: str) -> tuple[int, bytes, list[tuple[str, str]]]:
        """Status, body and headers of the answer."""
        function, request, payload = self._function(name), str(uuid.uuid4()), payload or b"{}"
        headers = [("x-amzn-RequestId", request), ("Content-Type", "application/json")]
        if how == "Event":
            if len(payload) > EVENT:
                message = (
                    f"{len(payload)} byte payload is too large for the Event invocation type (limit {EVENT} bytes)"
                )
                raise Refusal(413, "RequestTooLargeException", message)
            threading.Thread(target=self._fleet.event, args=(function, request, payload), daemon=True).start()
            return 202, b"", headers
        if not self._fleet.claim(0.0):
            raise Refusal(429, "TooManyRequestsException", "Rate Exceeded.")
        try:
            work = self._fleet.run(function, request, payload)
        finally:
            self._fleet.release()
        if work.error is None:
            return 200, work.body, headers
        body = work.body if work.body != b"null" else json.dumps({"errorMessage": work.error}).encode()
        return 200, body, [*headers, ("X-Amz-Function-Error", "Unhandled")]

    # -- the routes

    def answer(self, method: str, path: str, body: bytes, how: str) -> tuple[int, Any, list[tuple[str, str]]]:
        """Status, body and headers of the answer to a request.

        Raises
        ------
        Refusal
        """
        words = [unquote(word) for word in path.split("?")[0].strip("/").split("/")[1:]]
        self.requests.append(f"{method} {'/'.join(words)}")
        if method == "POST" and words[-1] == "invocations":
            return self.invoke(words[1], body, how)
        asked = json.loads(body) if body else {}
        match method, words:
            case "POST", ["functions"]:
                return 201, self.create(asked), []
            case "GET", ["functions"]:
                return 200, {"Functions": [self._told(each) for each in self.functions.values()]}, []
            case "GET", ["functions", name]:
                found = self._function(name)
                return 200, {"Configuration": self._told(found), "Tags": found["Tags"], "Code": {}}, []
            case "PUT", ["functions", name, "code" | "configuration"]:
                return 200, self.update(name, asked), []
            case "DELETE", ["functions", name]:
                self.delete(name)
                return 204, b"", []
            case ("PUT" | "GET") as verb, ["functions", name, "event-invoke-config"]:
                return 200, self.event_settings(name, asked if verb == "PUT" else None), []
            case "GET", ["tags", arn]:
                return 200, {"Tags": self._function(arn)["Tags"]}, []
            case "GET", ["account-settings"]:
                return 200, self.settings(), []
            case "GET", ["layers"]:
                return 200, self.list_layers(), []
            case "POST", ["layers", name, "versions"]:
                return 201, self.publish_layer(name, asked), []
            case "GET", ["layers", name, "versions"]:
                return 200, {"LayerVersions": [each["told"] for each in self._layers.get(name, {}).values()]}, []
            case "GET", ["layers", name, "versions", number]:
                return 200, self._layer(name, number)["told"], []
            case "DELETE", ["layers", name, "versions", number]:
                self.delete_layer(name, number)
                return 204, b"", []
        raise Refusal(404, "UnknownOperationException", f"{method} {path}: not in this box")
