"""Calls of several steps: the inputs of one are sent while the call before it runs."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.processes import PATIENCE_SECS
from trainer.errors import NonFiniteLoss
from trainer.run.weights.staleness import StalenessCounts
from trainer.run.weights.step_pipeline import SliceSteps


class Calls:
    """A slice that trains two steps a call, and is held in a call until a test lets it go on. A batch is its number."""

    steps_per_call, staleness = 2, 1

    def __init__(self, *, holds: bool = True, fails: int = -1) -> None:
        self.effects: list[str] = []
        self.goes_on, self.runs = threading.Event(), threading.Event()
        self._fails = fails
        if not holds:
            self.goes_on.set()

    def begin(self, batches):
        numbers = [one.number for one in batches]
        self.effects.append(f"send {numbers}")

        def run():
            self.runs.set()
            assert self.goes_on.wait(PATIENCE_SECS)
            self.effects.append(f"run {numbers}")
            return [np.full(3, np.nan if number == self._fails else number, np.float32) for number in numbers]

        return run


def batch(number: int) -> SimpleNamespace:
    return SimpleNamespace(number=number, nbytes=100)


def numbers(trained) -> list[int]:
    return [one.batch.number for one in trained]


def test_the_next_call_is_sent_while_one_runs():
    calls = Calls()
    with SliceSteps(calls) as steps:
        assert [numbers(steps.train(batch(k))) for k in range(2)] == [[], []]
        assert calls.runs.wait(PATIENCE_SECS)
        assert steps.is_ahead
        assert numbers(steps.train(batch(2))) == [], "it does not wait for the call"
        releases = threading.Timer(0.1, calls.goes_on.set)
        releases.start()
        assert numbers(steps.train(batch(3))) == [0, 1]
        assert numbers(steps.train(batch(4))) == []
        found = steps.drain()
    assert numbers(found) == [2, 3, 4]
    assert [one.logits.tolist() for one in found] == [[2.0] * 3, [3.0] * 3, [4.0] * 3]
    assert calls.effects == ["send [0, 1]", "send [2, 3]", "run [0, 1]", "run [2, 3]", "send [4]", "run [4]"] or (
        calls.effects == ["send [0, 1]", "send [2, 3]", "run [0, 1]", "send [4]", "run [2, 3]", "run [4]"]
    )
    assert not steps.is_ahead
    # the first lookup of each of three calls misses nothing
    assert steps.staleness == StalenessCounts.of({0: 3, 1: 2})


@pytest.mark.parametrize(
    ("most_bytes", "first"), [(1, "send [0]"), (100, "send [0]"), (101, "send [0, 1]"), (1000, "send [0, 1]")]
)
def test_a_call_ends_before_its_batches_take_much_memory(most_bytes, first):
    calls = Calls(holds=False)
    with SliceSteps(calls, most_bytes=most_bytes) as steps:
        found = [one for k in range(4) for one in steps.train(batch(k))] + list(steps.drain())
    assert numbers(found) == [0, 1, 2, 3]
    assert calls.effects[0] == first


def test_a_drain_without_batches_does_nothing():
    calls = Calls(holds=False)
    with SliceSteps(calls) as steps:
        assert (list(steps.drain()), calls.effects) == ([], [])
        assert numbers([*steps.train(batch(0)), *steps.drain(), *steps.drain()]) == [0]


def test_a_step_that_diverged_is_named():
    with SliceSteps(Calls(holds=False, fails=1)) as steps:
        steps.train(batch(0))
        steps.train(batch(1))
        steps.train(batch(2))
        with pytest.raises(NonFiniteLoss):
            steps.train(batch(3))
        assert steps.latest.number == 1


def test_the_end_waits_for_the_call_that_runs():
    calls = Calls()

    def train():
        with SliceSteps(calls) as steps:
            steps.train(batch(0))
            steps.train(batch(1))
            assert calls.runs.wait(PATIENCE_SECS)
            calls.goes_on.set()
            raise KeyError

    with pytest.raises(KeyError):
        train()
    assert calls.effects[-1] == "run [0, 1]"
