"""``headrace sweep``: real trainings that go on from rung to rung, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

import headrace as hr
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from tests.headrace.conftest import UNTRIED
from tests.support.processes import PATIENCE_SECS, wait_until

ENDS = ("--end", "2026-03-02T06:00", "--test-end", "2026-03-02T08:00")


@pytest.fixture
def home(tmp_path, cli):
    write_sample_log(
        tmp_path / "logs", SampleLogConfig(hours=8, mean_rows_per_hour=150, users=500, vocabulary_words=800), late=False
    )
    cli("table", "add", "log", tmp_path / "logs", "--time-column", "time")
    model = hr.Model("ctr", client="search", label="clicked", table="log")
    model.input("price", hr.float32("price").fill_null(0.0).log1p())
    with hr.open(tmp_path / "home") as w:
        w.submit(model, policy="none")
    (tmp_path / "c.json").write_text(json.dumps({**UNTRIED, "batch_rows": 32}))
    return tmp_path


def started(home, *arguments):
    command = [sys.executable, "-m", "headrace", "sweep", "run", *arguments, "--home", home / "home", "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.medium
def test_options_are_checked_before_anything_is_trained(cli, home):
    for wrong, said in (
        (["--option", "linear_learning_rat=1,2"], "linear_learning_rate"),
        (["--option", "batch_rows=-1,2"], "batch_rows"),
        (["--option", "batch_rows=32,64", "--argument=--no-such"], "--no-such"),
        ([], "must vary an option"),
    ):
        assert said in cli("sweep", "run", "s", "ctr", *wrong, *ENDS, status=2).err
    assert "partitions to test on" in cli("sweep", "run", "s", "ctr", "--option", "batch_rows=32,64", status=2).err
    assert "must have a model" in cli("sweep", "run", "s", status=2).err
    assert "no such sweep" in cli("sweep", "show", "s", status=4).err
    assert not (home / "home" / "sweeps" / "s").exists()


@pytest.mark.slow
def test_better_trials_go_on_and_a_killed_sweep_is_the_same(cli, home):
    asked = ("ctr", "--option", "linear_learning_rate=0.0001,0.05", "--rungs", "2", "--config", home / "c.json", *ENDS)
    whole = started(home, "whole", *asked)
    out, err = whole.communicate(timeout=PATIENCE_SECS)
    assert whole.returncode == 0, err
    found = json.loads(out)
    assert found["finished"]
    assert [len(one["scores"]) for one in found["trials"]] == [2, 1]
    best = found["trials"][0]
    assert best["state"] == "best"
    with hr.open(home / "home") as w:
        rows = w.table("log").to_polars("partitions")["rows"][:6].sum()
    commits = cli("ckpt", "ls", best["run_dir"], "--json").json["checkpoints"]
    assert len(commits) >= 2, "the second rung went on with the run of the first"
    record = json.loads(max((home / "home/sweeps/whole/fleet/results").iterdir()).read_text())
    assert (record["exact"], record["counted"]) == (True, rows)
    assert record["events_this_time"] < rows

    killed = started(home, "killed", *asked)
    runs = home / "home" / "sweeps" / "killed" / "runs"
    wait_until(lambda: runs.exists() and any(runs.iterdir()), "no training has begun", {"sweep": killed})
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not cli("sweep", "show", "killed", "--json").json["finished"]
    again = started(home, "killed", "--resume")
    out, err = again.communicate(timeout=PATIENCE_SECS)
    assert again.returncode == 0, err
    same = json.loads(out)
    assert [(one["trial"], one["scores"], one["state"]) for one in same["trials"]] == [
        (one["trial"], one["scores"], one["state"]) for one in found["trials"]
    ]
    assert (
        "must go on with what it began with"
        in cli("sweep", "run", "killed", "ctr", "--option", "batch_rows=32,64", *ENDS, status=2).err
    )
