"""AWS as moto emulates it, with the account's settings, which moto does not have."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import boto3
from moto.iam.access_control import IAMRequestBase
from moto.server import DomainDispatcherApplication, create_backend_app
from servers import free_port
from werkzeug.serving import make_server

#: The path of AWS Lambda's GetAccountSettings.
SETTINGS = "/2016-08-19/account-settings"
#: Functions that a new account may run at once.
QUOTA = 10


class Aws:
    """One account."""

    def __init__(self) -> None:
        # It does not sign requests to Lambda as boto3 does. Whose a request is, is told by the key.
        IAMRequestBase.check_signature = lambda _: None  # type: ignore[method-assign]
        self._app = DomainDispatcherApplication(create_backend_app)
        port = free_port()
        self._server: Any = make_server("127.0.0.1", port, self._answer, threaded=True)
        self.url, self.concurrency = f"http://127.0.0.1:{port}", QUOTA
        self.asked: list[dict[str, Any]] = []  # what functions were asked for
        self.said: dict[str, Any] | None = None  # what they answer, None: what is true here
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ: Any, start_response: Callable[..., Any]) -> Any:
        if environ["PATH_INFO"].endswith("/invocations"):  # moto would need Docker
            return self._invoke(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))), start_response)
        if environ["PATH_INFO"].rstrip("/") != SETTINGS:
            return self._app(environ, start_response)
        start_response("200 OK", [("Content-Type", "application/json")])
        limits = {"ConcurrentExecutions": self.concurrency, "UnreservedConcurrentExecutions": self.concurrency}
        return [json.dumps({"AccountLimit": limits, "AccountUsage": {}}).encode()]

    def _invoke(self, event: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """A function that is asked for its link to Redis, which is that of this process."""
        from mlless_nb.function import probing
        from mlless_nb.function.lambda_handler import PROBE

        self.asked.append(event[PROBE])
        said = probing.answer(event[PROBE]) if self.said is None else self.said
        failed = [("X-Amz-Function-Error", "Unhandled")] if "errorMessage" in said else []
        start_response("200 OK", [("Content-Type", "application/json"), *failed])
        return [json.dumps(said).encode()]

    def _post(self, path: str, body: bytes = b"") -> None:
        headers = {"Content-Type": "application/octet-stream"}  # else it is read as a form
        request = urllib.request.Request(f"{self.url}/moto-api/{path}", body, headers, method="POST")
        urllib.request.urlopen(request).close()

    def reset(self) -> None:
        """An empty account, whose permissions are not looked at."""
        self.concurrency, self.said, self.asked = QUOTA, None, []
        self._post("reset-auth", b"inf")
        self._post("reset")

    def enforce(self, policy: dict[str, Any]) -> dict[str, str]:
        """Refuse from now on what ``policy`` does not allow; returns the environment with the user's keys.

        moto knows the resources of requests to S3 only, and asks for any resource elsewhere, which is given; and where
        many objects are deleted at once it asks for the bucket.
        """
        policy = json.loads(json.dumps(policy))
        for statement in policy["Statement"]:
            is_s3 = statement["Action"][0].startswith("s3:")
            statement["Resource"] = statement["Resource"].removesuffix("/*") if is_s3 else "*"
        iam = boto3.client("iam")
        iam.create_user(UserName="alice")
        key = iam.create_access_key(UserName="alice")["AccessKey"]
        iam.put_user_policy(UserName="alice", PolicyName="documented", PolicyDocument=json.dumps(policy))
        self._post("reset-auth", b"0")
        return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    def names(self) -> dict[str, list[str]]:
        """What is there, by kind."""
        client = boto3.client
        return {
            "functions": [each["FunctionName"] for each in client("lambda").list_functions()["Functions"]],
            "layers": [each["LayerName"] for each in client("lambda").list_layers()["Layers"]],
            "roles": [each["RoleName"] for each in client("iam").list_roles()["Roles"]],
            "buckets": [each["Name"] for each in client("s3").list_buckets()["Buckets"]],
            "log groups": [each["logGroupName"] for each in client("logs").describe_log_groups()["logGroups"]],
        }

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
