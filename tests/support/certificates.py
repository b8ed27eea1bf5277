"""Certificates that are made in a test: an authority, and a server's that it has signed."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Certificates:
    """PEM files.

    Attributes:
        authority: the certificate that clients trust.
        certificate, key: of a server.
    """

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, host: str = "127.0.0.1") -> Certificates:
    """Those of a server at an IP address."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    found = Certificates(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    found.authority.write_bytes(_signed("authority", authority_key, "authority", authority_key, None))
    found.certificate.write_bytes(_signed(host, key, "authority", authority_key, names))
    found.key.write_bytes(_private(key))
    return found


def _signed(name: str, key: Any, issuer: str, issuer_key: Any, names: Any) -> bytes:
    """A certificate for the key; of an authority without ``names``."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    now, is_authority = datetime.datetime.now(datetime.UTC), names is None
    one = (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(_common_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(not is_authority, False, False, False, False, is_authority, is_authority, False, False), critical=True
        )
    )  # fmt: skip
    if names is not None:
        one = one.add_extension(names, critical=False)
    content: bytes = one.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return content


def _common_name(name: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _private(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    content: bytes = key.private_bytes(serialization.Encoding.PEM, form, plain)
    return content
