"""The logs of two days, and the variables with which the examples run ``headrace`` of this checkout, whose first training is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.cli.main import run
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from tests.headrace.conftest import UNTRIED
from tests.orchestrators.install import ROOT, is_ready, programs
from tests.support.processes import PATIENCE_SECS

DAYS = ("2026-03-02", "2026-03-03")
_LOG = SampleLogConfig(hours=48, mean_rows_per_hour=40, users=500, vocabulary_words=800, late_share=0.0)
_MODELS = """
import headrace as hr

words = hr.text("query").lower().unigrams()

model = hr.Model("search_ctr", client="search", label="clicked", table="search_log")
model.input("overlap", (words & hr.text("ad_title").lower().unigrams()).hash_buckets(1000))
model.input("user", hr.int64("user_id").hash_buckets(500))
model.input("price", hr.float32("price").fill_null(0.0).log1p())
"""
#: ``headrace`` of this checkout; its first training is killed after three seconds.
_COMMAND = """#!/bin/sh
export PYTHONPATH="{root}"
if [ "$1" = train ] && mkdir "{folder}/killed" 2>/dev/null; then
  exec timeout --signal KILL 3 "{python}" -m headrace "$@"
fi
exec "{python}" -m headrace "$@"
"""


@dataclass(frozen=True)
class Daily:
    """A warehouse that an orchestrator feeds day by day.

    Attributes:
        folder: of all its files.
        events: by day, in the order of days.
        environment: the variables of the examples.
    """

    folder: Path
    events: dict[str, int]
    environment: dict[str, str]

    def run(self, orchestrator: str, program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A program of an orchestrator, which must succeed."""
        done = subprocess.run([str(programs(orchestrator) / program), *words], cwd=self.folder, env={**self.environment, **variables}, capture_output=True,
                              text=True, timeout=PATIENCE_SECS)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def trained(self, capsys: pytest.CaptureFixture[str]) -> int:
        """The events of the newest checkpoint."""
        capsys.readouterr()
        assert run(["ckpt", "ls", "search_ctr", "--home", self.environment["HEADRACE_HOME"], "--json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["checkpoints"]
        return int(found[0]["events"])

    def links(self) -> list[str]:
        """The links of exported weights."""
        return sorted(one.name for one in (self.folder / "links").glob("0*"))


@pytest.fixture
def daily(tmp_path: Path) -> Daily:
    """A new warehouse, and the logs of two days."""
    write_sample_log(tmp_path / "raw", _LOG, late=False)
    events = {}
    for day in DAYS:
        files = sorted((tmp_path / "raw" / f"date={day}").rglob("*.parquet"))
        log = pa.concat_tables([pq.ParquetFile(one).read() for one in files])
        (tmp_path / "logs" / day).mkdir(parents=True)
        pq.write_table(log, tmp_path / "logs" / day / "log.parquet")
        events[day] = log.num_rows
    (tmp_path / "models.py").write_text(_MODELS, encoding="utf-8")
    (tmp_path / "options.json").write_text(json.dumps(UNTRIED), encoding="utf-8")
    command = tmp_path / "headrace"
    command.write_text(_COMMAND.format(root=ROOT, python=sys.executable, folder=tmp_path), encoding="utf-8")
    command.chmod(0o755)
    given = {
        "HEADRACE_HOME": tmp_path / "home",
        "HEADRACE_COMMAND": command,
        "HEADRACE_LOGS": tmp_path / "logs",
        "HEADRACE_MODELS": tmp_path / "models.py",
        "HEADRACE_LINKS": tmp_path / "links",
        "HEADRACE_OPTIONS": tmp_path / "options.json",
        "HEADRACE_FIRST_DAY": DAYS[0],
        "HEADRACE_LAST_DAY": DAYS[-1],
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "NUMBA_CACHE_DIR") if name in os.environ}
    return Daily(tmp_path, events, {**kept, **{name: str(value) for name, value in given.items()}})


def need(orchestrator: str) -> None:
    """Skip a test without its orchestrator."""
    if not is_ready(orchestrator):
        pytest.skip(f"no {orchestrator} here: make test-orchestrators")
