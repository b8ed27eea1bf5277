"""``headrace train`` with hashed tables on parameter servers: what is refused, counts, and the same bits after a stop or a kill."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from random import Random

import pytest

from tests.headrace.test_served_training import OPTIONS, assert_equal_runs, read_newest
from tests.support.host_steps import check_hosts_train
from tests.support.parameter_servers import thread_servers
from trainer.job.launch.local_servers import LocalServers

HASHED = {
    "overlap": {"capacity": 40, "expire_after_steps": 6},
    "user": {"capacity": 90, "admit_after": 2, "candidates": 64},
}
MODELS = """
import headrace as hr

words = hr.text("query").lower().unigrams()
first = hr.Model("first", client="search", priority=10, label="clicked")
first.input("overlap", (words & hr.text("ad_title").lower().unigrams()).hash_buckets(2**62))
first.input("user", hr.int64("user_id").hash_buckets(2**63 - 1))
first.input("position", hr.int64("position").hash_buckets(10))
first.input("price", hr.float32("price").fill_null(0.0).log1p())
"""
_BETWEEN_KILLS_SECS = 0.7


@pytest.fixture
def hashed(cli, small_log, tmp_path):
    """The command line, with a model of unbounded vocabularies and options in ``options.json``."""
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", models, "--table", "log")
    cli.options = tmp_path / "options.json"
    write_options(cli)
    return cli


def write_options(cli, **changes) -> None:
    chosen = {"initial_bias": -2.0, "dense_scaling": {}}  # else they depend on the range of the first command
    options = {**OPTIONS, **chosen, "batch_rows": 32, "partitions_per_epoch": 1, "hashed": HASHED}
    cli.options.write_text(json.dumps(options | changes))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--plan", "plan.json"), "hashed tables must be placed without a plan"),
        (("--servers", "2", "--plan", "plan.json"), "hashed tables must be placed without a plan"),
        (("--tpu", "local"), "hashed tables must be outside of TPUs"),
        (("--servers", 2, "--least-servers", 1), "hashed tables must be on all servers"),
        (("--hosts", 2, "--least-hosts", 1), "hashed tables must be on all hosts"),
    ],
)
def test_hashed_tables_are_refused_where_they_cannot_be(hashed, options, problem):
    found = hashed("train", "first", "--config", hashed.options, *options, status=2)
    assert problem in found.err
    assert "next:" in found.err


def test_towers_count_the_rows_that_hashed_tables_may_have(hashed, tmp_path):
    """Without the options of training a table of an unbounded vocabulary counts as the largest that there may be."""
    make = ("towers", "make", "first", "--towers", 2, "--strategy", "strided", "--output", tmp_path / "towers.json")
    bytes_of = []
    for options in (("--config", hashed.options), ()):
        hashed(*make, *options)
        made = json.loads((tmp_path / "towers.json").read_text())
        bytes_of.append({one["name"]: one["table_bytes"] for one in made["features"]})
    row_bytes = bytes_of[0]["position"] // 10
    assert bytes_of[0] == {"overlap": 40 * row_bytes, "user": 90 * row_bytes, "position": 10 * row_bytes}
    assert (bytes_of[1]["overlap"], bytes_of[1]["user"]) == (1 << 60, 1 << 60)


def test_a_plan_of_hashed_tables_is_refused(hashed, tmp_path):
    found = hashed(
        "plan",
        "make",
        "first",
        "--topology",
        "ps:2",
        "--config",
        hashed.options,
        "--output",
        tmp_path / "plan.json",
        status=2,
    )
    assert "a plan cannot place hashed tables" in found.err


@pytest.mark.slow
def test_one_process_has_the_bits_of_one_server_also_after_stops(hashed, tmp_path):
    """Ages and counts are in commits: what is evicted and admitted later is the same here and there."""
    arguments = ("train", "first", "--config", hashed.options)
    served = hashed(*arguments, "--servers", 1, "--run-dir", tmp_path / "served", "--json").json
    whole = hashed(*arguments, "--run-dir", tmp_path / "whole", "--json").json
    assert whole["hashed"] == served["hashed"]
    assert whole["hashed"]["overlap"]["evicted"]
    assert_equal_runs(tmp_path / "served", tmp_path / "whole")
    for end, options in (("2026-03-02T01:00", ()), ("2026-03-02T03:00", ("--servers", 1)), ("2026-03-02T04:00", ())):
        last = hashed(*arguments, *options, "--run-dir", tmp_path / "parts", "--end", end)
    assert "table overlap: " in last.out
    assert_equal_runs(tmp_path / "served", tmp_path / "parts")


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_bits_of_one_that_was_never_stopped(hashed, tmp_path):
    arguments = ("train", "first", "--config", hashed.options, "--servers", 2)
    whole = hashed(*arguments, "--run-dir", tmp_path / "whole", "--json").json
    assert whole["exact"] is True
    counts = whole["hashed"]
    assert set(counts) == {f"{part}{name}" for part in ("", "linear/") for name in HASHED}
    assert counts["overlap"]["evicted"]
    assert counts["user"]["unadmitted"]
    for end in ("2026-03-02T01:00", "2026-03-02T03:00", "2026-03-02T04:00"):
        last = hashed(*arguments, "--run-dir", tmp_path / "parts", "--end", end)
    assert "table overlap: " in last.out
    assert_equal_runs(tmp_path / "whole", tmp_path / "parts")
    assert len(read_newest(tmp_path / "whole")["embedding/rows/overlap"]) <= 40

    here = hashed("train", "first", "--run-dir", tmp_path / "parts", "--json").json
    assert here["events_this_time"] == 0
    again = hashed("train", "first", "--run-dir", tmp_path / "parts", "--servers", 3, "--json").json
    assert again["events_this_time"] == 0
    before = sorted((tmp_path / "whole" / "checkpoints").glob("epoch-*"))
    epoch = int(before[0].name.removeprefix("epoch-"))
    delta = hashed(
        "export", "delta", tmp_path / "whole", "--output", tmp_path / "chain", "--since", epoch, "--json"
    ).json
    removed = {one["table"]: one["removed"] for one in delta["tables"] if one["kind"] == "embedding"}
    assert removed["overlap"], "rows that were evicted since"
    refused = hashed(
        "model", "export", "first", "--output", tmp_path / "saved", "--trained", tmp_path / "whole", status=2
    )
    assert "a SavedModel cannot hold hashed tables" in refused.err


@pytest.mark.slow
def test_killed_servers_change_no_bit(hashed, tmp_path, monkeypatch):
    write_options(hashed, passes=4)
    arguments = ("train", "first", "--config", hashed.options, "--servers", 2, "--json")
    hashed(*arguments, "--run-dir", tmp_path / "alone")
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
        report = hashed(*arguments, "--run-dir", tmp_path / "killed").json
    finally:
        ends.set()
        killer.join()
    assert kills
    assert report["exact"] is True
    assert_equal_runs(tmp_path / "alone", tmp_path / "killed")


@pytest.mark.slow
def test_a_job_keeps_hashed_tables_on_servers_and_tests_the_model(hashed, tmp_path):
    """Its hosts are clients of the servers, whose status has the counts; a second command goes on."""
    with thread_servers(2) as servers:
        addresses = [str(one.address) for one in servers]
        arguments = ("train", "first", "--config", hashed.options, "--hosts", 2, "--readers", 1, "--servers", ",".join(addresses),
                     "--run-dir", tmp_path / "job", "--json")  # fmt: skip
        hashed(*arguments, "--end", "2026-03-02T02:00")
        report = hashed(*arguments, "--end", "2026-03-02T03:00", "--test-end", "2026-03-02T04:00").json
        assert report["exact"] is True
        check_hosts_train(report, 2, epochs=1)
        assert report["test"]["events"]
        status = hashed("ps", "status", *addresses, "--json").json
        stored = [one["hashed"]["overlap"]["stored"] for one in status["servers"]]
        assert sum(stored) == report["hashed"]["overlap"]["stored"] > 0
        assert "table overlap: " in hashed("ps", "status", *addresses).out


@pytest.mark.slow
def test_hosts_have_the_bits_of_servers(hashed, tmp_path):
    """Each host has what a server of its number has, also if a host is killed: it evicts and admits from its commit as before."""
    write_options(hashed, staleness=1)
    arguments = ("train", "first", "--config", hashed.options, "--hosts", 2, "--readers", 1, "--json")
    served = hashed(*arguments, "--servers", 2, "--run-dir", tmp_path / "served").json
    run, killed = tmp_path / "hosts", []

    def kill() -> None:
        while not (run / "checkpoints" / "epoch-000001").exists():
            time.sleep(0.05)
        killed.append(process_of(run, "h1"))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    hosts = hashed(*arguments, "--run-dir", run).json
    killer.join()
    assert killed
    assert hosts["exact"] is True
    assert_equal_runs(tmp_path / "served", run)
    capacities = {name: one["capacity"] for name, one in served["hashed"].items()}
    assert {name: one["capacity"] for name, one in hosts["hashed"].items()} == capacities, "counts of all hosts"
    assert served["hashed"]["overlap"]["evicted"]
    assert served["hashed"]["user"]["unadmitted"]


def process_of(run: Path, host: str) -> int:
    """The process of a host of the job in a run's folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().decode().split("\0")
        if "role" in words and "host" in words and str(run) in words and host in words:
            return int(path.parent.name)
    raise AssertionError(f"no process of {host} in {run}")


