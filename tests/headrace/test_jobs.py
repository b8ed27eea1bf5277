"""``headrace jobs``: the commands, and a fleet of real trainings."""

from __future__ import annotations

import json

import pytest

from headrace.cli.main import run
from tests.headrace.conftest import UNTRIED
from tests.trainer.job.launch.jobs import make_warehouse


@pytest.fixture
def headrace(tmp_path, monkeypatch, capsys):
    """Runs a command in the home; its status, its JSON document, and its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    def call(*arguments):
        status = run([str(one) for one in arguments])
        printed = capsys.readouterr()
        return status, json.loads(printed.out) if printed.out.startswith("{") else printed.out, printed.err

    return call


def test_jobs_are_queued_listed_and_stopped(headrace, tmp_path):
    assert "no job" in headrace("jobs", "ls")[1]
    status, first, _ = headrace(
        "jobs", "submit", "--priority", 2, "--json", "--", "train", "ctr", "--hosts", 2, "--readers=3"
    )
    assert (status, first["name"], first["state"], first["slots"], first["priority"]) == (0, "ctr-1", "QUEUED", 5, 2)
    assert first["arguments"] == ["ctr", "--hosts", "2", "--readers=3"]
    assert (first["folder"], first["home"]) == (str(tmp_path), str(tmp_path / "home"))
    second = headrace("jobs", "submit", "--slots", 4, "--json", "--", "train", "ctr", "--run-dir", "there")[1]
    assert (second["name"], second["slots"], second["run_dir"]) == ("ctr-2", 4, str(tmp_path / "there"))
    assert headrace("jobs", "submit", "--name", "alone", "--json", "--", "train", "ctr")[1]["slots"] == 1
    listed = headrace("jobs", "ls", "--json")[1]["jobs"]
    assert [(one["number"], one["name"]) for one in listed] == [(1, "ctr-1"), (2, "ctr-2"), (3, "alone")]
    assert "ctr-2" in headrace("jobs", "ls")[1]
    assert headrace("jobs", "stop", "alone", "--json")[1]["state"] == "STOPPED"
    assert "the job waits for slots" in headrace("jobs", "show", 2)[1]
    assert headrace("jobs", "logs", 1)[:2] == (0, "")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("submit", "--", "predict", "ctr"), 2, "a job must be a training"),
        (("submit", "--", "train"), 2, "Missing argument"),
        (("submit", "--", "train", "ctr", "--host", "1"), 2, "No such option"),
        (("submit", "--", "train", "ctr", "--hosts", "many"), 2, "a valid integer"),
        (("submit", "--name", "7", "--", "train", "ctr"), 2, "must begin with a letter"),
        (("submit", "--name", "a..b", "--", "train", "ctr"), 2, "must consist of letters, digits"),
        (("submit", "--slots", "-1", "--", "train", "ctr"), 2, "at least one slot"),
        (("show", "ctr"), 4, "has no such job"),
        (("stop", "ctr"), 4, "has no such job"),
        (("run", "--slots", "0"), 2, "at least one slot"),
    ],
)
def test_wrong_input_is_one_error(headrace, arguments, status, message):
    got, _, errors = headrace("jobs", *arguments)
    assert (got, message in errors) == (status, True), errors


def test_a_job_that_has_ended_is_not_stopped(headrace):
    headrace("jobs", "submit", "--", "train", "ctr")
    assert headrace("jobs", "stop", 1)[0] == 0
    status, _, errors = headrace("jobs", "stop", 1)
    assert (status, "the job has ended" in errors) == (2, True)


@pytest.mark.slow
@pytest.mark.soak
def test_a_fleet_trains_holds_and_goes_on(headrace, tmp_path):
    """A job that diverges is held, and the next one takes its slots; after its release it trains, and is held again."""
    pytest.importorskip("tensorflow")
    with make_warehouse(tmp_path, hours=2, rows=500):
        pass
    diverging = {"deep": True, "dim": 4, "bottom_mlp": [4], "top_mlp": [4], "dense_optimizer": "sgd", "dense_learning_rate": 1e30}  # fmt: skip
    for name, options in (("good", {}), ("bad", diverging)):
        (tmp_path / f"{name}.json").write_text(json.dumps({**UNTRIED, "batch_rows": 64, **options}))
    submit = ("jobs", "submit", "--json", "--slots", 2)
    train = ("train", "ctr", "--hosts", 1, "--readers", 1, "--config")
    headrace(*submit, "--name", "bad", "--priority", 1, "--", *train, "bad.json", "--run-dir", "runs/bad")
    headrace(*submit, "--name", "good", "--", *train, "good.json", "--run-dir", "runs/good")
    headrace(*submit, "--name", "wrong", "--", "train", "nothing")

    def states():
        status, found, errors = headrace("jobs", "run", "--slots", 2, "--until-idle", "--json")
        assert status == 0, errors
        return {one["name"]: (one["state"], one["starts"]) for one in found["jobs"]}

    assert states() == {"bad": ("HELD", 1), "good": ("DONE", 1), "wrong": ("FAILED", 1)}
    assert "a job must not be held" in headrace("jobs", "show", "bad")[1]
    assert "headrace holds release" in headrace("jobs", "show", "bad")[1]
    assert "NonFiniteLoss" in headrace("jobs", "logs", "bad")[1]
    assert "trained" in headrace("jobs", "logs", "good", "--lines", 30)[1]
    assert states()["bad"] == ("HELD", 1)
    assert headrace("holds", "release", "runs/bad")[0] == 0
    assert states()["bad"] == ("HELD", 2)
