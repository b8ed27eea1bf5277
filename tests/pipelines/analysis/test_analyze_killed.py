"""A killed analysis loses only the partitions that it was reading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transforms.expressions.expression as hr
from pipelines.analysis.analyze import analyze_model
from tests.pipelines.scenes import open_home
from transforms.expressions.model import Model
from transforms.ranges import between
from warehouse.tables.register import register_table

PARTITIONS, WORKERS, KILLED_AT = 24, 2, 8
#: A log of which the analysis of each partition takes so long that a kill meets it.
SLOW = """
import sys, time
sys.path.insert(0, {root!r})
from pipelines.analysis import passes
from pipelines.analysis.analyze import analyze_model
from pipelines.runners.runner import RunnerOptions
from tests.pipelines.scenes import open_home
from tests.pipelines.analysis.test_analyze_killed import WORKERS, model
from pathlib import Path

read = passes.read_batches
def slowly(home, work):
    time.sleep(0.05)
    yield from read(home, work)
passes.read_batches = slowly
with open_home(Path({home!r})) as warehouse:
    analyze_model(warehouse, model(), options=RunnerOptions(workers=WORKERS))
"""


def model() -> Model:
    made = Model("m", client="search", label="clicked", table="log")
    over = between("2026-01-01", "2026-01-02")
    made.input("word", hr.text("word").vocabulary_ids(over=over))
    made.input("price", hr.float64("price").z_score(over=over))
    return made


def write_hour(root: Path, hour: int) -> None:
    folder = root / f"date=2026-01-01/hour={hour:02d}"
    folder.mkdir(parents=True)
    table = {"word": [f"w{hour}", "w"], "price": [float(hour), 1.0], "clicked": [True, False]}
    pq.write_table(pa.table(table), folder / "part.parquet")


def contributions(home: Path) -> set[str]:
    return {file.stem for file in home.glob("analysis/sums-*/*/*.arrow") if not file.name.startswith(".")}


@pytest.mark.slow
def test_a_killed_analysis_reads_again_what_was_being_read_and_no_more(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for hour in range(PARTITIONS):
        write_hour(tmp_path / "log", hour)
    with open_home(home) as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
    program = SLOW.format(root=str(Path(__file__).parents[3]), home=str(home))
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        while len(contributions(home)) < 2 * KILLED_AT:
            assert child.poll() is None, "it is killed before it ends"
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
    kept = contributions(home)
    whole = len(kept) // 2
    assert KILLED_AT <= whole < PARTITIONS
    reports: list[tuple[int, int]] = []
    with open_home(home) as warehouse:
        made = analyze_model(warehouse, model(), progress=lambda done, total, step: reports.append((done, total)))
    read = max(one.partitions_read for one in made)
    assert PARTITIONS - whole - WORKERS <= read <= PARTITIONS - whole + WORKERS, "of those in progress half may be kept"
    assert reports[-1] == (read, read)
    assert len(contributions(home)) == 2 * PARTITIONS
    assert kept <= contributions(home)
