"""A certificate authority, and a server's certificate for the names of the box."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: Validity, days.
DAYS = 2


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now, name = datetime.datetime.now(datetime.UTC), NameOID.COMMON_NAME
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(name, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(name, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(DAYS))
        .not_valid_after(now + datetime.timedelta(DAYS))
    )


def make(folder: Path, names: Sequence[str]) -> tuple[Path, Path, Path]:
    """Files with the authority, and the certificate and key of a server with ``names``."""
    authority, key, own = (
        "mlless box CA",
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    ca = (
        _builder(authority, authority, key)
        .add_extension(x509.BasicConstraints(True, 0), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(signs, True)
        .sign(key, hashes.SHA256())
    )
    server = (
        _builder("box", authority, own)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False)
        .add_extension(x509.BasicConstraints(False, None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = folder / "ca.pem", folder / "server.pem", folder / "server.key"
    for path, blob in zip(paths, (ca.public_bytes(pem), server.public_bytes(pem), secret), strict=True):
        path.write_bytes(blob)
    paths[2].chmod(0o600)
    return paths
