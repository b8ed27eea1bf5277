"""The metric history of a run has each step once, with the commit, however the run is stopped, killed or resumed."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

from tests.trainer.run.test_chaos import kill_after, run_to_the_end
from tests.trainer.synthetic import Synthetic, config
from trainer.checkpoints.checkpoint import read_newest
from trainer.checkpoints.open_run import open_run
from trainer.run.history.figures import figures
from trainer.run.history.history_file import HISTORY, read_history
from trainer.run.history.run_history import RunHistory
from trainer.run.loop import TrainEvent, train

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 32, "keep_checkpoints": 8}


@pytest.fixture(scope="module")
def data() -> Synthetic:
    return Synthetic(3)


def trained(data: Synthetic, run_dir, stop=None, **options):
    events: list[TrainEvent] = []
    report = train(
        data.solution,
        data.read,
        config(run_dir, **{**OPTIONS, **options}),
        read_labels=data.read_labels,
        stop=stop,
        progress=events.append,
    )
    return report, events


def newest_history(run_dir) -> RunHistory:
    checkpoint = read_newest(run_dir, on_skip=pytest.fail)
    found = read_history(open_run(run_dir), checkpoint.epochs_done)
    assert found is not None
    assert found.step == checkpoint.document["step"]
    return found


def column(history: RunHistory, name: str, label: str | None = None, rows: str = "windows") -> list[float]:
    return history.layout.column(getattr(history, rows), name, label).tolist()


def assert_same_training(one: RunHistory, other: RunHistory) -> None:
    """All of the two histories is equal bit for bit but times, and how fast data came."""
    assert (one.first_step, one.window_steps) == (other.first_step, other.window_steps)
    is_timed = ("secs", "ended_at", "data_wait_secs", "row_wait_secs", "fullness", "fullness_samples")
    per_process = ("idle_units",)  # counted since a process began
    for rows in ("windows", "commits"):
        for label, name in one.layout.names:
            if name == "gradient_norms":  # differences of a sum since a process began
                assert column(one, name, label, rows) == pytest.approx(column(other, name, label, rows))
            elif name not in (*is_timed, *per_process):
                assert column(one, name, label, rows) == column(other, name, label, rows), (rows, label, name)


def test_a_run_keeps_its_windows_and_commits(tmp_path, data):
    report, _ = trained(data, tmp_path, passes=2)
    history = newest_history(tmp_path)
    scores = [one.scores for one in report.history]
    assert len(scores) == 6
    assert column(history, "commit", rows="commits") == [1, 2, 3, 4, 5, 6]
    assert column(history, "epoch", rows="commits") == [0, 1, 2, 3, 4, 5]
    assert column(history, "pass_number", rows="commits") == [one.pass_number for one in report.history]
    assert column(history, "events", rows="commits") == [one.events for one in scores]
    assert sum(column(history, "events")) == report.events == sum(one.events for one in scores)
    found = figures(history.layout, history.commits)
    np.testing.assert_allclose(found["log_loss"], [one.log_loss for one in scores], rtol=1e-5)
    np.testing.assert_allclose(found["auc"], [one.auc for one in scores], atol=0.05)  # of pairs inside windows
    np.testing.assert_allclose(found["calibration"], [one.calibration for one in scores], rtol=1e-4)
    assert (found["gradient_norm"] > 0).all()
    assert ((found["idle_units_share"] >= 0) & (found["idle_units_share"] < 1)).all()
    assert 0 < sum(column(history, "secs")) <= report.seconds
    assert (found["data_wait_share"] < 1).all()


@pytest.mark.parametrize("staleness", [1, 3, 7])
def test_steps_of_which_several_end_at_once_are_counted(tmp_path, data, staleness):
    """A drain ends several steps, and a window may end between them."""
    trained(data, tmp_path, staleness=staleness, batch_rows=37, passes=2)
    history = newest_history(tmp_path)
    assert sum(column(history, "steps")) == sum(column(history, "gradient_steps")) == history.step
    assert 0 < figures(history.layout, history.commits)["staleness"][0] <= staleness


def test_a_run_that_is_stopped_after_each_epoch_has_the_same_history(tmp_path, data):
    trained(data, tmp_path / "straight", staleness=2)
    for _ in range(3):
        trained(data, tmp_path / "stopped", stop=lambda: True, staleness=2)
    straight, stopped = newest_history(tmp_path / "straight"), newest_history(tmp_path / "stopped")
    assert_same_training(straight, stopped)
    assert len(straight.windows) > 1


def test_a_run_that_goes_on_from_an_older_commit_drops_the_later_windows(tmp_path, data):
    trained(data, tmp_path / "straight")
    shutil.copytree(tmp_path / "straight", tmp_path / "back")
    for later in (2, 3):
        shutil.rmtree(tmp_path / "back" / "checkpoints" / f"epoch-{later:06d}")
    older = newest_history(tmp_path / "back")
    assert column(older, "commit", rows="commits") == [1]
    trained(data, tmp_path / "back")
    assert_same_training(newest_history(tmp_path / "straight"), newest_history(tmp_path / "back"))


def test_an_epoch_that_ends_early_is_a_commit(tmp_path, data):
    batches = iter(range(1000))
    run = config(tmp_path, **OPTIONS)
    train(data.solution, data.read, run, read_labels=data.read_labels, ends_early=lambda: next(batches) == 24)
    assert column(newest_history(tmp_path), "steps", rows="commits")[-1] < 20
    trained(data, tmp_path)
    trained(data, tmp_path.parent / "straight")
    cut, straight = newest_history(tmp_path), newest_history(tmp_path.parent / "straight")
    for name in ("step", "steps", "events", "epoch"):
        assert column(cut, name) == column(straight, name), name
    assert len(cut.commits) == len(straight.commits) + 1


def test_a_run_of_an_earlier_release_begins_a_history(tmp_path, data):
    trained(data, tmp_path, stop=lambda: True)
    (path,) = tmp_path.rglob(HISTORY)
    path.unlink()
    _, events = trained(data, tmp_path)
    assert [event for event in events if event.kind == "history"] == []
    history = newest_history(tmp_path)
    assert history.first_step > 0
    assert column(history, "commit", rows="commits") == [2, 3]


def test_a_damaged_history_begins_again_and_says_so(tmp_path, data):
    trained(data, tmp_path, stop=lambda: True)
    (path,) = tmp_path.rglob(HISTORY)
    path.write_bytes(path.read_bytes()[:-1])
    report, events = trained(data, tmp_path)
    assert report.resumed_from
    (told,) = [event.message for event in events if event.kind == "history"]
    assert "begins again" in told
    assert HISTORY in told
    assert newest_history(tmp_path).first_step > 0


def test_no_history_of_another_commit_is_taken(tmp_path, data):
    trained(data, tmp_path, stop=lambda: True)
    first = next(tmp_path.rglob(HISTORY)).read_bytes()
    trained(data, tmp_path, stop=lambda: True)
    (tmp_path / "checkpoints" / "epoch-000002" / HISTORY).write_bytes(first)
    _, events = trained(data, tmp_path)
    assert "must end with its commit" in next(event.message for event in events if event.kind == "history")


@pytest.mark.slow
def test_five_kills_leave_each_window_once(tmp_path):
    rng = random.Random(20261130)
    run_to_the_end(tmp_path / "straight")
    for kill in range(5):
        batches, extra_secs = (9, 2.0) if not kill else (rng.randint(1, 9), rng.random() * 0.05)
        print(f"kill {kill + 1}: {extra_secs:.3f} s after batch {batches}")
        assert kill_after(tmp_path / "killed", batches, extra_secs), "the run ended before it was killed"
    run_to_the_end(tmp_path / "killed")
    assert_same_training(newest_history(tmp_path / "straight"), newest_history(tmp_path / "killed"))
