"""The space of a sweep, its trials, and which go on."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sweeps.halving import best_of, rungs_of, survivors
from headrace.sweeps.space import Choice, Range, check_space, parse_option, trials_of
from headrace.sweeps.sweep_files import score_of
from tests.support.examples import scaled
from transforms.errors import HeadraceError, InputError


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("batch_rows=64,256", Choice("batch_rows", (64, 256))),
        ("network=dcn,mlp", Choice("network", ("dcn", "mlp"))),
        ("deep=true,false", Choice("deep", (True, False))),
        ("hidden=[64,32]", Choice("hidden", ([64, 32],))),
        ("dense_learning_rate=1e-4..1e-2", Range("dense_learning_rate", 1e-4, 1e-2)),
        ("passes=1..8", Range("passes", 1, 8)),
        ("rate=0.5..2", Range("rate", 0.5, 2)),
    ],
)
def test_an_option_is_values_or_a_range(text, option):
    assert parse_option(text) == option


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rate",
        "rate=",
        "=1",
        "Rate=1",
        "rate=1,1",
        "rate=2..1",
        "rate=a..b",
        "rate=1..inf",
        "rate=nan..1",
        "rate=true..2",
    ],
)
def test_what_is_neither_is_refused(text):
    with pytest.raises(InputError) as caught:
        parse_option(text)
    assert "--option" in caught.value.where


@given(st.text(max_size=40))
@settings(max_examples=scaled(300))
def test_any_text_is_an_option_or_one_error(text):
    try:
        found = parse_option(f"rate={text}")
    except HeadraceError as error:
        found = error
    assert isinstance(found, Choice | Range | InputError)


CHOICES = st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True).map(tuple)
RANGES = st.tuples(st.floats(1e-6, 1e6), st.floats(1.001, 1e6)).map(lambda ends: (ends[0], ends[0] * ends[1]))


@given(st.lists(CHOICES | RANGES, min_size=1, max_size=4), st.integers(1, 30), st.integers(0, 99))
@settings(max_examples=scaled(100))
def test_trials_are_different_inside_the_space_and_follow_from_the_seed(values, count, seed):
    space = [
        Range(f"o{k}", *one) if isinstance(one[0], float) else Choice(f"o{k}", one) for k, one in enumerate(values)
    ]
    found = trials_of(space, count, seed)
    assert found == trials_of(space, count, seed)
    assert len({json.dumps(one, sort_keys=True) for one in found}) == len(found) <= count
    sizes = [len(one.values) if isinstance(one, Choice) else math.inf for one in space]
    if math.prod(sizes) <= count:
        assert len(found) == math.prod(sizes)
    for one in space:
        for trial in found:
            value = trial[one.name]
            assert value in one.values if isinstance(one, Choice) else one.least <= value <= one.most


def test_drawn_trials_cover_each_option_evenly():
    found = trials_of([Range("rate", 1e-4, 1.0), Choice("rows", (32, 64, 128, 256))], 16, 3)
    decades = [math.floor(math.log10(one["rate"])) for one in found]
    assert {one: decades.count(one) for one in set(decades)} == {-4: 4, -3: 4, -2: 4, -1: 4}
    assert {one: [each["rows"] for each in found].count(one) for one in (32, 64, 128, 256)} == {
        32: 4,
        64: 4,
        128: 4,
        256: 4,
    }


def test_a_space_must_vary_different_options():
    for space in ([], [Choice("a", (1,)), Range("a", 0.0, 1.0)]):
        with pytest.raises(InputError):
            check_space(space)


@given(st.integers(1, 200), st.integers(1, 500), st.integers(1, 8), st.integers(2, 6))
@settings(max_examples=scaled(200))
def test_rungs_have_more_partitions_and_fewer_trials_and_end_with_all(trials, partitions, rungs, factor):
    found = rungs_of(trials, partitions, rungs, factor)
    assert [one.number for one in found] == list(range(len(found)))
    assert found[-1].partitions == partitions
    assert found[0].trials == trials
    assert all(a.partitions < b.partitions and a.trials >= b.trials >= 1 for a, b in itertools.pairwise(found))


def test_survivors_are_those_of_the_least_scores():
    scores = {0: 0.5, 1: None, 2: 0.4, 3: math.nan, 4: 0.5}
    assert survivors(scores, 2) == (0, 2)
    assert survivors(scores, 9) == (0, 2, 4)
    assert best_of([scores, {2: None, 0: 0.3}]) == 0
    assert best_of([scores, {2: None}]) == 2
    assert best_of([]) is None


@pytest.mark.parametrize(
    ("record", "score"),
    [
        ({"test": {"normalized_entropy": 0.9, "log_loss": 0.3}}, 0.9),
        ({"test": {"log_loss": 0.3}}, 0.3),
        ({"test": {"tasks": {"a": {"normalized_entropy": 0.8}, "b": {"normalized_error": 0.6}}}}, 0.7),
        ({"test": None}, None),
        ({}, None),
        ({"test": {"normalized_entropy": None}}, None),
        ({"test": {"tasks": {"a": {"normalized_entropy": 0.8}, "b": {}}}}, None),
    ],
)
def test_the_score_of_a_training_is_that_of_its_test(record, score):
    assert score_of(record) == (None if score is None else pytest.approx(score))
