"""What ends with an attempt, and what outlives it."""

from __future__ import annotations

import pytest

from trainer.errors import AttemptOver
from trainer.job.host.unit_gate import UnitGate


def test_the_state_of_an_attempt_may_outlive_it():
    """Its snapshot is read while the next attempt trains."""
    gate = UnitGate(1, 0, 4)
    gate.check()
    gate.check_state()
    gate.give_up(with_state=False)
    with pytest.raises(AttemptOver, match="the attempt was given up"):
        gate.check()
    gate.check_state()
    gate.give_up()
    gate.give_up(with_state=False)
    with pytest.raises(AttemptOver, match="the state of the attempt was given up"):
        gate.check_state()


def test_an_epoch_that_trains_what_is_left_ends_after_its_first_unit():
    """Its trained events are then committed; one that has trained nothing needs no commit."""
    gate = UnitGate(1, 6, 9)
    assert gate.ask() == 6
    gate = UnitGate(1, 6, 9)
    assert gate.may_begin(4)
    assert gate.ask() == 7
    gate.end(7)
    assert gate.may_begin(5)
    assert gate.may_begin(6)
    assert not gate.may_begin(7)


def test_what_is_left_begins_no_more_once_an_epoch_ends_before_it():
    gate = UnitGate(1, 6, 9)
    assert gate.ask() == 6
    gate.end(6)
    assert not gate.may_begin(5)
