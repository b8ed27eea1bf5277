"""Certificates that are made in a test: an authority, and one for 127.0.0.1 that it has signed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import PATIENCE_SECS


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
    """With the program ``openssl``."""
    folder.mkdir()
    names = ("authority.pem", "authority.key", "server.pem", "server.key", "request.pem", "extensions")
    authority, authority_key, server, key, request, extensions = (str(folder / name) for name in names)
    Path(extensions).write_text(f"subjectAltName=IP:{host}\n")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(
        "req", "-x509", *curve, "-days", "2", "-subj", "/CN=authority", "-keyout", authority_key, "-out", authority
    )
    _openssl("req", *curve, "-subj", f"/CN={host}", "-keyout", key, "-out", request)
    _openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial", "-days", "2",
             "-extfile", extensions, "-out", server)  # fmt: skip
    return Certificates(Path(authority), Path(server), Path(key))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=PATIENCE_SECS)
