"""Sums without rounding, against Python's exact rational numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.evaluation.exact_sums import ExactSum, exact_sum

FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.7e308, 1.0, -1e16])  # fmt: skip


@settings(max_examples=scaled(300))
@given(st.lists(FLOATS, max_size=30), st.integers(1, 1000))
def test_a_sum_is_that_of_rational_numbers(values, count):
    found, exact = exact_sum([np.array(values)]), sum(map(Fraction, values))
    assert Fraction(found.units, 1 << 1074) == exact
    for divisor in (1, count):
        try:
            expected = float(exact / divisor)
        except OverflowError:
            expected = math.inf if exact > 0 else -math.inf
        assert found.over(divisor) == expected


@settings(max_examples=scaled(200))
@given(st.lists(FLOATS, max_size=30), st.lists(st.integers(0, 30), max_size=4), st.randoms(use_true_random=False))
def test_neither_order_nor_division_changes_a_sum(values, cuts, random):
    whole = exact_sum([np.array(values)])
    random.shuffle(values)
    parts = np.split(np.array(values, np.float64), sorted(min(cut, len(values)) for cut in cuts))
    assert exact_sum(parts) == whole
    assert sum((exact_sum([one]) for one in parts), ExactSum()) == whole


def test_many_values_of_one_sign_carry():
    values = np.full(3_000_000, 1.7976931348623157e308)
    assert exact_sum([values]).units == 3_000_000 * int(values[0]) << 1074
    assert exact_sum([values, -values]) == ExactSum()
    assert exact_sum([values]).value == math.inf
    assert exact_sum([-values]).value == -math.inf


@pytest.mark.parametrize(
    ("values", "expected"), [([math.inf, 1.0], math.inf), ([math.inf, -math.inf], math.nan), ([math.nan], math.nan)]
)
def test_values_that_are_not_finite_stay_so(values, expected):
    found = exact_sum([np.array(values)])
    assert (found + ExactSum(5)).value == pytest.approx(expected, nan_ok=True)


def test_values_of_float32_and_strided_ones_are_summed():
    values = np.arange(10, dtype=np.float32).reshape(5, 2)
    assert exact_sum([values[:, 1]]).value == 25.0
    assert exact_sum([]).over(3) == 0.0
