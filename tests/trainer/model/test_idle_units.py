"""Counts of hidden units that are off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.model.idle_units import COUNTED_STEPS, IdleUnits, UnitCounter


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=20))
def test_a_unit_is_off_that_was_on_in_no_step(steps):
    counter = UnitCounter(3)
    for one in steps:
        counter.add(np.array(one))
    off = sum(not any(one[unit] for one in steps) for unit in range(3)) if steps else 0
    assert counter.counts() == IdleUnits(3, off, len(steps))


def test_only_the_last_steps_count():
    counter = UnitCounter(2)
    for step in range(COUNTED_STEPS + 10):
        counter.add(np.array([step < 10, step < 11]))
    assert counter.counts() == IdleUnits(2, 1, COUNTED_STEPS)


@given(st.integers(1, 10**6), st.integers(0, COUNTED_STEPS), st.data())
def test_a_role_reports_its_counts(units, steps, data):
    one = IdleUnits(units, data.draw(st.integers(0, units)), steps)
    assert IdleUnits.of_numbers({**one.to_numbers(), "loss": 0.5}) == one


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"hidden_units": 3.0, "hidden_off": 1.0},
        {"hidden_units": 3.0, "hidden_off": 4.0, "hidden_steps": 1.0},
        {"hidden_units": 3.0, "hidden_off": -1.0, "hidden_steps": 1.0},
        {"hidden_units": 3.0, "hidden_off": 1.0, "hidden_steps": 1e9},
        {"hidden_units": math.nan, "hidden_off": 1.0, "hidden_steps": 1.0},
        {"hidden_units": math.inf, "hidden_off": 1.0, "hidden_steps": 1.0},
    ],
)
def test_impossible_reports_are_none(numbers):
    assert IdleUnits.of_numbers(numbers) is None
