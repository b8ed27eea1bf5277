"""Copies of a history while a run is trained: each commit once, and training goes on without a destination that fails."""

from __future__ import annotations

import pytest

from headrace.tracking.run_tracker import RunTracker
from tests.trainer.run.history.histories import history_of, train
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.model.heads import BINARY
from trainer.run.history.history_file import HISTORY, history_bytes
from transforms.errors import StorageError


class Kept:
    """A destination that keeps the steps of the histories."""

    place = "kept"

    def __init__(self):
        self.steps, self.fails, self.closed = [], False, False

    def add(self, history):
        if self.fails:
            raise StorageError("the destination must be there", where="here")
        self.steps.append(history.step)
        return 1

    def close(self):
        self.closed = True


def commit(run_dir, number, history):
    write_checkpoint(run_dir, number, {"step": history.step}, {}, keep=2, others={HISTORY: history_bytes(history)})


def test_each_commit_is_copied_once_and_failures_are_made_up_for(tmp_path):
    said, kept = [], Kept()
    with RunTracker(str(tmp_path), [kept], said.append) as tracker:
        tracker.look()
        assert kept.steps == []
        history = history_of(BINARY, [20])
        commit(tmp_path, 1, history)
        tracker.look()
        tracker.look()
        assert kept.steps == [20]
        kept.fails = True
        for number in (2, 3):
            history = train(history, BINARY, [20])
            commit(tmp_path, number, history)
            tracker.look()
        assert len(said) == 1
        with pytest.raises(StorageError, match="must be there"):
            tracker.check()
        kept.fails = False
        tracker.look()
        tracker.check()
        assert kept.steps == [20, 60]
    assert kept.closed


def test_a_damaged_history_is_a_problem_until_the_next_commit(tmp_path):
    said, kept = [], Kept()
    tracker = RunTracker(str(tmp_path), [kept], said.append)
    commit(tmp_path, 1, history_of(BINARY, [20]))
    path = tmp_path / "checkpoints" / "epoch-000001" / HISTORY
    path.write_bytes(path.read_bytes()[:-3])
    tracker.look()
    assert "not copied yet" in said[0]
    commit(tmp_path, 2, history_of(BINARY, [20, 20]))
    tracker.look()
    tracker.check()
    assert kept.steps == [40]
