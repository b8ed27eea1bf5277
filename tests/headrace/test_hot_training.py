"""``headrace train`` with hot rows: what ``plan hot`` writes is taken, runs have the bits of all rows on servers, and say what it was worth."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from headrace.screens.hot_rows import hot_row_lines
from tests.conftest import ROOT
from tests.headrace.test_served_training import OPTIONS, assert_equal_runs, read_newest
from trainer.job.launch.local_servers import LocalServers
from trainer.tables.hot_figures import HotFigures

HOT = {"user": 40, "overlap": 12}
_BETWEEN_KILLS_SECS = 0.4


@pytest.fixture
def hot(submitted, tmp_path):
    """The command line, with options in ``options.json`` whose choices do not depend on the range."""
    submitted.options = tmp_path / "options.json"
    write_options(submitted)
    return submitted


def write_options(cli, **changes) -> None:
    chosen = {"initial_bias": -2.0, "dense_scaling": {}, "held_out_share": 0.0}
    cli.options.write_text(json.dumps({**OPTIONS, **chosen, "partitions_per_epoch": 1, "hot_rows": HOT, **changes}))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "hot rows must be those of tables on parameter servers"),
        (("--hosts", "2", "--servers", "2"), "hot rows must be trained by one process or host"),
        (
            ("--hosts", "1", "--caught-up-hosts", "3", "--follow", "--servers", "2"),
            "hot rows must be trained by one process or host",
        ),
        (("--servers", "2", "--embedding-workers", "1"), "hot rows must be trained without embedding workers"),
        (("--servers", "2", "--wire-values", "fp16"), "rows beside hot ones must be sent as they are"),
    ],
)
def test_hot_rows_are_refused_where_they_cannot_be(hot, options, problem):
    found = hot("train", "first", "--config", hot.options, *options, status=2)
    assert problem in found.err
    assert "next:" in found.err


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hashed": {"user": {"capacity": 50}}}, "a run must have hashed tables or hot rows"),
        ({"pruning": {}}, "a run must have pruned tables or hot rows"),
        ({"hot_rows": {"someone": 3}}, "hot_rows must name tables of the model"),
        ({"hot_rows": -1}, "hot_rows must be an integer in [1, "),
        ({"hot_rows": "none.json"}, "the file must be readable"),
        ({"hot_rows": "options.json"}, "hot_rows"),
    ],
)
def test_hot_rows_that_cannot_be_are_refused(hot, changes, problem):
    write_options(hot, **changes)
    assert problem in hot("train", "first", "--config", hot.options, "--servers", 1, status=2).err


@pytest.mark.slow
def test_what_plan_hot_writes_is_what_a_run_takes(hot, tmp_path):
    """The bits of one process without servers, and figures at the end, in words and as JSON."""
    write_options(hot, hot_rows="hot.json")  # which is not there yet
    options = ("--share", "0.3", "--config", hot.options, "--output", tmp_path / "hot.json")
    planned = hot("plan", "hot", "first", *options, "--json").json
    assert json.loads((tmp_path / "hot.json").read_text()) == planned
    write_options(hot, hot_rows=None, statistics_share=1.0)
    hot("train", "first", "--config", hot.options, "--run-dir", tmp_path / "alone")
    write_options(hot, hot_rows="hot.json")
    arguments = ("train", "first", "--config", hot.options, "--servers", 2)
    found = hot(*arguments, "--run-dir", tmp_path / "hot", "--json").json["hot"]
    assert_equal_runs(tmp_path / "alone", tmp_path / "hot")
    assert found["rows"] == 2 * sum(one["hot_rows"] for one in planned["tables"]), "of the deep and of the linear part"
    assert 0 < found["hits"] <= found["lookups"]
    assert found["hit_share"] == found["hits"] / found["lookups"]
    assert found["wire_bytes"] > found["moved_bytes"] > 0
    write_options(hot, hot_rows="auto")
    said = hot(*arguments, "--run-dir", tmp_path / "auto")
    assert re.search(
        r"hot rows: [\d,]+ of [\d,]+ rows, .* in this process; the best rows serve .* by the statistics", said.err
    )
    assert re.search(r"hot rows +[\d.]+ % of [\d,]+ lookups were of hot rows, at most [\d,]+ \(", said.out)
    assert re.search(r"to and from servers, about [\d.]+x of what all rows on servers take", said.out)
    assert_equal_runs(tmp_path / "alone", tmp_path / "auto")


def test_a_run_says_what_hot_rows_were_worth():
    figures = HotFigures(20_000, 2_600_000, 100, 83, 40, 30, 5_000, 62_000, 143_000)
    served, wire = hot_row_lines(figures)
    assert (
        served
        == "83.0 % of 100 lookups were of hot rows, at most 20,000 (2.5 MiB); 40 became hot, 30 were written back"
    )
    assert wire == "60.5 KiB to and from servers, about 0.31x of what all rows on servers take"
    *_, hint = hot_row_lines(replace(figures, spared_bytes=4_000))
    assert hint == "hot rows have spared nothing: give them more memory, or leave hot_rows out"
    assert HotFigures.of_numbers(figures.to_numbers()) == figures
    assert HotFigures.of_numbers({"hidden_units": 3.0}) is None


@pytest.mark.slow
def test_a_job_of_one_host_has_the_same_bits_and_figures(hot, tmp_path):
    job = ("train", "first", "--config", hot.options, "--hosts", 1, "--readers", 1, "--servers", 2, "--json")
    found = hot(*job, "--run-dir", tmp_path / "hot").json
    write_options(hot, hot_rows=None)
    plain = hot(*job, "--run-dir", tmp_path / "plain").json
    assert plain["hot"] is None
    assert 0 < found["hot"]["hits"] < found["hot"]["lookups"]
    assert_equal_runs(tmp_path / "plain", tmp_path / "hot")


@pytest.mark.slow
def test_each_commit_has_the_hot_rows(hot, tmp_path):
    """A run that ends after each hour and goes on with other hot rows, or none, and the chain of deltas of its commits."""
    arguments = ("train", "first", "--config", hot.options, "--servers", 2)
    chains = {}
    for name in ("plain", "parts"):
        run, chain = tmp_path / name, tmp_path / f"{name}-chain"
        for k, end in enumerate(("2026-03-02T01:00", "2026-03-02T03:00", "2026-03-02T04:00")):
            write_options(hot, hot_rows=(HOT, None, 30)[k] if name == "parts" else None)
            hot(*arguments, "--run-dir", run, "--end", end, "--export", chain)
        hot("export", "verify", chain)
        chains[name] = {one.name: one.read_bytes() for one in sorted(chain.rglob("*.npy"))}
    assert_equal_runs(tmp_path / "plain", tmp_path / "parts")
    assert chains["plain"] == chains["parts"]


@pytest.mark.slow
def test_killed_trainers_change_no_bit(hot, tmp_path):
    """The training process is killed, and with it the servers that it has started; the same command goes on from the newest commit."""
    write_options(hot, hot_rows=None, passes=5)
    hot("train", "first", "--config", hot.options, "--run-dir", tmp_path / "alone")
    write_options(hot, passes=5)
    command = [sys.executable, "-m", "headrace", "train", "first", "--config", str(hot.options), "--servers", "2",
               "--run-dir", str(tmp_path / "hot"), "--home", str(tmp_path / "home"), "--json"]  # fmt: skip
    random, kills = Random(3), 0
    while True:
        process = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
        )
        began = commits(tmp_path / "hot")
        while process.poll() is None and (kills >= 2 or commits(tmp_path / "hot") < began + 2):
            time.sleep(0.05)
        if process.poll() is not None:
            break
        time.sleep(random.random() / 2)  # within an epoch, or while a commit is written
        process.kill()
        process.communicate()
        kills += 1
    assert process.returncode == 0
    report = json.loads(process.communicate()[0])
    assert kills == 2
    assert report["resumed_from"]
    assert report["exact"] is True
    assert report["hot"]["rows_out"] > 0
    assert_equal_runs(tmp_path / "alone", tmp_path / "hot")


def commits(run: Path) -> int:
    """The number of the newest commit of a run."""
    found = (one.name.removeprefix("epoch-") for one in (run / "checkpoints").glob("epoch-*"))
    return max((int(one) for one in found if one.isdigit()), default=0)


@pytest.mark.slow
def test_killed_servers_change_no_bit(hot, tmp_path, monkeypatch):
    """Processes that answer are killed again and again, also while hot rows are written back for a commit."""
    write_options(hot, hot_rows=None, passes=30)
    arguments = ("train", "first", "--config", hot.options, "--json")
    hot(*arguments, "--run-dir", tmp_path / "alone")
    write_options(hot, passes=30)
    started: list[LocalServers] = []
    enter = LocalServers.__enter__
    monkeypatch.setattr(LocalServers, "__enter__", lambda self: started.append(enter(self)) or self)
    kills, ends, random = [], threading.Event(), Random(1)

    def kill() -> None:
        while not ends.wait(_BETWEEN_KILLS_SECS):
            for name, keeper in (started[-1].processes if started else {}).items():
                children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
                if children and random.random() < 0.5:
                    os.kill(int(children[0]), signal.SIGKILL)
                    kills.append(name)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        report = hot(*arguments, "--run-dir", tmp_path / "hot", "--servers", 2).json
    finally:
        ends.set()
        killer.join()
    assert len(kills) > 3
    assert report["exact"] is True
    assert report["hot"]["rows_out"] > 0
    assert_equal_runs(tmp_path / "alone", tmp_path / "hot")
    assert read_newest(tmp_path / "hot")
