"""Training that is killed with SIGKILL repeatedly ends like an undisturbed one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from trainer.checkpoints.checkpoint import checkpoints_dir, read_newest
from warehouse.files.own_files import kind_of

pytest.importorskip("tensorflow")

OPTIONS = {"passes": 3, "dropout": 0.1, "partitions": 4, "dims": {"user": 6}, "seed": 5}


SYNTHETIC = ("tests.trainer.synthetic", json.dumps(OPTIONS))


def start(run_dir: Path, batches: int = 0, program: tuple[str, str] = SYNTHETIC) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", program[0], str(run_dir), program[1], str(batches)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def run_to_the_end(run_dir: Path, program: tuple[str, str] = SYNTHETIC) -> dict:
    process = start(run_dir, program=program)
    lines = process.communicate(timeout=300)[0].splitlines()
    assert process.returncode == 0
    return json.loads(lines[-1])["report"]


def kill_after(run_dir: Path, batches: int, extra_secs: float, program: tuple[str, str] = SYNTHETIC) -> bool:
    """Start (or resume) and SIGKILL ``extra_secs`` after the given batch; False if it ended before.

    Three batches later it stands still: however late the signal comes, the run is in the middle.
    """
    process = start(run_dir, batches + 3, program)
    try:
        while batches and (line := process.stdout.readline()):
            batches -= json.loads(line)["kind"] == "batch"
        time.sleep(extra_secs)
        return process.poll() is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_five_kills_leave_no_trace(tmp_path):
    seed = 20261121
    rng = random.Random(seed)
    report = run_to_the_end(tmp_path / "straight")
    assert report["ledger"]["exact"]
    kills = 0
    while kills < 5:
        batches, extra_secs = rng.randint(1, 9), rng.random() * 0.05
        if not kills:
            batches, extra_secs = 9, 2.0  # its first checkpoint is complete
        print(f"kill {kills + 1} of seed {seed}: {extra_secs:.3f} s after batch {batches}")
        assert kill_after(tmp_path / "killed", batches, extra_secs), "the run ended before it was killed"
        kills += 1
    resumed = run_to_the_end(tmp_path / "killed")
    assert resumed["resumed_from"]
    assert resumed["skipped_checkpoints"] == []
    assert resumed["ledger"] == {"events": 2468, "least": 3, "most": 3, "expected": 3, "exact": True}
    assert resumed["history"] == report["history"]
    one, other = (read_newest(tmp_path / name, on_skip=pytest.fail) for name in ("straight", "killed"))
    # Both were just verified against the SHA-256 of every file in their manifests: equal manifests, equal bytes.
    assert one.digest == other.digest
    assert [path.name for path in checkpoints_dir(tmp_path / "killed").iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_kills_while_files_of_batches_are_written_and_read_leave_no_trace(tmp_path):
    """The first pass writes, the later ones read; what a killed process leaves is unfinished, and no bit depends on it."""
    rng, home = random.Random(20261129), tmp_path / "home"
    program = (SYNTHETIC[0], json.dumps({**OPTIONS, "batch_files": str(home)}))
    straight = run_to_the_end(tmp_path / "straight")
    for batches in (2, 7, 30, 12, 9):
        extra_secs = rng.random() * 0.05
        print(f"killed {extra_secs:.3f} s after batch {batches}")
        assert kill_after(tmp_path / "killed", batches, extra_secs, program), "the run ended before it was killed"
    resumed = run_to_the_end(tmp_path / "killed", program)
    assert resumed["ledger"] == straight["ledger"]
    assert resumed["ledger"]["exact"]
    assert [one["scores"] for one in resumed["history"]] == [one["scores"] for one in straight["history"]]
    assert resumed["batch_files"]["read"] > 0
    one, other = (read_newest(tmp_path / name, on_skip=pytest.fail) for name in ("straight", "killed"))
    assert one.arrays.keys() == other.arrays.keys()
    assert all(one.arrays[name].tobytes() == other.arrays[name].tobytes() for name in one.arrays)
    names = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
    kinds = [kind_of(name) for name in names]
    assert set(kinds) <= {"batch files", "unfinished writes"}
    assert kinds.count("batch files") == 4
    again = run_to_the_end(tmp_path / "again", program)
    assert (again["batch_files"]["written"], again["history"]) == (0, resumed["history"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kills_before_and_after_late_data_leave_no_trace(tmp_path):
    """Labels are missing, then they come, with late rows and retractions: every event is trained twice, whatever was killed."""
    rng = random.Random(20261122)
    stages = [("tests.trainer.late_log", str(stage)) for stage in range(2)]
    for stage, most_batches in zip(stages, (9, 5), strict=True):
        straight = run_to_the_end(tmp_path / "straight", stage)
        for _ in range(2):
            assert kill_after(tmp_path / "killed", rng.randint(1, most_batches), rng.random() * 0.05, stage)
        resumed = run_to_the_end(tmp_path / "killed", stage)
        assert resumed["ledger"] == straight["ledger"]
        assert resumed["ledger"]["exact"]
        assert resumed["unlabelled"] == straight["unlabelled"]
        assert resumed["history"] == straight["history"]
        one, other = (read_newest(tmp_path / name, on_skip=pytest.fail) for name in ("straight", "killed"))
        assert one.digest == other.digest
    assert straight["late"]["labels"] == 24
    assert (straight["late"]["rows"], straight["late"]["retracted"], straight["unlabelled"]) == (400, 10, 40)
