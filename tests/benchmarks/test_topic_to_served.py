"""The times that the benchmark gives to messages."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from benchmarks.topic_to_served import latencies


def test_a_message_is_served_by_the_first_link_whose_commit_has_it() -> None:
    """Ten messages of a history, then five: the second epoch has two of them, the third one none, the fourth the rest."""
    trained, applied = [10, 2, 0, 3], [(2, 103.0), (3, 104.0), (4, 107.5)]
    assert latencies([100.0, 101.0, 102.0, 103.0, 104.0], 10, trained, applied) == [3.0, 2.0, 5.5, 4.5, 3.5]


def test_a_link_may_skip_commits() -> None:
    assert latencies([100.0, 101.0], 0, [1, 1], [(2, 103.0)]) == [3.0, 2.0]


def test_a_message_that_is_never_served_is_an_error() -> None:
    with pytest.raises(IndexError):
        latencies([100.0], 5, [5], [(1, 101.0)])
