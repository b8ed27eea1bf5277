"""``headrace runs``: the runs of a home, one run, the differences between two, and curves."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli.main import run
from headrace.runs.trained_run import read_run
from headrace.views.runs import shown
from tests.trainer.synthetic import Synthetic, config
from trainer.run.history.history_file import HISTORY
from trainer.run.loop import train
from trainer.run.progress.lock import run_lock
from transforms.errors import InputError, NotFound

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A home with two runs of other options, the second over an hour more."""
    home = tmp_path_factory.mktemp("home")
    run(["init", "--home", str(home)])
    for name, hours, options in (("ctr-v1", 3, {}), ("ctr-v2", 4, {"dense_learning_rate": 0.01, "dims": {"user": 6}})):
        data = Synthetic(hours)
        given = config(home / "runs" / name, batch_rows=32, **options)
        train(data.solution, data.read, given, read_labels=data.read_labels)
    (home / "runs" / "empty-v1").mkdir()
    return home


@pytest.fixture
def home(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def call(home: Path, capsys, monkeypatch):
    monkeypatch.setattr("headrace.terminal.output.PLAIN_WIDTH", 200)

    def of(*words: object, status: int = 0) -> Any:
        assert run(["runs", *map(str, words), "--home", str(home)]) == status
        found = capsys.readouterr()
        return found.err if status else found.out

    return of


def test_the_runs_of_a_home_are_listed(call, home):
    text = call("ls")
    assert [line.split()[:3] for line in text.splitlines()[2:4]] == [["ctr-v2", "idle", "4"], ["ctr-v1", "idle", "3"]]
    assert "empty-v1: no commit yet" in text
    rows = json.loads(call("ls", "--json"))["runs"]
    assert [row["run"] for row in rows] == ["ctr-v2", "ctr-v1", "empty-v1"]
    own = read_run(str(home / "runs" / "ctr-v1"))
    assert rows[1]["newest"]["log_loss"] == own.epochs[-1].scores.log_loss
    assert (rows[1]["step"], rows[1]["events"], rows[1]["table"]) == (own.step, own.events, own.identity.table)


def test_a_run_that_is_trained_says_so(call, home):
    with run_lock(home / "runs" / "ctr-v1"):
        states = {row["run"]: row["state"] for row in json.loads(call("ls", "--json"))["runs"]}
    assert states == {"ctr-v1": "training", "ctr-v2": "idle", "empty-v1": "idle"}


def test_a_home_without_runs_has_a_next_step(call, home):
    shutil.rmtree(home / "runs")
    assert "next: headrace train" in call("ls")


def test_a_run_is_shown(call, home):
    text = call("show", "ctr", "--version", 1)
    for part in ("3 epochs", "history", "dense_learning_rate", "first partition"):
        assert part in text
    found = json.loads(call("show", "ctr", "--json"))
    assert found["run"] == "ctr-v2"
    assert [one["epoch"] for one in found["epochs_trained"]] == [0, 1, 2, 3]
    assert found["options"]["dense_learning_rate"] == 0.01
    assert found["windows"] > 0
    assert call("show", home / "runs" / "ctr-v2", "--json") == call("show", "ctr", "--version", 2, "--json")


def test_unknown_runs_are_refused(call, home):
    assert "headrace train" in call("show", "nothing", status=4)
    assert "checkpoint" in call("show", home / "runs" / "empty-v1", status=4)


def test_differences_are_found(call, home):
    runs = home / "runs"
    found = json.loads(call("diff", runs / "ctr-v1", runs / "ctr-v2", "--json"))
    assert {one["name"]: (one["first"], one["second"]) for one in found["options"]} == {
        "dense_learning_rate": (config("x").dense_learning_rate, 0.01),
        "dims": ({}, {"user": 6}),
    }
    assert [one["name"] for one in found["data"]] == ["last partition", "partitions", "step"]
    assert found["inputs"] == []
    assert [one["name"] for one in found["common_epochs"]] == ["epoch 0", "epoch 1", "epoch 2"]
    text = call("diff", runs / "ctr-v1", runs / "ctr-v2")
    assert "inputs: the same" in text
    same = call("diff", runs / "ctr-v1", runs / "ctr-v1")
    assert "options: the same" in same
    assert "data: the same" in same


def test_curves_are_drawn_and_written(call, home, tmp_path):
    runs, svg = home / "runs", tmp_path / "curves.svg"
    text = call("plot", runs / "ctr-v1", runs / "ctr-v2", "--smoothing", 0.5, "--svg", svg)
    assert "normalized_entropy by optimizer steps, smoothing 0.5" in text
    assert "ctr-v1" in text
    assert str(svg) in text
    ElementTree.parse(svg)
    found = json.loads(call("plot", "ctr", "--metric", "auc", "--x", "events", "--commits", "--json"))
    (one,) = found["curves"]
    assert one["run"] == "ctr-v2"
    assert one["x"][-1] == read_run(str(runs / "ctr-v2")).events
    assert len(one["y"]) == 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--metric", "speed"), "figure"),
        (("--x", "epochs"), "axis"),
        (("--smoothing", 1.0), "smoothing"),
        (("--smoothing", -0.1), "smoothing"),
        (("--svg", "/nowhere/at/all.svg"), "output file"),
    ],
)
def test_wrong_options_of_plots_are_refused(call, given, says):
    assert says in call("plot", "ctr", *given, status=6 if says == "output file" else 2)


