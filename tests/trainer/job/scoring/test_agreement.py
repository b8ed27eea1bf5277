"""Hosts that score agree on the commit and the events."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.trainer.thread_channels import on_channels
from trainer.errors import RunMismatch
from trainer.job.scoring import shared_scoring
from trainer.job.scoring.shared_scoring import _check_equal, agreed_run
from transforms.errors import DataError, NotFound


def test_a_host_with_nothing_else_than_others_goes_on():
    def agree(digests):
        return on_channels(
            3, lambda channels: _check_equal(channels.steps, digests[channels.steps.rank], "events", "look")
        )

    assert agree(["ab" * 32] * 3) == [None] * 3
    for other in ("ac" * 32, "", "ab" * 33):
        with pytest.raises(RunMismatch, match="all hosts must have the same events") as caught:
            agree(["ab" * 32, "ab" * 32, other])
        assert (caught.value.where, caught.value.next_step) == ("host 2", "look")


@pytest.fixture
def commits(monkeypatch):
    """Runs by their folders, each with the digest of its commit 7, which the first host finds after a damaged one."""
    digests = {"run": "ab" * 32, "copy": "ab" * 32, "other": "cd" * 32}

    def newest(run_dir, *, on_skip, weights):
        assert not weights, "the first host reads the share of its rows only, as others do"
        on_skip("commit 8 is damaged")
        return SimpleNamespace(number=7) if run_dir in digests else None

    monkeypatch.setattr(shared_scoring, "read_newest_run", newest)
    monkeypatch.setattr(
        shared_scoring, "read_epoch", lambda run_dir, number, share: (run_dir, number, share.rank, share.hosts)
    )
    monkeypatch.setattr(
        shared_scoring, "saved_run", lambda found: SimpleNamespace(found=found, digest=digests[found[0]])
    )


def agreed(folders):
    skipped = []
    return on_channels(
        len(folders), lambda own: agreed_run(folders[own.steps.rank], own.steps, skipped.append).found
    ), skipped


def test_all_hosts_take_the_commit_of_the_first_one(commits):
    assert agreed(["run", "copy", "run"]) == (
        [("run", 7, 0, 3), ("copy", 7, 1, 3), ("run", 7, 2, 3)],
        ["commit 8 is damaged"],
    )
    with pytest.raises(RunMismatch, match="all hosts must have the same checkpoint") as caught:
        agreed(["run", "other"])
    assert caught.value.where in ("host 0", "host 1")
    with pytest.raises(NotFound, match="must hold a checkpoint"):
        agreed(["none"])


@pytest.mark.parametrize("number", [np.array([7], np.int32), np.array([7, 7]), np.array([-1]), np.zeros(0, np.int64)])
def test_what_is_no_number_of_a_checkpoint_is_refused(commits, number):
    steps = SimpleNamespace(rank=1, hosts=2, all_to_all=lambda parts: [[number], []])
    with pytest.raises(DataError, match="must name a checkpoint"):
        agreed_run("run", steps, lambda reason: None)
    zero = SimpleNamespace(
        rank=1, hosts=1, all_to_all=lambda parts: [[np.zeros(1, np.int64)]] if len(parts[0][0]) == 1 else parts
    )
    assert agreed_run("run", zero, lambda reason: None).found == ("run", 0, 1, 1)
