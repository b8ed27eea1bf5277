"""The options of ``headrace train`` that only a job has are refused, before anything is read, where they would be ignored."""

from __future__ import annotations

import pytest

from headrace.cli.main import run


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--epoch-secs", "5"], "options of a job must go with --hosts"),
        (["--epoch-steps", "5", "--notice-file", "x"], "--epoch-steps, --notice-file"),
        (["--hosts", "1", "--caught-up-hosts", "1"], "settings of caught-up training must go with --follow"),
        (["--caught-up-readers", "1"], "settings of caught-up training must go with --follow"),
        (["--follow", "--end", "2026-03-03"], "--follow must go without --end"),
        (["--follow", "--caught-up-hosts", "-1"], "--caught-up-hosts"),
        (["--hosts", "-1"], "at least one host"),
        (["--hosts", "1", "--epoch-events", "-1"], "at least 0"),
        (["--hosts", "2", "--least-hosts", "3"], "up to 2"),
        (["--follow", "--hosts", "2", "--caught-up-hosts", "1", "--least-hosts", "2"], "up to 1"),
        (["--hosts", "1", "--grace-secs", "nan"], "a grace period must be a number of seconds"),
        (["--run-dir", "gs://bucket/run"], "give --hosts 1 too"),
        (["--job-dir", "folder"], "--job-dir must go with a run directory in a bucket"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(options, text, tmp_path, capsys):
    home = tmp_path / "home"
    assert run(["train", "ctr", "--home", str(home), *options]) == 2
    assert text in " ".join(capsys.readouterr().err.split())
    assert not home.exists()
