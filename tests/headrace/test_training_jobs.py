"""What a training by jobs does between two jobs, and what it looks at while one runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.cli import training_jobs
from headrace.cli.training_jobs import JobOptions, _Job, train_job
from trainer.scheduling.transitions import JobState
from transforms.errors import StorageError

DONE = SimpleNamespace(state=JobState.DONE, hold=None)
STOPPED = SimpleNamespace(state=JobState.STOPPED, hold=None)


@pytest.fixture
def train(monkeypatch):
    """Trains by jobs that end with these states, while so many looks find something left; returns what was done."""

    def work(ends, left, remote=None):
        done = []

        class Jobs:
            def __init__(self, *given):
                self._ends, self._left = iter(ends), iter(left)

            @property
            def is_left(self):
                return next(self._left)

            def run(self):
                found = next(self._ends)
                if isinstance(found, Exception):
                    raise found
                done.append("run")
                return found

            def prepare(self):
                done.append("prepare")

            def close(self):
                done.append("close")

            def report(self, secs):
                assert 0 <= secs < 3600
                done.append("report")
                return done

        monkeypatch.setattr(training_jobs, "_Job", Jobs)
        monkeypatch.setattr(training_jobs, "say", lambda text: done.append(text))
        config = SimpleNamespace(run_dir="run")
        try:
            return train_job(None, None, config, None, JobOptions(None), remote)
        except StorageError:
            return done

    return work


def test_jobs_run_while_something_is_left_and_the_last_one_was_done(train):
    job = ["run", "prepare"]
    assert train([], [False]) == ["close", "report"]
    assert train([DONE], [True, False]) == [*job, "close", "report"]
    assert train([DONE, DONE], [True, True, False]) == [*job, *job, "close", "report"]
    assert train([STOPPED], [True, True]) == [*job, "close", "report"]
    assert train([StorageError("no disk")], [True]) == ["close"], "what runs beside jobs ends with an error, too"


def test_workers_on_other_machines_train_one_job_unless_they_are_started_again(train):
    job = ["run", "prepare"]
    again = "an earlier plan is trained: launch the job again to train what has come since"
    assert train([DONE], [True, True], SimpleNamespace(is_repeated=False)) == [*job, again, "close", "report"]
    assert train([DONE, DONE], [True, True, False], SimpleNamespace(is_repeated=True)) == [
        *job,
        *job,
        "close",
        "report",
    ]


@pytest.fixture
def job(monkeypatch):
    """A job that notes what it says."""
    found = _Job.__new__(_Job)
    found.said = []
    monkeypatch.setattr(training_jobs, "say", found.said.append)
    return found


def test_a_commit_is_reported_once(job):
    job._on_commit, job._seen_commit, seen = lambda: seen.append(1), (0, 0), []
    for epochs, attempt, calls in ((0, 0, 0), (1, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 3)):
        job._report_commit(SimpleNamespace(commit_epochs=epochs, commit_attempt=attempt))
        assert len(seen) == calls
    job._on_commit = None
    job._report_commit(SimpleNamespace(commit_epochs=3, commit_attempt=3))
    assert job._seen_commit == (3, 3)


def test_a_hold_that_others_wait_out_is_said_once(job):
    job._files, job._hold = SimpleNamespace(root="folder"), ""
    for reason, remote, said in (
        ("full", None, 0), ("full", "remote", 1), ("full", "remote", 1), ("late", "remote", 2), ("", "remote", 2), ("late", "remote", 3)
    ):  # fmt: skip
        job._remote = remote
        job._show_hold(SimpleNamespace(hold=SimpleNamespace(reason=reason) if reason else None))
        assert len(job.said) == said
    assert job.said[0] == "the job is held: full\n  next:    correct the cause, then: headrace holds release folder"
