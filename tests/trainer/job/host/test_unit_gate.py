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
