"""A real MLflow server, in an environment of its own: its requirements and those of TensorFlow are not for one environment."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT
from tests.support.processes import PATIENCE_SECS

#: Made once in a checkout, and not tracked.
ENVIRONMENT = ROOT / ".mlflow"
VERSION = "3.17.2"
_START_SECS = 120.0


def mlflow_command() -> list[str]:
    """The command of MLflow; its environment is made if it is absent."""
    python = ENVIRONMENT / "bin" / "python"
    done = ENVIRONMENT / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", f"mlflow=={VERSION}"], check=True)
        done.touch()
    return [str(python), "-m", "mlflow"]


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """The address of a server with its data in ``folder``."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    store = f"sqlite:///{folder}/mlflow.db"
    command = [*mlflow_command(), "server", "--host", "127.0.0.1", "--port", str(port), "--backend-store-uri", store,
               "--default-artifact-root", str(folder / "artifacts"), "--workers", "1"]  # fmt: skip
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            uri = f"http://127.0.0.1:{port}"
            _wait(uri, process, folder / "server.log")
            yield uri
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(uri: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{uri}/health", timeout=PATIENCE_SECS) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(log.read_text(encoding="utf-8", errors="replace")[-3000:])
