"""Each commit's sample is recorded once and looked at once, whenever a job is looked at and whatever ends the command."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headrace.cli import commit_samples
from headrace.cli.commit_samples import CommitSamples
from transforms.errors import StorageError


@pytest.fixture
def run(monkeypatch):
    """A run whose commits are ``stored``, but those that are damaged or have no sample; what is done with samples is noted."""
    found = SimpleNamespace(stored={}, recorded=[], looked=[], said=[], looked_at=0)

    def read(run_dir, commit):
        assert run_dir == "run"
        if found.stored.get(commit) == "damaged":
            raise StorageError("no such disk")
        if found.stored.get(commit) != "sampled":
            return None
        features = {"in": SimpleNamespace(name="f", statistics=commit)}
        return SimpleNamespace(commit=commit, attempt=commit + 3, step=commit * 10, run="r", features=features)

    def listed(run_dir):
        if found.stored.get(0) == "damaged":
            raise StorageError("no such folder")
        return tuple(sorted(found.stored))

    monkeypatch.setattr("trainer.run.progress.part_statistics.read_commit_statistics", read)
    monkeypatch.setattr("trainer.run.progress.part_statistics.stored_commits", listed)
    monkeypatch.setattr(commit_samples, "say", found.said.append)

    def samples(*, follows=True):
        feedback = SimpleNamespace(
            committed=lambda *given: found.looked.append(given), log=SimpleNamespace(looked_at=found.looked_at)
        )
        record = lambda run, commit, features: found.recorded.append((run, commit, list(features)))  # noqa: E731
        return CommitSamples("run", record, feedback if follows else None)

    found.samples = samples
    return found


def test_all_commits_since_the_last_look_are_looked_at(run):
    run.stored = dict.fromkeys(range(1, 8), "sampled")
    found = run.samples()
    found.begin(0)
    for newest, left in ((0, 9.0), (1, 5.0), (1, 5.0), (4, 2.5), (4, 2.5), (7, None)):
        found.see(newest, left)
    assert run.looked == [
        (commit, commit + 3, commit * 10, {"f": commit}, left)
        for commit, left in ((1, 5.0), (2, 2.5), (3, 2.5), (4, 2.5), (5, None), (6, None), (7, None))
    ]
    assert run.recorded == [("r", commit, ["in"]) for commit in range(1, 8)]
    assert run.said == []


def test_commits_that_have_no_sample_or_cannot_be_read_end_nothing(run):
    run.stored = {1: "sampled", 2: "damaged", 3: "none", 5: "sampled"}
    found = run.samples()
    found.begin(0)
    found.see(5, 0.0)
    assert [one[0] for one in run.looked] == [commit for _, commit, _ in run.recorded] == [1, 5]
    assert len(run.said) == 1
    assert run.said[0].startswith("the statistics of commit 2 cannot be read, training goes on: ")
    run.stored[0] = "damaged"
    found.see(7, 0.0)
    assert run.said[1].startswith("the statistics of commits up to 7 cannot be read, training goes on: ")
    found.see(8, 0.0)
    assert len(run.looked) == 2
    assert len(run.said) == 2


@pytest.mark.parametrize(("looked_at", "looks"), [(2, [3, 4, 5, 6]), (4, [5, 6]), (5, [5, 6]), (9, [5, 6])])
def test_a_command_that_begins_again_looks_at_what_the_killed_one_did_not(run, looked_at, looks):
    """Those that were looked at are not again: :class:`PlanFeedback` leaves them out. The newest may not be recorded yet."""
    run.stored, run.looked_at = dict.fromkeys(range(3, 7), "sampled"), looked_at
    found = run.samples()
    found.begin(5)
    found.see(5, 1.0)
    found.see(6, 1.0)
    assert [one[0] for one in run.looked] == looks
    assert [commit for _, commit, _ in run.recorded] == [5, 6]


def test_a_fixed_plan_has_samples_recorded_alone(run):
    run.stored = dict.fromkeys(range(1, 5), "sampled")
    found = run.samples(follows=False)
    found.begin(3)
    found.see(4, None)
    assert [commit for _, commit, _ in run.recorded] == [3, 4]
    assert run.looked == []
