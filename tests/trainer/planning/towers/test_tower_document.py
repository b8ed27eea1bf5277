"""Documents of towers: read as they were written, and refused when they were not written by Headrace."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.planning.changed_documents import VALUES, changed_bytes
from tests.trainer.planning.towers.tower_plans import features_of, interactions_of, tower_plans
from trainer.errors import ConfigError
from trainer.planning.towers.partitioner import make_towers
from trainer.planning.towers.tower_document import read_towers, towers_bytes, towers_fingerprint

PLAN = make_towers(features_of(3), 2, strategy="diverse", interactions=interactions_of(np.full((3, 3), 0.5)), source="a run")  # fmt: skip


@pytest.mark.medium
@given(tower_plans())
@settings(max_examples=scaled(60))
def test_towers_are_read_as_they_were_written(plan):
    assert read_towers(towers_bytes(plan), "towers.json") == plan


def test_the_fingerprint_is_stable():
    """The fingerprints of stored towers must not change with a release."""
    plan = make_towers(features_of(3), 2, strategy="strided")
    assert towers_fingerprint(plan) == "7e59d3b62d5ffa06f6b8e5937536b34f8f5db26947a6b2a97abc379c7fe44e65"
    assert towers_fingerprint(make_towers(features_of(3), 3, strategy="strided")) != towers_fingerprint(plan)


@pytest.mark.medium
@given(st.data())
@settings(max_examples=scaled(2000))
def test_changed_bytes_are_refused_or_harmless(data):
    """A changed document is refused with one error, or says the same."""
    assert _outcome(changed_bytes(data, towers_bytes(PLAN))) in (PLAN, "towers.json")


def _outcome(data):
    try:
        return read_towers(data, "towers.json")
    except ConfigError as error:
        return error.where[: len("towers.json")]


@given(st.sampled_from(sorted(json.loads(towers_bytes(PLAN)))), VALUES)
@settings(max_examples=scaled(300))
def test_other_values_are_refused(member, value):
    document = json.loads(towers_bytes(PLAN))
    if document[member] == value:
        return
    document[member] = value
    with pytest.raises(ConfigError):
        read_towers(json.dumps(document).encode(), "towers.json")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda one: one["interactions"]["below_diagonal"][2].pop(), "towers.json.interactions"),
        (lambda one: one["interactions"]["below_diagonal"].pop(), "towers.json.interactions"),
        (lambda one: one["interactions"]["below_diagonal"][1].__setitem__(0, float("nan")), "towers.json"),
        (lambda one: one["interactions"]["below_diagonal"][1].__setitem__(0, 1.5), "towers.json: features f0 and f1"),
        (lambda one: one["points"][0].append(1.0), "towers.json.points[0]"),
        (lambda one: one["features"][1].pop("table"), "towers.json.features[1]"),
        (lambda one: one["towers"][0].pop(), "towers.json: towers[0]"),
        (lambda one: one["towers"][0].append("other"), "towers.json: towers"),
        (lambda one: one.__setitem__("format", "headrace.towers/9"), "towers.json"),
        (lambda one: one.__setitem__("seed", 1), "towers.json"),
    ],
)
def test_the_error_says_where(change, place):
    document = json.loads(towers_bytes(PLAN))
    change(document)
    with pytest.raises(ConfigError) as refused:
        read_towers(json.dumps(document).encode(), "towers.json")
    assert refused.value.where == place
    assert refused.value.next_step == "headrace towers make writes towers"


def test_deep_nesting_is_refused():
    with pytest.raises(ConfigError, match="must be JSON"):
        read_towers(b"[" * 100_000, "towers.json")
