"""``headrace evaluate``: the figures of all events and by the values of columns, against those of the predictions of each event."""

from __future__ import annotations

import json
import math
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headrace.cli.options.scoring_hosts import scoring_command
from tests.headrace.conftest import UNTRIED
from tests.support.processes import PATIENCE_SECS, free_port, start
from trainer.errors import HostKilled, HostLost
from trainer.model.metrics import auc, calibration, normalized_entropy
from transforms.child_process import module_command

TESTED = ("--start", "2026-03-02T02:00")


def scored(cli, tmp_path, *columns):
    """The raw columns, the label and the prediction of each event of the tested partitions."""
    cli("predict", "first", *TESTED, "--output", tmp_path / "scores", "--columns", ",".join(["clicked", *columns]))
    files = sorted((tmp_path / "scores").rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).to_pandas()


def figures_of(events):
    labels, chances = events["clicked"].to_numpy(), events["prediction"].to_numpy()
    return auc(labels, chances), normalized_entropy(labels, chances), calibration(labels, chances)


def test_figures_by_a_column_are_those_of_its_events(trained_once, tmp_path):
    ids = (
        ds.dataset(tmp_path / "log", partitioning=None)
        .to_table(columns=["event_id", "time"])
        .sort_by("time")["event_id"]
        .to_pylist()
    )
    trained_once("table", "delete", "log", "--where", f"event_id={ids[-3]}", "--why", "asked for")
    events = scored(trained_once, tmp_path, "position", "user_id")
    found = trained_once(
        "evaluate", "first", *TESTED, "--by", "position", "--by", "user_id", "--most", "3", "--json"
    ).json
    assert found["events"] == len(events)
    assert (found["auc"], found["normalized_entropy"], found["calibration"]) == pytest.approx(
        figures_of(events), rel=1e-4
    )
    assert (found["partitions"], found["trained_partitions"]) == (2, 0)
    by_position, by_user = found["by"]
    for column, one in (("position", by_position), ("user_id", by_user)):
        groups = dict(list(events.groupby(column)))
        assert one["values"] == len(groups)
        sizes = sorted(map(len, groups.values()), reverse=True)
        assert [row["events"] for row in one["segments"]] == sizes[:3]
        for row in one["segments"]:
            own = figures_of(groups[int(row["value"])])
            shown = [row["auc"], row["normalized_entropy"], row["calibration"]]
            assert [math.nan if value is None else value for value in shown] == pytest.approx(
                own, rel=1e-3, nan_ok=True
            )
        assert one["others"]["events"] == sum(sizes[3:])
        areas = [(figures_of(own)[0], len(own)) for own in groups.values() if 0 < own["clicked"].sum() < len(own)]
        mean = np.average([area for area, _ in areas], weights=[size for _, size in areas])
        assert one["grouped_auc"] == pytest.approx(mean, rel=1e-6)


def test_the_screen_says_what_is_unseen(trained_once):
    shown = trained_once("evaluate", "first", *TESTED, "--by", "position").out
    assert "which this run has not trained" in shown
    assert re.search(r"AUC 0\.\d{4} ± 0\.\d{4}", shown)
    assert re.search(r"by position, \d+ values", shown)
    assert "inside the values of position: 0." in shown
    some = trained_once("evaluate", "first", "--start", "2026-03-02T01:00").out
    assert "1 of which this run has trained: unseen events are worse" in some


def test_bad_input_gives_one_error(trained_once):
    for options, status, text in (
        (("--by", "postion"), 2, "postion"),
        (("--most", "0"), 2, "an option must be in its range"),
        (("--run-dir", "none"), 4, "must hold a checkpoint"),
        (("--by", "query", "--start", "soon"), 2, "--start"),
        (("--hosts", "0"), 2, "--hosts must be in its range"),
        (("--hosts", "2", "--rank", "1"), 2, "must go with the addresses of hosts"),
        (("--rank", "1"), 2, "must go with --hosts"),
        (("--hosts", "127.0.0.1:7000,127.0.0.1:7000", "--rank", "0"), 2, "--hosts must be different addresses"),
        (("--hosts", "127.0.0.1:7000,127.0.0.1:7001"), 2, "--rank must be the place of this machine"),
        (("--hosts", "a:7000,b:7000", "--rank", "2"), 2, "--rank must be the place of this machine"),
    ):
        answer = trained_once("evaluate", "first", *options, status=status)
        assert text in answer.err
        assert not answer.out