@pytest.mark.slow
def test_a_run_goes_on_with_other_numbers_of_hosts(hashed, tmp_path):
    """With places for all ids the bits are those of a run that keeps the places of its tables; resharded or not."""
    write_options(hashed, hashed={name: {"capacity": 4000} for name in HASHED})
    arguments = ("train", "first", "--config", hashed.options, "--json")
    hashed(*arguments, "--run-dir", tmp_path / "run", "--end", "2026-03-02T01:00")
    hashed("ckpt", "reshard", tmp_path / "run", "--hosts", 2, "--output", tmp_path / "to")
    job = (*arguments, "--readers", 1, "--hosts", 2)
    hashed(*job, "--run-dir", tmp_path / "run", "--end", "2026-03-02T02:00")
    hashed(*job, "--run-dir", tmp_path / "to", "--end", "2026-03-02T02:00", "--servers", 3)
    before = read_newest(tmp_path / "run")
    for name, array in read_newest(tmp_path / "to").items():
        if "history/" not in name:
            assert array.tobytes() == before[name].tobytes(), name
        elif "/ages/" in name:
            assert array.tolist() == before[name].tolist(), name
    hashed("ckpt", "verify", tmp_path / "run")
    rows = len(before["embedding/rows/user"])
    report = hashed(*arguments, "--run-dir", tmp_path / "run").json
    assert report["exact"] is True
    assert report["hashed"]["user"]["stored"] > rows
