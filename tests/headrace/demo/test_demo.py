"""The demo as real processes, on the generated log, and on real logs if they exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.demo.play import empty_demo_folder
from transforms.errors import InputError

ROOT = Path(__file__).parents[3]


def play(tmp_path: Path, *arguments: str) -> dict:
    command = [sys.executable, "-m", "headrace", "demo", "--home", str(tmp_path / "demo"), "--json", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def check(outcome: dict, least_auc: float) -> None:
    assert outcome["hit_rate"] > 0.5
    assert outcome["computed"] < outcome["requests"]
    assert outcome["saved_bytes"] > 0
    assert 0 < outcome["killed_after_epoch"] <= outcome["epochs"]
    assert outcome["exactly_once"] is True
    assert outcome["auc"] > least_auc


@pytest.mark.slow
def test_on_the_generated_log(tmp_path):
    outcome = play(tmp_path, "--hours", "16", "--rows-per-hour", "4000")
    check(outcome, least_auc=0.55)
    assert outcome["events_counted"] > 30_000


def test_an_unknown_format_is_refused(tmp_path):
    command = [sys.executable, "-m", "headrace", "demo", "--format", "movielens2", "--home", str(tmp_path / "demo")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 2
    assert "movielens" in done.stderr


def test_only_a_demo_s_own_folder_is_emptied(tmp_path):
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(InputError, match="must be empty or hold an earlier demo"):
        empty_demo_folder(tmp_path)
    assert (tmp_path / "letter.txt").exists()
    empty_demo_folder(tmp_path / "demo")
    (tmp_path / "demo" / "old").mkdir()
    empty_demo_folder(tmp_path / "demo")
    assert not (tmp_path / "demo" / "old").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log_format", "folder", "least_auc"),
    [("globo", "globo", 0.80), ("movielens", "ml1m", 0.85), ("criteo", "criteo", 0.68), ("obd", "obd", 0.0)],
)
def test_on_real_logs(tmp_path, shared_data, log_format, folder, least_auc):
    check(play(tmp_path, "--format", log_format, "--logs", str(shared_data / folder)), least_auc)
