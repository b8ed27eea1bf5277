"""``headrace train --batch-files``: later passes and other runs read files, which changed data makes stale."""

from __future__ import annotations

import json

import pytest

from tests.headrace.conftest import UNTRIED
from trainer.job.launch.run_comparison import run_differences

OPTIONS = {**UNTRIED, "batch_rows": 64, "passes": 2}
RANGE = ("--end", "2026-03-02T04:00")


@pytest.fixture
def options(tmp_path):
    """The file of training options."""
    path = tmp_path / "options.json"
    path.write_text(json.dumps(OPTIONS), encoding="utf-8")
    return path


@pytest.fixture
def train(submitted, tmp_path, options):
    """Trains the first model in a run folder of this name, with files unless ``size`` is empty; returns the report."""

    def call(run, *others, size="20MB"):
        files = ("--batch-files", size) if size else ()
        return submitted(
            "train", "first", *RANGE, "--config", options, "--run-dir", tmp_path / run, *files, *others, "--json",
        ).json  # fmt: skip

    return call


def read_and_written(report):
    return report["batch_files"]["read"], report["batch_files"]["written"]


@pytest.mark.medium
def test_other_runs_read_files_until_the_data_changes(train, submitted, tmp_path):
    plain = train("plain", size="")
    assert plain["batch_files"] is None
    one = train("one")
    read, written = read_and_written(one)
    assert read > 0
    assert written > 0
    assert read_and_written(train("two")) == (read + written, 0)
    for run in ("one", "two"):
        assert run_differences(tmp_path / run, tmp_path / "plain") == ()
    assert f"{written} files" in submitted("status").out
    assert submitted("status", "--json").json["batch_files"] == written
    shown = submitted("ckpt", "show", tmp_path / "one", "--json").json["batch_files"]
    names = {path.stem for path in (tmp_path / "home").glob("batches/log/*.batches")}
    assert set(shown) <= names
    assert len(names) == written
    assert submitted("gc", "--leftover-hours", 0, "--json").json["files"] == 0

    submitted("table", "delete", "log", "--where", "position=3", "--end", "2026-03-02T01:00")
    stale = submitted("gc", "--leftover-hours", 0, "--json").json
    assert [one["kind"] for one in stale["garbage"]] == ["batch files"]
    assert 0 < stale["files"] < written
    read, rewritten = read_and_written(train("three"))
    assert rewritten == stale["files"]
    assert read > 0
    train("three-plain", size="")
    assert run_differences(tmp_path / "three", tmp_path / "three-plain") == ()
    assert submitted("gc", "--leftover-hours", 0, "--yes", "--json").json["files"] == stale["files"]
    assert read_and_written(train("four"))[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [("--hosts", 2, "--readers", 1), ("--servers", 2), ("--hosts", 1, "--shuffle-events", 128)]
)
def test_files_change_no_bit_at_any_place(train, tmp_path, place):
    train("plain", *place, size="")
    for run in ("one", "two"):
        train(run, *place)
        assert run_differences(tmp_path / run, tmp_path / "plain") == ()
    assert list((tmp_path / "home").glob("batches/log/*.batches"))


@pytest.mark.medium
def test_a_full_limit_is_said(submitted, options, tmp_path):
    answer = submitted(
        "train", "first", *RANGE, "--config", options, "--batch-files", 3000, "--run-dir", tmp_path / "run"
    )  # fmt: skip
    assert answer.err.count("no more batches are written into files") == 1
    assert "0 files written" in answer.out


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--batch-files", "many"), "a size must be a number of bytes or have a unit"),
        (
            ("--batch-files", "1GB", "--hosts", 2, "--config", '{"batch_rows_per_host": true}'),
            "files of batches must be those of batches that all hosts share",
        ),
    ],
)
def test_bad_options_are_refused(submitted, given, text):
    assert text in submitted("train", "first", *given, status=2).err


def test_a_home_in_a_bucket_is_refused(monkeypatch):
    from headrace.cli.options.batch_files import open_batch_files
    from transforms.errors import InputError

    with pytest.raises(InputError, match="must be a local folder for --batch-files"):
        open_batch_files(1 << 30, "s3://bucket/home")
    assert open_batch_files(0, "s3://bucket/home") is None
