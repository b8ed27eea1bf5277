"""Damaged states are read, or refused with Headrace's error, in bounded memory."""

from __future__ import annotations

import pytest

from tests.fuzz.bounded import run_trials


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["manifest", "files"])
def test_damaged_states_are_refused(kind):
    found = run_trials("tests.warehouse.states.trials", kind, 0, 50)
    assert found["StatesDamaged"] > 15


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manifest", "files"])
def test_many_damaged_states_are_refused(kind):
    run_trials("tests.warehouse.states.trials", kind, 1_000, 600)
