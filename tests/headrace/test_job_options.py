"""The options of ``headrace train`` that only a job has are refused, before anything is read, where they would be ignored."""

from __future__ import annotations

import os

import pytest

from headrace.cli.main import run
from headrace.cli.train_options.arguments import parse_training
from headrace.cli.training_jobs import job_options, job_settings


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
        (["--hosts", "1", "--readers", "8..2"], "readers must be a number, or a range"),
        (["--hosts", "1", "--readers", "0"], "a number from 1 on"),
        (["--hosts", "1", "--follow", "--caught-up-readers", "2.."], "--caught-up-readers"),
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


@pytest.mark.parametrize(
    ("options", "initial", "caught_up"),
    [
        (["--readers", "3"], (3, 3), (3, 3)),
        (["--readers", "2..8"], (2, 8), (2, 8)),
        (["--readers", "2..8", "--follow", "--caught-up-readers", "1..2"], (2, 8), (1, 2)),
    ],
)
def test_a_range_of_readers_limits_each_phase(options, initial, caught_up):
    found = job_options(parse_training(["ctr", "--hosts", "1", *options]))
    settings = job_settings(found)
    assert (settings.initial.least_readers, settings.initial.most_readers) == initial
    assert (settings.caught_up.least_readers, settings.caught_up.most_readers) == caught_up


def test_a_job_without_a_number_has_at_most_a_reader_on_each_core():
    settings = job_settings(job_options(parse_training(["ctr", "--hosts", "1"])))
    assert (settings.initial.least_readers, settings.initial.most_readers) == (1, os.cpu_count())


def test_processes_of_a_job_on_this_machine_have_free_ports(capsys):
    assert run(["train", "m", "--hosts", "2", "--metrics-address", "9464"]) == 2
    assert "free ports" in capsys.readouterr().err
    assert run(["train", "m", "--metrics-targets", "folder"]) == 2
    assert "--metrics-address" in capsys.readouterr().err
