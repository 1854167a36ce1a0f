"""Frames on a server of one's own, `python -m mlless_nb.server`; ``store="server://:token@host:7337/fingerprint"``.

The server says this address when it starts. With the fingerprint (SHA-256) of its certificate the connection is over
TLS, and the token is sent to no other server; without it the connection is plain, for a server on this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ...errors import DecodeError, JobError, ServiceError
from ...storage.objects import ObjectStore
from ..protocol import Frame
from . import wire
from .base import FrameStore, register_store, shown
from .wire import Item, Kind

PORT = 7337
#: The user in an address whose password is the access to one job's frames.
JOB = "job"
CONNECT_S, ANSWER_S = 5.0, 30.0
#: Tries of a request if the connection is lost, and the first pause between two, seconds.
TRIES, PAUSE_S = 4, 0.02
_FINGERPRINT = re.compile("[0-9a-f]{64}")


class Address(NamedTuple):
    """Where the server is, and what proves who is who.

    ``fingerprint`` is empty for a plain connection. ``token`` is the server's, or with ``is_access`` only the access to
    one job's frames.
    """

    host: str
    port: int
    token: str
    fingerprint: str
    is_access: bool = False

    @staticmethod
    def of(address: str) -> Address:
        """From ``:token@host[:port][/fingerprint]`` or ``job:access@...``; ValueError if it is something else."""
        url = urlsplit(f"server://{address}")
        fingerprint = url.path.removeprefix("/")
        if not url.hostname or not url.password or url.username not in ("", JOB) or url.query or url.fragment:
            raise ValueError("no host, or no token")
        if fingerprint and not _FINGERPRINT.fullmatch(fingerprint):
            raise ValueError("no SHA-256 in hexadecimal digits")
        return Address(url.hostname, url.port or PORT, unquote(url.password), fingerprint, url.username == JOB)


@register_store("server")
class ServerStore(FrameStore):
    """Frames in the memory of the server."""

    max_frame_bytes = 1 << 31
    form = "'server://:token@host:7337/fingerprint'"
    component = "server"
    goes_missing = "the frame server (was it restarted?)"

    def __init__(self, prefix: str, objects: ObjectStore, address: str = "") -> None:
        super().__init__(prefix, objects, address)
        self._address = Address.of(address)
        self._name = f"the frame server at {self._address.host}:{self._address.port}"
        self._line: socket.socket | None = None

    @classmethod
    def check_address(cls, store: str, address: str) -> None:
        """See `FrameStore`."""
        try:
            Address.of(address)
        except ValueError:
            valid = f"{cls.form}, as `python -m mlless_nb.server` says when it starts"
            raise JobError("store", shown(store), valid) from None

    @classmethod
    def hosts(cls, address: str) -> list[str]:
        """See `FrameStore`."""
        return [Address.of(address).host]

    @classmethod
    def open_hosts(cls, address: str) -> list[str]:
        """See `FrameStore`. The host, if the connection is plain."""
        return [] if Address.of(address).fingerprint else cls.hosts(address)

    @classmethod
    def address_for_functions(cls, address: str, prefix: str) -> str:
        """See `FrameStore`. With the access to the job's frames in the place of the token."""
        whole = Address.of(address)
        access = whole.token if whole.is_access else wire.access_to(prefix, whole.token)
        return f"{JOB}:{access}@{address.rpartition('@')[2]}"

    def check(self) -> None:
        """See `FrameStore`."""
        self._ask(Kind.GET, [])

    def put_many(self, frames: Mapping[str, bytes]) -> None:
        """See `FrameStore`."""
        self._ask(Kind.PUT, [(key.encode(), frame) for key, frame in frames.items()])
        self.count(n_puts=len(frames), put_bytes=sum(map(len, frames.values())))

    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        """See `FrameStore`."""
        found = [value for _, value in self._ask(Kind.GET, [(key.encode(), None) for key in keys])]
        self.count(n_gets=len(keys), got_bytes=sum(len(frame) for frame in found if frame is not None))
        return found

    def delete_many(self, keys: Sequence[str]) -> None:
        """See `FrameStore`."""
        self._ask(Kind.DELETE, [(key.encode(), None) for key in keys])
        self.count(n_deletes=len(keys))

    def clear(self) -> int:
        """See `FrameStore`."""
        return len(self._ask(Kind.CLEAR, [(self.prefix.encode(), None)]))

    def close(self) -> None:
        """See `FrameStore`."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _ask(self, kind: Kind, items: list[Item]) -> list[Item]:
        """The items of the answer; the request is repeated if the connection was lost.

        Raises
        ------
        ServiceError
            The server does not answer, or refuses the request.
        """
        reason = ""
        for attempt in range(TRIES):
            try:
                if self._line is None:
                    self._line = self._connected()
                wire.send(self._line, kind, items)
                answer, found = wire.receive(self._line)
                if answer != Kind.DONE:
                    raise ServiceError(f"{self._name}: {found[0][0].decode(errors='replace') if found else answer}")
                return found
            except (OSError, DecodeError) as error:
                reason = str(error) or type(error).__name__
                self.close()
            if attempt < TRIES - 1:
                time.sleep(PAUSE_S * 2**attempt)
        raise ServiceError(f"{self._name} does not answer, or refuses the token: {reason}")

    def _connected(self) -> socket.socket:
        host, port, token, fingerprint, is_access = self._address
        line: socket.socket = socket.create_connection((host, port), CONNECT_S)
        try:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if fingerprint:
                line = self._secured(line, fingerprint)
            line.settimeout(ANSWER_S)
            line.sendall(wire.hello(self.prefix, token if is_access else wire.access_to(self.prefix, token)))
        except BaseException:
            line.close()
            raise
        return line

    def _secured(self, line: socket.socket, fingerprint: str) -> ssl.SSLSocket:
        """``line`` over TLS, to the server whose certificate has this fingerprint, and to no other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the fingerprint says more than a name
        secured = context.wrap_socket(line)
        certificate = secured.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), fingerprint):
            secured.close()
            raise ServiceError(f"{self._name} has another certificate than the one of this fingerprint")
        return secured
