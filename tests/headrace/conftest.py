from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from tests.support.checked_documents import documents_are_checked

SMALL = SampleLogConfig(hours=4, mean_rows_per_hour=150, users=500, vocabulary_words=800, late_share=0.05)

#: Options that leave a trial nothing to choose: training starts at once.
UNTRIED = {
    "deep": False,
    "linear": True,
    "linear_learning_rate": 0.05,
    "dense_learning_rate": 0.003,
    "passes": 1,
}

MODELS = """
import headrace as hr

words = hr.text("query").lower().unigrams()
overlap = (words & hr.text("ad_title").lower().unigrams()).hash_buckets(1000)


def model(name, client, priority):
    made = hr.Model(name, client=client, priority=priority, label="clicked")
    made.input("overlap", overlap)
    made.input("user", hr.int64("user_id").hash_buckets(500))
    made.input("price", hr.float32("price").fill_null(0.0).log1p())
    return made


first = model("first", "search", 10)
second = model("second", "shopping", 5)
second.input("position", hr.int64("position").hash_buckets(10))
"""


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


#: Commands that read files only.
_WITHOUT_HOME = (
    ["ps", "status"],
    ["plan", "show"],
    ["plan", "explain"],
    ["plan", "diff"],
    ["towers", "show"],
    ["export", "apply"],
    ["export", "verify"],
)


@pytest.fixture(autouse=True, scope="session")
def _checked_documents() -> Iterator[None]:
    """Every screen that a command emits in a test has the document that the manual's JSON Schemas describe."""
    with documents_are_checked():
        yield


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Runs the command line in this process on a home of its own; returns status, output and errors."""
    # Wide enough that no path is folded, whatever folder the tests run in.
    monkeypatch.setattr("headrace.terminal.output.PLAIN_WIDTH", 500)

    def call(*arguments: object, status: int = 0) -> Answer:
        words = [str(argument) for argument in arguments]
        without = "demo" in words or "--help" in words or words[:2] in _WITHOUT_HOME
        home = [] if without else ["--home", str(tmp_path / "home")]
        if home and not (tmp_path / "home").exists():
            run(["init", *home])  # only a few commands make a home that is not there
        capsys.readouterr()
        end = words.index("--") if "--" in words else len(words)
        found = run([*words[:end], *home, *words[end:]])
        captured = capsys.readouterr()
        assert found == status, captured.err
        return Answer(found, captured.out, captured.err)

    return call


@pytest.fixture
def small_log(tmp_path: Path) -> Path:
    """A few hundred sample events, all of them on time."""
    write_sample_log(tmp_path / "log", SMALL, late=False)
    return tmp_path / "log"


@pytest.fixture
def models_file(tmp_path: Path) -> Path:
    """Two models that share three inputs."""
    path = tmp_path / "models.py"
    path.write_text(MODELS, encoding="utf-8")
    return path


@pytest.fixture
def submitted(cli: Callable[..., Answer], small_log: Path, models_file: Path) -> Callable[..., Answer]:
    """The command line, with both models submitted over the small log and nothing computed yet."""
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log")
    return cli


@pytest.fixture
def trained_once(submitted: Callable[..., Answer], tmp_path: Path) -> Callable[..., Answer]:
    """The command line, with the model ``first`` trained on the first two hours."""
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({"batch_rows": 64, **UNTRIED}), encoding="utf-8")
    submitted("train", "first", "--end", "2026-03-02T02:00", "--config", settings)
    return submitted
