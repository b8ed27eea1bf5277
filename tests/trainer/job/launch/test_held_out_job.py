"""Jobs with several passes: the command scores the held-out events after each and plans the next by them."""

from __future__ import annotations

import json
import signal

import pytest

from headrace.cli.main import run
from headrace.cli.options.scoring_hosts import scoring_command
from tests.trainer.job.launch.jobs import make_warehouse
from tests.trainer.job.launch.test_command import OPTIONS, Command
from trainer.run.weights.saved_run import read_newest_run
from trainer.scheduling.transitions import JobState

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
PASSES = {
    "passes": 4,
    "stop_passes_early": True,
    "embedding_learning_rate": 0.3,
    "dense_learning_rate": 0.02,
    "events_per_epoch": 700,
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    folder = tmp_path_factory.mktemp("passes")
    make_warehouse(folder, hours=4, rows=700).close()
    return folder


@pytest.fixture(scope="module")
def straight(warehouse):
    """One process."""
    options, run_dir = warehouse / "straight.json", warehouse / "straight"
    options.write_text(json.dumps({**OPTIONS, **PASSES}))
    given = ("train", "ctr", "--home", warehouse / "home", "--run-dir", run_dir, "--config", options, "--json")
    assert run([str(one) for one in given]) == 0
    return read_newest_run(run_dir, on_skip=pytest.fail)


def same_runs(one, other):
    assert one.progress.segments == other.progress.segments
    pairs = zip(one.progress.held_out.scored, other.progress.held_out.scored, strict=True)
    assert all(a.passes == b.passes and a.loss == pytest.approx(b.loss, rel=0.02) for a, b in pairs)
    assert one.progress.held_out.stopped == other.progress.held_out.stopped
    epochs = [[(item.pass_number, item.partitions) for item in each.progress.history] for each in (one, other)]
    assert epochs[0] == epochs[1]
    return True


@pytest.mark.parametrize("hosts", ["1", "2"])
def test_a_job_scores_and_stops_as_one_process_does(warehouse, straight, hosts, tmp_path):
    (tmp_path / "home").symlink_to(warehouse / "home")
    report = Command(tmp_path, "--hosts", hosts, **PASSES).end()
    saved = read_newest_run(tmp_path / "run", on_skip=pytest.fail)
    assert saved.progress.segments == straight.progress.segments
    if hosts == "1":  # a step of two hosts has two batches
        assert same_runs(saved, straight)
    passes = saved.progress.held_out.stopped
    assert 2 <= passes < 4, "the labels are noise: what is remembered does not help"
    older, held_out = saved.progress.segments
    order = [key for item in saved.progress.history for key in item.partitions]
    assert order == passes * list(older) + passes * list(held_out)
    assert (report["exact"], report["passes"], report["most_times"]) == (True, passes, passes)
    assert [one["after_pass"] for one in report["all_passes"]["held_out"]] == [*range(1, passes + 1)]
    kinds = [(one["pass_number"], one["events_are"]) for one in report["epochs"]]
    assert set(kinds) == {(1, "unseen"), *((k, "training") for k in range(2, passes + 1))}


def test_a_killed_job_scores_once_more_and_ends_the_same(warehouse, straight, tmp_path):
    (tmp_path / "home").symlink_to(warehouse / "home")
    command = Command(tmp_path, **PASSES)
    command.wait_until(lambda status: status.state is JobState.WAITING_FOR_DATA)
    command.process.send_signal(signal.SIGKILL)  # while it scores
    command.process.wait()
    report = Command(tmp_path, **PASSES).end()
    assert report["exact"]
    assert same_runs(read_newest_run(tmp_path / "run", on_skip=pytest.fail), straight)


def test_processes_score_a_pass_as_one_does(warehouse, tmp_path, monkeypatch):
    """Many held-out events are scored by as many processes as hosts: figures, blocks of losses and calibration are equal."""
    options, passes = tmp_path / "options.json", []
    options.write_text(json.dumps({**OPTIONS, **PASSES, "passes": 2, "calibration": "platt"}))
    monkeypatch.setattr("headrace.cli.held_out_scoring.scoring_command", lambda *a, **named: passes.append(named["held_out"]) or scoring_command(*a, **named))  # fmt: skip

    def trained(name):
        given = ("train", "ctr", "--home", warehouse / "home", "--run-dir", tmp_path / name, "--config", options, "--hosts", "2", "--json")  # fmt: skip
        assert run([str(one) for one in given]) == 0
        return read_newest_run(tmp_path / name, on_skip=pytest.fail).progress.held_out

    alone = trained("alone")
    assert passes == []
    monkeypatch.setattr("headrace.cli.held_out_scoring.SHARED_TEST_EVENTS", 0)
    assert trained("together") == alone
    assert passes == [one.passes for one in alone.scored]
