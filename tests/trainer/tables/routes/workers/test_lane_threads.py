"""Laws of the threads of lanes: order within a lane, no wait of one lane for another one, and one end for all after a failure."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import PATIENCE_SECS
from tests.trainer.servers.test_service import wait_until
from trainer.errors import AttemptOver
from trainer.tables.routes.workers.lane_threads import LaneThreads
from transforms.errors import DataError


class Owner:
    """Counts how often it was finished, and after how much work."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.finished_after: list[int] = []

    def finish(self) -> None:
        self.finished_after.append(len(self.done))


@given(st.integers(1, 3), st.lists(st.integers(0, 2), max_size=30))
def test_a_lane_works_in_order(lanes, choices):
    threads, owners = LaneThreads(lanes), [Owner() for _ in range(lanes)]
    works = []
    for number, choice in enumerate(choices):
        owner = owners[choice % lanes]
        works.append(threads.submit(choice % lanes, owner, partial(owner.done.append, number)))
    threads.results(works)
    threads.close()
    for lane, owner in enumerate(owners):
        assert owner.done == [number for number, choice in enumerate(choices) if choice % lanes == lane]


def test_a_lane_finishes_when_it_has_nothing_else():
    """So that a worker that has ended is noticed while another lane waits for an update that it had."""
    threads, owners = LaneThreads(2, idle_secs=0.01), [Owner(), Owner()]
    for number in range(5):
        threads.result(threads.submit(0, owners[0], partial(owners[0].done.append, number)))
    wait_until(lambda: owners[0].finished_after[-1:] == [5])
    finished = len(owners[0].finished_after)
    time.sleep(0.05)
    assert len(owners[0].finished_after) == finished, "once"
    assert owners[1].finished_after == []
    threads.close()
    alone, owner = LaneThreads(1, idle_secs=0.0), Owner()
    alone.submit(0, owner, partial(owner.done.append, 0))
    time.sleep(0.05)
    assert owner.finished_after == [], "the next call of the same thread waits for its updates"


def test_a_lane_does_not_wait_for_another_one():
    threads, goes_on, owner = LaneThreads(2), threading.Event(), Owner()
    waiting = threads.submit(0, owner, partial(goes_on.wait, PATIENCE_SECS))
    threads.result(threads.submit(1, owner, goes_on.set))
    assert threads.result(waiting)
    threads.close()


def fail() -> None:
    raise DataError("it must not be", value="so")


def test_a_failure_in_one_lane_ends_what_waits_for_another_one():
    """The other lane may wait for an update that is never made."""
    threads, owner = LaneThreads(2), Owner()

    def wait_for_ever() -> None:
        while True:
            threads.check()

    waiting = threads.submit(1, owner, wait_for_ever)
    threads.submit(0, owner, fail)
    with pytest.raises(DataError, match="must not be"):
        threads.result(waiting)
    with pytest.raises(DataError, match="must not be"):
        threads.submit(1, owner, owner.finish)
    threads.close()
    with pytest.raises(AttemptOver, match="no longer uses"):
        waiting.result(timeout=PATIENCE_SECS)


def test_a_failed_end_of_updates_is_raised_by_the_next_call():
    threads, owner, waits = LaneThreads(2, idle_secs=0.0), Owner(), threading.Event()
    owner.finish = fail
    waiting = threads.submit(1, Owner(), partial(waits.wait, PATIENCE_SECS))
    threads.submit(0, owner, lambda: None)
    with pytest.raises(DataError, match="must not be"):
        threads.result(waiting)
    waits.set()
    with pytest.raises(DataError, match="must not be"):
        threads.submit(1, Owner(), lambda: None)
    threads.close()


def test_one_lane_has_no_thread_and_fails_where_it_is_called():
    threads, owner = LaneThreads(1), Owner()
    assert threads.result(threads.submit(0, owner, threading.get_ident)) == threading.get_ident()
    with pytest.raises(DataError):
        threads.submit(0, owner, fail)
    assert threads.result(threads.submit(0, owner, lambda: 3)) == 3
    threads.close()
