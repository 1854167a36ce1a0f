"""Kubernetes' API over TLS, as far as Lithops and mlless_nb call it: jobs and pods, with a token."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cloud import network
from cloud.cluster import Cluster, Refused, Thing
from cloud.http_handling import Handler, Server

NAME, PORT, TOKEN = "kubernetes.box.test", 6443, "token-of-the-user"
#: Longest that a watch lasts that names no time, seconds.
WATCH_S = 60.0
VERBS = {"POST": "create", "GET": "list", "DELETE": "delete"}
#: What the client wants to know of a node.
NODE = ("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID")


def selected(query: dict[str, str]) -> Callable[[Thing], bool]:
    """Whether something has the labels and fields that a request names."""

    def pairs(name: str) -> dict[str, str]:
        return dict(each.split("=", 1) for each in query.get(name, "").split(",") if each)

    labels, fields = pairs("labelSelector"), pairs("fieldSelector")

    def matches(thing: Thing) -> bool:
        meta = thing["metadata"]
        has = meta.get("labels", {})
        return all(has.get(key) == value for key, value in labels.items()) and all(
            meta.get(key.removeprefix("metadata.")) == value for key, value in fields.items()
        )

    return matches


class _Api(Handler):
    cluster: Cluster

    def route(self) -> None:
        body, url = self.body(), urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Unauthorized", "Unauthorized")
            self._say(*self._answer(url.path.strip("/").split("/"), query, json.loads(body or b"{}")))
        except Refused as error:
            told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(error)}
            self._say(error.status, told | {"reason": error.reason, "code": error.status})

    do_GET = do_POST = do_DELETE = route  # noqa: N815 - BaseHTTPRequestHandler's names

    def _say(self, status: int, what: Any) -> None:
        if status:
            self.answer(status, what, [("Content-Type", "application/json")])

    def _answer(self, words: list[str], query: dict[str, str], asked: dict[str, Any]) -> tuple[int, Any]:
        cluster = self.cluster
        match self.command, words:
            case "GET", ["api", "v1", "namespaces", name]:
                return 200, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            case "POST", ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]:
                wanted = asked["spec"]["resourceAttributes"]
                is_allowed = f"{wanted['verb']} {wanted['resource']}" not in cluster.denied
                return 201, {**asked, "status": {"allowed": is_allowed}}
            case (_, ["apis", "batch", "v1", "namespaces", "default", "jobs" as kind, *rest]) | (
                _,
                ["api", "v1", "namespaces", "default", "pods" as kind, *rest],
            ):
                verb = VERBS[self.command]
                if f"{verb} {kind}" in cluster.denied:
                    raise Refused(403, "Forbidden", f'{kind} is forbidden: User "box" cannot {verb} resource "{kind}"')
                return self._resource(kind, rest, query, asked)
        raise Refused(404, "NotFound", f"{self.command} {self.path}: not in this box")

    def _resource(self, kind: str, rest: list[str], query: dict[str, str], asked: Thing) -> tuple[int, Any]:
        cluster = self.cluster
        match self.command, rest:
            case "POST", [] if kind == "jobs":
                return 201, cluster.create(asked)
            case "DELETE", [name]:
                return 200, cluster.delete(kind, name)
            case "GET", [name]:
                return 200, cluster.get(kind, name)
            case "GET", [] if query.get("watch", "").lower() == "true":
                self._stream(kind, query)
                return 0, None
            case "GET", []:
                return 200, cluster.list(kind, selected(query))
        raise Refused(405, "MethodNotAllowed", f"{self.command} {self.path}")

    def _stream(self, kind: str, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for event in self.cluster.watch(kind, selected(query), float(query.get("timeoutSeconds", WATCH_S))):
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def serve(cluster: Cluster, certificate: Path, key: Path) -> None:
    """Answer at the address of AWS, at the port of Kubernetes."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    server = Server((network.AWS, PORT), type("Api", (_Api,), {"cluster": cluster}))
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def configuration(authority: Path) -> str:
    """A user's file for it, as JSON, which is YAML."""
    place = {"server": f"https://{NAME}:{PORT}", "certificate-authority": str(authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "box", "cluster": place}],
            "users": [{"name": "me", "user": {"token": TOKEN}}],
            "contexts": [{"name": "box", "context": {"cluster": "box", "user": "me", "namespace": "default"}}],
            "current-context": "box",
        }
    )
