"""``headrace predict --hosts``: files of the same bytes as those of one process, each event once, also after a host is killed."""

from __future__ import annotations

import sys

import pyarrow.parquet as pq
import pytest

from headrace.cli.options.scoring_hosts import predicting_command
from tests.headrace.test_evaluate import KILLED
from transforms.child_process import module_command

pytestmark = pytest.mark.slow
SCORED = ("predict", "first", "--start", "2026-03-02T01:00", "--columns", "position")


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_hosts_write_the_files_of_one_process_also_after_one_is_killed(trained_once, tmp_path, monkeypatch):
    alone = trained_once(*SCORED, "--output", tmp_path / "alone", "--json").json
    expected, started = files(tmp_path / "alone"), []

    def killed_at_first(*arguments):
        command = predicting_command(*arguments)
        started.append(command)
        return (
            [sys.executable, "-c", KILLED, *command[command.index("headrace") + 1 :]] if len(started) == 1 else command
        )

    monkeypatch.setattr("headrace.cli.predict.predicting_command", killed_at_first)
    answer = trained_once(*SCORED, "--output", tmp_path / "together", "--hosts", "2", "--json")
    assert "host 1 was killed: all events are scored again" in answer.err
    assert files(tmp_path / "together") == expected
    assert answer.json["files"] + answer.json["known_files"] == alone["files"] == len(expected)
    again = trained_once(*SCORED, "--output", tmp_path / "together", "--hosts", "2", "--json").json
    assert (again["files"], again["rows"], again["known_files"]) == (0, 0, len(expected))
    rows = [row for path in sorted((tmp_path / "together").rglob("*.parquet")) for row in pq.read_table(path, columns=["fragment", "row"]).to_pylist()]  # fmt: skip
    assert len({(row["fragment"], row["row"]) for row in rows}) == len(rows) == alone["rows"]


def test_a_fragment_that_cannot_be_read_is_a_failure_and_the_others_are_written(trained_once, tmp_path):
    damaged = sorted((tmp_path / "log").rglob("*.parquet"))[-1]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    options = (*SCORED, "--output", tmp_path / "scores", "--json")
    together = trained_once(*options, "--hosts", "2", status=3).json
    alone = trained_once(*SCORED, "--output", tmp_path / "alone", "--json", status=3).json
    assert together["failures"] == alone["failures"]
    assert len(together["failures"]) == 1
    assert files(tmp_path / "scores") == files(tmp_path / "alone")


def test_bad_options_are_refused(trained_once, tmp_path):
    answer = trained_once(*SCORED, "--output", tmp_path / "x", "--hosts", "2", "--runner", "FlinkRunner", status=2)
    assert "--hosts needs no Beam runner" in answer.err
    assert "must go with --hosts" in trained_once(*SCORED, "--output", tmp_path / "x", "--rank", "1", status=2).err


def test_the_command_of_another_process_names_the_same_scores():
    own = predicting_command("m", 3, "run", "a", "", "x,y", "out", "home", 2, 7, 1, "folder")
    assert own == module_command(
        "headrace", "predict", "m", "--run-dir", "run", "--version", "3", "--output", "out", "--start", "a", "--columns", "x,y",
        "--home", "home", "--table-version", "7", "--hosts", "2", "--rank", "1", "--meeting", "folder",
    )  # fmt: skip
