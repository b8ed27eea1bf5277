"""``headrace train --tensorboard``: the points of each commit, once, over several calls of the command."""

from __future__ import annotations

import json

import pytest

from headrace.cli.main import run
from headrace.tracking.event_records import read_events
from headrace.tracking.points import new_points
from tests.headrace.conftest import UNTRIED
from trainer.checkpoints.open_run import open_run
from trainer.run.history.history_file import read_history

pytest.importorskip("tensorflow")


@pytest.mark.medium
@pytest.mark.parametrize("more", [(), pytest.param(("--hosts", 1), marks=pytest.mark.slow)])
def test_each_point_is_written_once(submitted, tmp_path, more):
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({"batch_rows": 16, **UNTRIED}), encoding="utf-8")
    events = tmp_path / "events"
    for end in ("2026-03-02T02:00", "2026-03-02T04:00"):
        submitted("train", "first", "--end", end, "--config", settings, "--tensorboard", events, *more)
    files = sorted((events / "first-v1").iterdir())
    assert len(files) == 2
    found = [event.step for path in files for event in read_events(path.read_bytes()) if event.scalars]
    folder = str(tmp_path / "home" / "runs" / "first-v1")
    files_of_run = open_run(folder)
    newest = max(int(name.removeprefix("epoch-")) for name in files_of_run.folders("") if name.startswith("epoch-"))
    assert sorted(found) == [point.step for point in new_points(read_history(files_of_run, newest), {})]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--tensorboard", "gs://bucket/events"], "local folder"),
        (["--tensorboard", "events", "--launcher", "gke", "--version", "1", "--readers", "1"], "this command runs"),
    ],
)
def test_folders_that_cannot_be_written_are_refused_before_training(submitted, capsys, tmp_path, given, says):
    home = ["--home", str(tmp_path / "home")]
    assert run(["train", "first", *given, *([] if "--launcher" in given else home)]) == 2
    assert says in capsys.readouterr().err
