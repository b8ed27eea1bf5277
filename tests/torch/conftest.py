"""A home with a submitted model, and programs in the environment of PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli.main import run
from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import MODELS, SMALL
from tests.torch.install import PYTHON, ROOT, is_ready


class TorchHome:
    """A home with the models of :data:`~tests.headrace.conftest.MODELS`, and programs over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, str(folder / "home")
        write_sample_log(folder / "log", SMALL, late=False)
        (folder / "models.py").write_text(MODELS + 'ctr = model("ctr", "search", 1)\n', encoding="utf-8")
        self._command("init")
        self._add()
        self._command("model", "submit", str(folder / "models.py"), "--table", "log")

    def _command(self, *words: str) -> None:
        assert run([*words, "--home", self.home]) == 0

    def _add(self) -> None:
        self._command("table", "add", "log", str(self.folder / "log"), "--time-column", "time")

    def add_late_rows(self) -> None:
        """Rows arrive that belong to earlier hours."""
        write_sample_log(self.folder / "log", SMALL, late=True)
        self._add()

    def wanted(self) -> Counter:
        """The user, price and label of each event."""
        table = hr.read("first", home=self.home)
        columns = table["user"].to_pylist(), table["price"].to_pylist(), map(float, table["label"].to_pylist())
        return Counter(zip(*columns, strict=True))

    def start(self, program: str, *words: object, package: str = "tests.torch") -> subprocess.Popen[str]:
        """Start a module in the environment of PyTorch."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        command = [str(PYTHON), "-m", f"{package}.{program}", *map(str, words)]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip

    def run(self, program: str, *words: object) -> Any:
        """What a program prints, which is JSON."""
        running = self.start(program, *words)
        out, err = running.communicate(timeout=500)
        assert running.returncode == 0, err
        return json.loads(out)


@pytest.fixture(scope="session")
def still_home(tmp_path_factory: pytest.TempPathFactory) -> TorchHome:
    """A home that tests read only."""
    return _made(tmp_path_factory.mktemp("still"))


@pytest.fixture
def torch_home(tmp_path: Path) -> TorchHome:
    """A home of its own."""
    return _made(tmp_path)


def _made(folder: Path) -> TorchHome:
    assert is_ready(), "make torch"
    return TorchHome(folder)
