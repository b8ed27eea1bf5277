"""Which differences stay when several are compared."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.support.comparisons import SIGNIFICANT, Comparisons, holm


def test_holm_takes_the_smallest_chances_until_one_fails():
    assert holm({}) == set()
    assert holm({"a": 0.049}) == {"a"}
    assert holm({"a": 0.026, "b": 0.9}) == set()
    assert holm({"a": 0.024, "b": 0.049}) == {"a", "b"}
    assert holm({"a": 0.001, "b": 0.03, "c": 0.04}) == {"a"}, "b fails at 2 times 0.03, and c after it"


@given(st.dictionaries(st.integers(), st.floats(0, 1), max_size=8))
def test_holm_lies_between_no_correction_and_bonferronis(chances):
    found, count = holm({str(name): p for name, p in chances.items()}), len(chances)
    assert {str(name) for name, p in chances.items() if p * count < SIGNIFICANT} <= found
    assert found <= {str(name) for name, p in chances.items() if p < SIGNIFICANT}


def test_pairs_that_cannot_differ_do_not_count():
    found = Comparisons()
    assert math.isnan(found.chance("same", [1.0, 2.0], [1.0, 2.0]))
    assert math.isnan(found.chance("one", [1.0], [2.0]))
    assert found.summary.startswith("of 0 comparisons")
    assert found.chance("clear", [1.0, 2.0, 3.0, 4.0], [2.0, 3.01, 4.0, 5.02]) < 0.001
    assert found.chance("unclear", [1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.1]) > 0.5
    assert found.summary == f"of 2 comparisons these differ with Holm's correction at {SIGNIFICANT}: clear"
