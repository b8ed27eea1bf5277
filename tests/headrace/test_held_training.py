"""``headrace train --hosts`` on jobs that are held, and ``headrace holds``."""

from __future__ import annotations

import json

import pytest

from headrace.cli.main import run
from tests.headrace.conftest import UNTRIED
from tests.trainer.job.launch.jobs import make_warehouse

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path):
    with make_warehouse(tmp_path, hours=2, rows=500):
        pass
    return tmp_path / "home"


@pytest.fixture
def headrace(home, tmp_path, capsys):
    """Runs a command on the warehouse; its status and output."""

    def call(*arguments, **options):
        config = tmp_path / "training.json"
        config.write_text(json.dumps({**UNTRIED, "batch_rows": 64, **options}), encoding="utf-8")
        more = ("--config", config, "--hosts", 1, "--readers", 1) if arguments[0] == "train" else ()
        return run([str(one) for one in (*arguments, *more, "--home", home)]), capsys.readouterr()

    return call


def test_divergence_holds_until_a_release(headrace, home):
    diverging = {"deep": True, "dim": 4, "bottom_mlp": [4], "top_mlp": [4], "dense_optimizer": "sgd"} | {"dense_learning_rate": 1e30}  # fmt: skip
    for time in ("first", "second"):
        status, printed = headrace("train", "ctr", **diverging)
        assert (status, printed.err.count("error:"), "NonFiniteLoss" in printed.err) == (7, 1, True), time
        assert f"headrace holds release {home / 'runs' / 'ctr-v1'}" in printed.err
    assert "NonFiniteLoss" in headrace("holds", "ls")[1].out
    assert headrace("holds", "release", "ctr")[0] == 0
    assert headrace("holds", "release", "ctr")[0] == 2
    assert "no job is held" in headrace("holds", "ls")[1].out
    assert headrace("train", "ctr", **diverging)[0] == 7, "the job trained again, and diverged again"


@pytest.mark.soak
def test_a_job_goes_on_after_its_data_is_repaired_and_its_hold_released(headrace, home, tmp_path, monkeypatch):
    from trainer.job.launch import training_job

    stored = sorted((tmp_path / "log").rglob("*.parquet"))[-1]
    content = stored.read_bytes()
    make = training_job.make_job

    def make_then_damage(*arguments, **options):
        job = make(*arguments, **options)
        stored.write_bytes(b"\0" * len(content))
        return job

    monkeypatch.setattr(training_job, "make_job", make_then_damage)
    status, printed = headrace("train", "ctr")
    assert status == 7, printed.err
    monkeypatch.undo()
    stored.write_bytes(content)
    status, printed = headrace("train", "ctr")
    assert status == 7, "a repair alone does not release the hold"
    assert headrace("holds", "release", "ctr")[0] == 0
    status, printed = headrace("train", "ctr", "--json")
    assert status == 0, printed.err
    trained = json.loads(printed.out)
    assert trained["exact"]
    assert trained["counted"] == 1000
