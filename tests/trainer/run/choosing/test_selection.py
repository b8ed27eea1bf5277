"""The selection among candidates by their losses on slices of time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.run.choosing.candidates import Candidate
from trainer.run.choosing.selection import (
    Trial,
    difference,
    gentle_of,
    is_better_than_base,
    simplest_of,
    still_possible,
)


def trial(name, *slices):
    return Trial(Candidate(name, {"deep": name != "linear"}), tuple(tuple(map(np.asarray, one)) for one in slices))


def noise(size=400, seed=0):
    drawn = np.random.default_rng(seed).normal(0, 0.01, size)
    return drawn - drawn.mean()


def test_the_pass_with_the_lowest_loss_over_all_slices_counts():
    found = trial("one", [np.full(4, 0.5), np.full(4, 0.3)], [np.full(4, 0.5), np.full(4, 0.4), np.full(4, 0.1)])
    assert found.passes == 2, "the third pass was not tried on the first slice"
    assert found.mean == pytest.approx(0.35)


def test_a_gain_on_one_slice_that_is_lost_on_the_next_is_none():
    base = [np.full(400, 0.5) + noise(seed=k) for k in range(3)]
    gaining_once = [base[0] - 0.02, base[1] + 0.01, base[2] + noise(seed=9) * 0]
    steady = [one - 0.01 for one in base]
    assert not difference(base, gaining_once).is_clear
    assert difference(base, steady).is_clear


def test_the_simplest_candidate_within_one_error_of_the_best_is_taken():
    base = [np.full(400, 0.5) + noise(seed=k) for k in range(3)]
    simple = trial("linear", *[[one] for one in base])
    lucky = trial("network", *[[one + noise(seed=5 + k) - 0.0001] for k, one in enumerate(base)])
    better = trial("network", *[[one - 0.01] for one in base])
    assert simplest_of([simple, lucky]) is simple
    assert simplest_of([simple, better]) is better
    slower = trial("linear", *[[one + 0.00005] for one in base])
    assert simplest_of([slower, simple, lucky]) is simple, "a slower rate is not simpler"


def test_a_candidate_far_behind_is_not_tried_further_and_the_first_one_always_is():
    good = trial("network", [np.full(400, 0.3)])
    near = trial("near", [np.full(400, 0.3) + noise()])
    bad = trial("bad", [np.full(400, 0.6) + noise()])
    assert still_possible([bad, good, near, bad], [np.full(400, 0.7)]) == [bad, good, near]


def test_few_events_of_the_rarer_label_are_no_evidence():
    base = [np.full(100, 0.5)]
    better = trial("linear", [np.full(100, 0.4)])
    assert is_better_than_base(better, base, 3)
    assert not is_better_than_base(better, base, 2)


@given(st.lists(st.floats(0, 5), min_size=2, max_size=50), st.integers(0, 100))
def test_equal_losses_differ_by_nothing(losses, seed):
    found = difference([np.array(losses)], [np.array(losses)])
    assert (found.gain, found.error, found.is_clear) == (0.0, 0.0, False)


def test_one_event_tells_nothing():
    assert difference([np.ones(1)], [np.zeros(1)]).error == math.inf


def test_without_clear_evidence_a_linear_model_below_the_base_rate_is_taken():
    base = [np.full(400, 0.5)]
    cautious, quick = trial("linear", [base[0] - 0.001]), trial("linear", [base[0] - 0.01 + noise()])
    network = trial("network", [base[0] - 0.02])
    assert gentle_of([cautious, quick, network], base) is quick
    worse = trial("linear", [base[0] + 0.01])
    assert gentle_of([worse, trial("linear", [base[0] + 0.001]), network], base) is worse, "the most cautious one"
    assert gentle_of([network], base) is network
