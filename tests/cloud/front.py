"""AWS at its own names over TLS: Lambda here, everything else moto in the same process."""

from __future__ import annotations

import io
import re
import ssl
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from cloud import network
from cloud.http_handling import Handler, Server
from cloud.lambda_api import LambdaApi, Refusal
from moto.server import DomainDispatcherApplication, create_backend_app

#: Of which a function or a notebook may ask for something.
HOSTS = ("lambda", "sts", "s3", "ecr", "api.ecr", "logs", "iam", "dynamodb")
#: Whose a request is.
_KEY = re.compile(r"Credential=(\w+)/")


def names(buckets: tuple[str, ...]) -> list[str]:
    """The host names that the box stands for."""
    hosts = [f"{each}.us-east-1.amazonaws.com" for each in HOSTS]
    hosts += ["sts.amazonaws.com", "s3.amazonaws.com", "iam.amazonaws.com"]
    return hosts + [
        f"{bucket}.{host}" for bucket in buckets for host in ("s3.us-east-1.amazonaws.com", "s3.amazonaws.com")
    ]


#: What a run asks of AWS Lambda, by the words of a path.
OF_LAMBDA = {
    ("GET", "account-settings"): "GetAccountSettings",
    ("GET", "functions", ""): "GetFunction",
    ("GET", "layers"): "ListLayers",
    ("GET", "layers", "", "versions"): "ListLayerVersions",
    ("POST", "functions", "", "invocations"): "InvokeFunction",
}


def _action(method: str, host: str, path: str, query: str, target: str, body: bytes) -> str:
    """The action of IAM that AWS asks for, of what functions and the notebook of a run request."""
    service = host.removesuffix(".amazonaws.com").removesuffix(".us-east-1").rpartition(".")[2]
    if service == "lambda":
        words = [word if n % 2 == 0 else "" for n, word in enumerate(path.strip("/").split("/")[1:])]
        return f"lambda:{OF_LAMBDA.get((method, *words), f'{method} {path}')}"
    if service == "s3":
        key = path.strip("/")
        if host.startswith("s3."):  # else the host's name begins with the bucket's
            key = key.partition("/")[2]
        if not key and "location" in query.split("&"):
            return "s3:GetBucketLocation"
        of_bucket = {"GET": "ListBucket", "HEAD": "ListBucket", "POST": "DeleteObject"}
        of_object = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
        return f"s3:{(of_object if key else of_bucket).get(method, method)}"
    action = target.partition(".")[2] or parse_qs(body.decode("latin-1")).get("Action", [""])[0]
    return f"{service}:{action}"


class _Front(Handler):
    api: LambdaApi
    moto: Any
    called: dict[str, set[str]]

    def route(self) -> None:
        body, host = self.body(), self.headers.get("Host", "").split(":")[0]
        if (who := _KEY.search(self.headers.get("Authorization", ""))) is not None and who[1] in self.called:
            path, _, query = self.path.partition("?")
            target = self.headers.get("X-Amz-Target", "")
            self.called[who[1]].add(_action(self.command, host, path, query, target, body))
        if not host.startswith("lambda."):
            return self._ask_moto(body, host)
        try:
            if "AWS4-HMAC-SHA256" not in self.headers.get("Authorization", ""):
                raise Refusal(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
            how = self.headers.get("X-Amz-Invocation-Type", "RequestResponse")
            self.answer(*self.api.answer(self.command, self.path, body, how))
        except Refusal as error:
            told = {"Type": "User", "Message": str(error), "message": str(error)}
            self.answer(error.status, told, [("x-amzn-ErrorType", error.kind), ("Content-Type", "application/json")])

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = route  # noqa: N815 - BaseHTTPRequestHandler's names

    def _ask_moto(self, body: bytes, host: str) -> None:
        path, _, query = self.path.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": self.command,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),
            "RAW_URI": self.path,
            "REQUEST_URI": self.path,
            "QUERY_STRING": query,
            "SERVER_NAME": host,
            "SERVER_PORT": "443",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": self.client_address[0],
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "https",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in self.headers.items():
            key = name.upper().replace("-", "_")
            if key not in ("TRANSFER_ENCODING", "CONTENT_LENGTH"):
                environ["CONTENT_TYPE" if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
        said: list[Any] = []
        parts = self.moto(environ, lambda status, headers, _=None: said.extend([int(status.split()[0]), headers]))
        blob = b"".join(parts)
        kept = [pair for pair in said[1] if pair[0].lower() not in ("connection", "server", "date")]
        is_bare = self.command == "HEAD" or said[0] in (204, 304)
        self.answer(said[0], blob, [pair for pair in kept if is_bare or pair[0].lower() != "content-length"])


class Front:
    """The servers of AWS at port 443."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.moto = DomainDispatcherApplication(create_backend_app)
        self._certificate = certificate, key
        #: The actions that functions and the user have called, by their keys.
        self.called: dict[str, set[str]] = {"ASIAFUNCTION": set(), "AKIAUSER": set()}

    def object_of(self, bucket: str, key: str) -> bytes:
        """An object of the account's S3."""
        from moto.s3.models import s3_backends

        return bytes(s3_backends["123456789012"]["aws"].get_object(bucket, key).value)

    def serve(self, api: LambdaApi) -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*self._certificate)
        handler = type("Front", (_Front,), {"api": api, "moto": self.moto, "called": self.called})
        server = Server((network.AWS, 443), handler)
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.broken = server.broken
