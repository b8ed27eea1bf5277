from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.sample_log import SampleLogConfig, write_sample_log

SMALL = SampleLogConfig(hours=4, mean_rows_per_hour=150, users=500, vocabulary_words=800, late_share=0.05)


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Runs the command line in this process on a home of its own; returns status, output and errors."""
    # Wide enough that no path is folded, whatever folder the tests run in.
    monkeypatch.setattr("headrace.cli.output.PLAIN_WIDTH", 500)

    def call(*arguments: object, status: int = 0) -> Answer:
        words = [str(argument) for argument in arguments]
        home = [] if "demo" in words or "--help" in words else ["--home", str(tmp_path / "home")]
        capsys.readouterr()
        found = run([*words, *home])
        captured = capsys.readouterr()
        assert found == status, captured.err
        return Answer(found, captured.out, captured.err)

    return call


@pytest.fixture
def small_log(tmp_path: Path) -> Path:
    """A few hundred sample events, all of them on time."""
    write_sample_log(tmp_path / "log", SMALL, late=False)
    return tmp_path / "log"
