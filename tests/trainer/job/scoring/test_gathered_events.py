"""What hosts that score tell each other: labels and logits by rank, the events of fragments, and whether they agree."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.thread_channels import on_channels
from trainer.errors import RunMismatch
from trainer.job.scoring import shared_scoring
from trainer.job.scoring.event_shares import EventRange, event_ranges
from trainer.job.scoring.shared_scoring import (
    _agreed_run,
    _check_equal,
    _Gathered,
    _gathered_positions,
    _named_events,
    _positions,
    _step_messages,
    _taken,
)
from transforms.errors import DataError, NotFound


class Head:
    """A task with so many logits an event, and so many labels; 0: one, without a dimension of its own."""

    def __init__(self, width=1, labels=0):
        self.width, self._labels = width, labels

    def label_shape(self, events):
        return (events, self._labels) if self._labels else (events,)


HEADS = [Head(), Head(3), Head(2, 2)]


def events_of(head, rank, step, count):
    """Labels and logits of a batch that no other rank and step have."""
    labels, logits = head.label_shape(count), (count, head.width) if head.width > 1 else (count,)
    first = 1000 * rank + 100 * step
    return np.arange(first, first + np.prod(labels), dtype=np.float32).reshape(labels), -np.arange(
        np.prod(logits)
    ).reshape(logits) - first


@pytest.mark.parametrize("head", HEADS)
@given(counts=st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), max_size=4))
def test_the_first_host_has_all_events_by_rank_and_in_time(head, counts):
    """``counts``: of the events of each host, by step. Hosts go on while any has another batch."""
    found = _Gathered(head, 2)
    for step, own in enumerate(counts):
        batches = [object() if step + 1 < len(counts) and rank == step % 2 else None for rank in range(2)]
        sent = [_step_messages(2, batches[rank], events_of(head, rank, step, own[rank])) for rank in range(2)]
        assert [[len(one) for one in messages] for messages in sent] == [[3, 1]] * 2, (
            "labels and logits go to the first host only"
        )
        assert _Gathered(head, 2).take([one[1] for one in sent]) == any(batches)
        assert found.take([one[0] for one in sent]) == found.goes_on == any(batches)
    every = [events_of(head, rank, step, own[rank]) for rank in range(2) for step, own in enumerate(counts)]
    labels, logits = found.joined()
    assert labels.shape == head.label_shape(len(labels))
    assert labels.ravel().tolist() == [value for one, _ in every for value in one.ravel()]
    assert logits.ravel().tolist() == [value for _, one in every for value in one.ravel()]
    assert len(logits) == len(labels)
    assert found.events == [sum(own[rank] for own in counts) for rank in range(2)]


def floats(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


MORE = np.ones(1, np.uint8)


@pytest.mark.parametrize(
    "message",
    [
        [MORE, floats(4)],
        [MORE, floats(4), floats(4), floats(4)],
        [floats(1), floats(4), floats(4)],
        [np.ones(0, np.uint8), floats(4), floats(4)],
        [np.ones((1, 1), np.uint8), floats(4), floats(4)],
        [MORE, floats(3), floats(3)],
        [MORE, floats(4), floats(2)],
        [MORE, floats(4), floats(8)],
        [MORE, floats(4, dtype=np.float64), floats(4, dtype=np.float64)],
        [MORE, floats(4), floats(4, dtype=np.float64)],
        [MORE, floats(4, 1), floats(4, 1)],
        [MORE, floats(4), floats(4, 1)],
        [MORE, floats(4), np.array([0, 0, 0, np.inf], np.float32)],
    ],
)
def test_messages_that_do_not_fit_two_labels_and_logits_are_refused(message):
    head = Head(2, 2)
    _Gathered(head, 1).take([[MORE, floats(4), floats(4)]])
    with pytest.raises(DataError, match=r"a host must send|a logit must be finite") as caught:
        _Gathered(head, 2).take([[MORE], message])
    assert caught.value.where == "host 1"


@given(st.lists(st.lists(st.booleans(), max_size=6), max_size=5), st.integers(1, 3), st.integers(1, 4))
def test_the_events_of_each_fragment_are_known_on_the_first_host(scored, hosts, batch_rows):
    """``scored``: whether each stored event of each fragment has a label, and so is scored."""
    rows = [len(one) for one in scored]
    decoded = []
    for own in scored:
        positions = np.flatnonzero(own)
        decoded.append(SimpleNamespace(rows=len(positions), positions=None if all(own) else positions))

    def work(channels):
        steps = channels.steps
        ranges = event_ranges(rows, steps.rank, hosts, batch_rows)
        kept = [_positions(decoded[one.fragment])[_taken(decoded[one.fragment], one)] for one in ranges]
        return _gathered_positions(steps, ranges, kept, rows)

    first, *others = on_channels(hosts, work)
    assert others == [()] * (hosts - 1)
    assert [None if one is None else one.tolist() for one in first] == [
        None if all(own) else np.flatnonzero(own).tolist() for own in scored
    ]


def test_a_host_names_events_only_of_ranges_that_lack_some():
    ranges, kept = [EventRange(0, 2, 5), EventRange(1, 0, 3)], [np.array([2, 3, 4]), np.array([0, 2])]
    sent = []

    class Steps:
        rank, hosts = 1, 2

        def all_to_all(self, parts):
            sent.extend(parts)

    assert _gathered_positions(Steps(), ranges, kept, [5, 3]) == ()
    assert [[one.tolist() for one in part] for part in sent] == [[[0, 2, 5, 3, 1, 0, 3, 2], [0, 2]], []]
    assert [(number, events.tolist()) for number, events in _named_events(sent[0], 1, 2)] == [
        (0, [2, 3, 4]),
        (1, [0, 2]),
    ]


@pytest.mark.parametrize(
    "arrays",
    [
        [],
        [np.zeros(0, np.int64)],
        [np.zeros(0, np.int64)] * 3,
        [np.zeros(0, np.int32), np.zeros(0, np.int64)],
        [np.zeros(0, np.int64), np.zeros(0, np.float64)],
        [np.zeros((1, 4), np.int64), np.zeros(0, np.int64)],
        [np.zeros(3, np.int64), np.zeros(0, np.int64)],
        [np.array([0, 1, 1, 0]), np.zeros(0, np.int64)],
        [np.array([0, 0, 2, -1]), np.zeros(0, np.int64)],
        [np.array([0, 2, 4, 1]), np.array([4])],
        [np.array([0, 2, 4, 1]), np.array([1])],
        [np.array([0, 2, 4, 1]), np.array([2, 3])],
    ],
)
def test_arrays_that_name_no_events_are_refused(arrays):
    with pytest.raises(DataError, match="must name ranges of fragments") as caught:
        list(_named_events(arrays, 3, 2))
    assert caught.value.where == "host 3"


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
        len(folders), lambda own: _agreed_run(folders[own.steps.rank], own.steps, skipped.append).found
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
        _agreed_run("run", steps, lambda reason: None)
    zero = SimpleNamespace(
        rank=1, hosts=1, all_to_all=lambda parts: [[np.zeros(1, np.int64)]] if len(parts[0][0]) == 1 else parts
    )
    assert _agreed_run("run", zero, lambda reason: None).found == ("run", 0, 1, 1)
