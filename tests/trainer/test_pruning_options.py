"""The options of pruning are read once, whatever they are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ConfigError
from trainer.options.config import TrainConfig, continued_options, recorded_options
from trainer.options.pruning import METRICS, PLACES, RESETS, GroupOptions, PruningOptions

anything = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3), max_leaves=6)  # fmt: skip
names = st.sampled_from([*PruningOptions.__dataclass_fields__, "other"])


@given(anything | st.dictionaries(names, anything, max_size=4))
def test_any_document_is_read_or_refused_with_one_error(document):
    try:
        found = PruningOptions.read(document)
    except ConfigError:
        return
    assert PruningOptions.read(json.loads(json.dumps(found.to_document()))) == found


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "budget": st.floats(0.01, 1),
            "metric": st.sampled_from(METRICS),
            "reset": st.sampled_from(RESETS),
            "places": st.sampled_from(PLACES),
            "decay": st.floats(0.1, 1),
            "decay_steps": st.integers(1, 99),
            "round_steps": st.integers(0, 99),
            "spare_share": st.floats(0, 0.9),
            "normalised": st.booleans(),
            "groups": st.lists(st.fixed_dictionaries({"tables": st.lists(st.text(), min_size=1, max_size=3)}, optional={"rows": st.integers(0, 9)}), max_size=3),
        },
    )
)  # fmt: skip
def test_options_are_what_was_given(document):
    found = PruningOptions.read(document)
    for name, value in document.items():
        if name == "groups":
            assert found.groups == tuple(GroupOptions(tuple(one["tables"]), one.get("rows", 0)) for one in value)
        else:
            assert getattr(found, name) == value
    assert PruningOptions.read(json.loads(json.dumps(found.to_document()))) == found
    assert PruningOptions.read(found) is found


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({"budget": True}, "pruning.budget"),
        ({"budget": 1.5}, "pruning.budget"),
        ({"budget": float("nan")}, "pruning.budget"),
        ({"spare_share": -0.1}, "pruning.spare_share"),
        ({"spare_share": 0.95}, "pruning.spare_share"),
        ({"spare_share": True}, "pruning.spare_share"),
        ({"metric": "norm"}, "pruning.metric"),
        ({"metric": ["frequency"]}, "pruning.metric"),
        ({"places": "host"}, "pruning.places"),
        ({"decay_steps": 0}, "pruning.decay_steps"),
        ({"groups": [{"rows": 3}]}, "pruning.groups"),
        ({"groups": [{"tables": []}]}, "pruning.groups.tables"),
        ({"groups": [{"tables": ["a"], "rows": -1}]}, "pruning.groups.rows"),
        ({"normalised": 1}, "pruning.normalised"),
    ],
)
def test_each_error_says_where(document, where):
    with pytest.raises(ConfigError) as found:
        PruningOptions.read(document)
    assert found.value.where == where


def test_servers_get_no_option_that_earlier_releases_do_not_know():
    found = PruningOptions.read({"budget": 0.25, "places": "divided"})
    assert "places" in found.to_document()
    assert "places" not in found.to_server_document()
    assert PruningOptions.read(found.to_server_document()) == found.of_servers()


def test_a_run_of_an_earlier_release_keeps_the_defaults_that_it_had():
    """Documents of an earlier release have what differed from its defaults alone."""
    recorded = {"pruning": {"budget": 0.25}}
    before = TrainConfig.from_document(recorded_options(recorded), run_dir="run").pruning
    assert (before.metric, before.spare_share, before.places) == ("frequency_gradient", 0.1, "divided")
    again = TrainConfig.from_document(continued_options(recorded, {"pruning": {"budget": 0.25}}), run_dir="run").pruning
    assert again == before, "the same command goes on as it began"
    asked = {"pruning": {"budget": 0.5, "metric": "gradient"}}
    other = TrainConfig.from_document(continued_options(recorded, asked), run_dir="run").pruning
    assert (other.budget, other.metric, other.spare_share) == (0.5, "gradient", 0.1)
    fresh = TrainConfig("run", pruning={"budget": 0.25})
    assert TrainConfig.from_document(recorded_options(fresh.to_document()), run_dir="run").pruning == fresh.pruning
    assert (fresh.pruning.metric, fresh.pruning.places) == ("gradient", "shared")
    assert "pruning" not in recorded_options({})
