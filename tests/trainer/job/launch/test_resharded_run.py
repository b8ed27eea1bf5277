"""A resharded run: whole or absent when its process is killed, with bounded memory, and continued bit for bit."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.checkpoints.job_states import checkpoint, publish_all
from tests.trainer.job.launch.jobs import ROOT, copy_begun, make_warehouse, newest, prepare, run_job, settings
from trainer.checkpoints.commit_manifest import table_of
from trainer.checkpoints.read import Checkpoint
from trainer.job.launch.resharded_run import reshard_run
from trainer.job.launch.run_comparison import run_differences
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.scheduling.transitions import JobState

RESHARD = """
import resource, sys
from pathlib import Path
from trainer.job.launch.resharded_run import reshard_run
from trainer.planning.plan import PartitionPlan
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before = peak()
print("begun", flush=True)
reshard_run(sys.argv[1], 2, PartitionPlan(int(sys.argv[3]), ()), Path(sys.argv[2]))
print(peak() - before)
"""


def wide(rows: int, columns: int) -> Checkpoint:
    """A checkpoint with a table of many rows."""
    found, draw = checkpoint(2), np.random.default_rng(1)
    arrays = dict(found.arrays)
    arrays["embedding/rows/user"] = np.arange(0, 3 * rows, 3, dtype=np.int64)
    for column in ("weights", "slots"):
        arrays[f"embedding/{column}/user"] = draw.random((rows, columns), np.float32)
    return Checkpoint("", found.epochs_done, found.document, arrays)


def start(run: Path, output: Path, hosts: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RESHARD, str(run), str(output), str(hosts)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def same_bits(one: Path, other: Path) -> None:
    a, b = newest(one), newest(other)
    assert a.document == b.document
    assert a.arrays.keys() == b.arrays.keys()
    assert [name for name, array in a.arrays.items() if array.tobytes() != b.arrays[name].tobytes()] == []


def content(run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()
    }


@pytest.mark.slow
def test_memory_is_that_of_windows(tmp_path):
    """A model of 600 MB takes the memory of some windows, far below a shard of 200 MB."""
    publish_all(tmp_path / "run", wide(600_000, 124), 2, 5)
    with start(tmp_path / "run", tmp_path / "to", 3) as process:
        out, _ = process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0
    assert int(out.split()[1]) < 160 << 20


@pytest.mark.slow
@pytest.mark.parametrize("kills", [12, pytest.param(60, marks=pytest.mark.soak)])
def test_a_killed_process_changes_nothing_and_leaves_no_run(tmp_path, kills):
    publish_all(tmp_path / "run", wide(100_000, 32), 2, 5)
    before, draw = content(tmp_path / "run"), random.Random(7)
    with start(tmp_path / "run", tmp_path / "whole", 3) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        assert process.wait(PATIENCE_SECS) == 0
        whole_secs = time.monotonic() - began
    was_killed = 0
    for _ in range(kills):
        with start(tmp_path / "run", tmp_path / "to", 3) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(draw.uniform(0, whole_secs))
            process.send_signal(signal.SIGKILL)
            was_killed += process.wait(PATIENCE_SECS) == -signal.SIGKILL
        assert content(tmp_path / "run") == before
        if (tmp_path / "to").exists():
            same_bits(tmp_path / "to", tmp_path / "run")
            shutil.rmtree(tmp_path / "to")
    assert was_killed
    reshard_run(str(tmp_path / "run"), 2, PartitionPlan(3, ()), tmp_path / "to")
    same_bits(tmp_path / "to", tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "to", "whole"]


def plan_of(run: Path) -> PartitionPlan:
    """Columns on two cores, rows on two, and in blocks on three, in turn."""
    found = newest(run)
    tables = []
    for name in sorted(found.arrays):
        which = table_of(name)
        if which is None or which[:2] != ("embedding", "weights"):
            continue
        columns = found.arrays[name].shape[1]
        rows = 1 + int(max(found.arrays[f"embedding/rows/{which[2]}"], default=0))
        ways = (
            (Slice(0, 1, (0,)), Slice(1, columns - 1, (2,))),
            (Slice(0, columns, (1, 0)),),
            (Slice(0, columns, (2, 0, 1), (rows // 3, rows // 2, rows)),),
        )
        tables.append(TablePlan(which[2], rows, columns, ways[len(tables) % 3]))
    return PartitionPlan(3, tuple(tables))


@pytest.mark.slow
def test_a_job_continues_a_resharded_run_bit_for_bit(tmp_path):
    """The second commit of two hosts, whose plan is not done: jobs continue it, and what it is resharded to, alike."""
    pytest.importorskip("tensorflow")
    options = {"batch_rows": 64, "passes": 2, "keep_checkpoints": 9}
    with make_warehouse(tmp_path, hours=2, rows=1500) as warehouse:
        run = tmp_path / "run"
        assert run_job(warehouse, run, settings(2), unit_rows=300, **options).state is JobState.DONE
        last, begun = newest(run).epochs_done, tmp_path / "begun"
        copy_begun(run, begun)
        reshard_run(str(run), 2, PartitionPlan(3, ()), tmp_path / "three")
        reshard_run(str(tmp_path / "three"), 2, plan_of(begun), tmp_path / "by-plan")
        for folder in ("three", "by-plan"):
            same_bits(tmp_path / folder, begun)
        for hosts, folder in ((3, "three"), (2, "by-plan")):
            whole = tmp_path / f"whole-{hosts}"
            shutil.copytree(begun, whole)
            for each in (whole, tmp_path / folder):
                assert run_job(warehouse, each, settings(hosts), unit_rows=300, **options).state is JobState.DONE
                assert prepare(warehouse, each, **options).summary().exact
            expected, found = newest(whole), newest(tmp_path / folder)
            assert found.epochs_done == expected.epochs_done == last
            assert found.document["job"]["plan"] == expected.document["job"]["plan"]
            assert run_differences(whole, tmp_path / folder) == ()