def test_a_run_with_a_damaged_history_is_shown_without_it(call, home):
    (path,) = (home / "runs" / "ctr-v1" / "checkpoints" / "epoch-000003").glob(HISTORY)
    path.write_bytes(b"x" * 100)
    assert "passed over: the metric history" in call("show", "ctr", "--version", 1)
    assert "metric history" in call("plot", home / "runs" / "ctr-v1", status=4)


def test_a_torn_commit_is_passed_over(call, home):
    (home / "runs" / "ctr-v1" / "checkpoints" / "epoch-000003" / "manifest.json").write_bytes(b"{")
    found = json.loads(call("show", "ctr", "--version", 1, "--json"))
    assert (found["commit"], found["commits"]) == (2, [3, 2])
    assert "epoch-000003" in found["skipped"][0]


def test_the_history_comes_from_the_screen(home):
    screen = shown(str(home / "runs" / "ctr-v1"))
    history = screen.history()
    assert history.windows["step"][-1] == screen.run.step
    assert history.to_polars()["events"].to_list()[-1] == screen.run.events
    (home / "runs" / "ctr-v1" / "checkpoints" / "epoch-000003" / HISTORY).unlink()
    with pytest.raises(NotFound, match="metric history"):
        shown(str(home / "runs" / "ctr-v1")).history()


def test_python_has_the_same(call, home):
    with hr.open(home) as w:
        assert w.runs().to_dict() == json.loads(call("ls", "--json"))
        assert w.run("ctr").to_dict() == json.loads(call("show", "ctr", "--json"))
        runs = home / "runs" / "ctr-v1", home / "runs" / "ctr-v2"
        assert w.compare(*runs).to_dict() == json.loads(call("diff", *runs, "--json"))
        curves = w.curves("ctr", metric="auc", x="events", smoothing=0.2, commits=True)
        options = ("--metric", "auc", "--x", "events", "--smoothing", 0.2, "--commits")
        assert curves.to_dict() == json.loads(call("plot", "ctr", *options, "--json"))
        assert curves._repr_html_().startswith("<svg")
        assert w.run("ctr", 1).history().commits["epoch"].tolist() == [0, 1, 2]
        with pytest.raises(InputError, match="curves"):
            w.curves()


def test_event_files_of_a_run_are_written_once(call, home, tmp_path):
    text = call("tensorboard", "ctr", tmp_path / "events")
    assert f"tensorboard --logdir {tmp_path}/events/ctr-v2" in text
    assert json.loads(call("tensorboard", "ctr", tmp_path / "events", "--json"))["points"] == 0
    assert len(list((tmp_path / "events" / "ctr-v2").iterdir())) == 1
    assert "local folder" in call("tensorboard", "ctr", "gs://bucket/events", status=2)