@pytest.mark.slow
def test_processes_of_this_machine_have_the_figures_of_one(trained_once):
    options = (*TESTED, "--by", "position", "--by", "user_id", "--json")
    alone = trained_once("evaluate", "first", *options).json
    together = trained_once("evaluate", "first", *options, "--hosts", "2").json
    assert {**together, "secs": 0} == {**alone, "secs": 0}


@pytest.mark.slow
def test_hosts_at_addresses_have_the_figures_of_one(trained_once, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123")
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    common = ("evaluate", "first", *TESTED, "--hosts", hosts, "--token-file", token)
    log = tmp_path / "host-1.log"
    command = module_command("headrace", *map(str, common), "--rank", "1", "--home", str(tmp_path / "home"))
    other = start(command, log)
    found = trained_once(*common, "--rank", "0", "--json").json
    assert other.wait(PATIENCE_SECS) == 0, log.read_text()
    assert re.search(r"host 1 has scored \d+ events: host 0 shows the figures", log.read_text())
    assert {**found, "secs": 0} == {**trained_once("evaluate", "first", *TESTED, "--json").json, "secs": 0}


@pytest.mark.slow
def test_a_process_that_ends_early_is_one_error(trained_once, monkeypatch):
    """What it said last is in the error, and nothing waits for it."""

    def failing(*arguments, **named):
        return [*scoring_command(*arguments, **named), "--not-an-option"]

    monkeypatch.setattr("headrace.cli.evaluate.scoring_command", failing)
    answer = trained_once("evaluate", "first", *TESTED, "--hosts", "2", status=HostLost.exit_status)
    assert "a process that scores must not end before the others" in answer.err
    assert "status 2" in answer.err


#: Runs a command of headrace, and kills its process in the second batch that hosts look up together.
KILLED = """
import os, runpy, signal, sys
from trainer.job.scoring import shared_predictions
gather, calls = shared_predictions.gather_numbers, []
def gather_and_end(*arguments):
    calls.append(None)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return gather(*arguments)
shared_predictions.gather_numbers = gather_and_end
sys.argv[0] = "headrace"
runpy.run_module("headrace", run_name="__main__")
"""


@pytest.mark.slow
def test_each_event_is_scored_once_after_a_host_is_killed(trained_once, monkeypatch):
    options = ("evaluate", "first", *TESTED, "--by", "user_id", "--json")
    started = []

    def killed_at_first(*arguments, **named):
        command = scoring_command(*arguments, **named)
        started.append(command)
        return (
            [sys.executable, "-c", KILLED, *command[command.index("headrace") + 1 :]] if len(started) == 1 else command
        )

    monkeypatch.setattr("headrace.cli.evaluate.scoring_command", killed_at_first)
    answer = trained_once(*options, "--hosts", "2")
    assert len(started) == 2
    assert "host 1 was killed: all events are scored again" in answer.err
    assert {**answer.json, "secs": 0} == {**trained_once(*options).json, "secs": 0}


@pytest.mark.slow
def test_a_host_that_is_killed_every_time_is_an_error(trained_once, monkeypatch):
    def killed(*arguments, **named):
        return [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]

    monkeypatch.setattr("headrace.cli.evaluate.scoring_command", killed)
    answer = trained_once("evaluate", "first", *TESTED, "--hosts", "2", status=HostKilled.exit_status)
    assert answer.err.count("host 1 was killed: all events are scored again") == 2
    assert "status -9" in answer.err


@pytest.mark.slow
def test_a_job_tests_a_large_range_with_as_many_processes_as_hosts(submitted, tmp_path, monkeypatch):
    config = tmp_path / "options.json"
    config.write_text(json.dumps(UNTRIED))
    train = ("train", "first", "--config", config, "--end", "2026-03-02T03:00", "--test-end", "2026-03-02T04:00", "--hosts", "2", "--json")  # fmt: skip
    few = submitted(*train, "--run-dir", tmp_path / "few").json["test"]
    monkeypatch.setattr("headrace.cli.held_out_scoring.SHARED_TEST_EVENTS", 0)
    ranks = []
    monkeypatch.setattr(
        "headrace.cli.held_out_scoring.scoring_command",
        lambda *given, **options: ranks.append(given[-2]) or scoring_command(*given, **options),
    )
    many = submitted(*train, "--run-dir", tmp_path / "many").json["test"]
    assert ranks == [1]
    assert many == few
