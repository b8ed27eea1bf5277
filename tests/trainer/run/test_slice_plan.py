"""The tables of a plan that a slice has whole on every device."""

from __future__ import annotations

import pytest

from trainer.model.heads import BINARY
from trainer.model.inputs import TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.run.weights.one_engine import joined_features
from trainer.run.weights.slice_plan import most_ids_of, replicated_tables, slice_tables
from trainer.tables.spec import tables_of
from trainer.tables.tpu.planned_stacks import not_taken
from transforms.types import Dense, DType, Ragged, Vector, Weighted

INPUTS = (
    TypedInput("country", Dense(DType.INT64, 60)),
    TypedInput("last", Vector(DType.INT64, 4, 60)),
    TypedInput("words", Ragged(DType.INT64, 60)),
    TypedInput("user", Dense(DType.INT64, 5000)),
    TypedInput("price", Dense(DType.FLOAT32)),
)


def model(**options):
    config = TrainConfig(run_dir="none", dim=8, **options)
    layout = lay_out(INPUTS, config)
    return layout, joined_features(layout, config, BINARY)


def plan_of(layout, replicated, stacks=()):
    cores = tuple(range(8))
    tables = tables_of(layout.features)
    return PartitionPlan(
        8,
        tuple(
            TablePlan(one.name, one.vocabulary_size, one.dim, (Slice(0, one.dim, cores),), one.name in replicated)
            for one in tables
        ),
        stacks,
    )


@pytest.mark.parametrize(
    ("column_type", "expected"),
    [(Dense(DType.INT64, 5), 1), (Vector(DType.INT64, 3, 5), 3), (Ragged(DType.INT64, 5), 0), (Weighted(DType.INT64, 5), 0)],
)  # fmt: skip
def test_a_type_bounds_the_ids_of_an_event(column_type, expected):
    assert most_ids_of(column_type) == expected


def test_both_parts_of_the_model_have_the_planned_tables_whole_if_their_ids_have_a_bound():
    layout, features = model(linear=True)
    plan = plan_of(layout, {"country", "last", "words"})
    found = replicated_tables(plan, layout, features)
    assert found == {"country": 1, "last": 4, "linear/country": 1, "linear/last": 4}
    (sentence,) = not_taken(plan, tables_of(features), 2, 4, found)
    assert sentence.startswith("Tables that the plan has replicated (words), whose events may have any number of ids")


def test_inputs_that_share_a_table_bound_it_together():
    layout, features = model(linear=False, tables={"country": "place", "last": "place"})
    assert replicated_tables(plan_of(layout, {"place"}), layout, features) == {"place": 4}
    layout, features = model(linear=False, tables={"country": "place", "words": "place"})
    assert replicated_tables(plan_of(layout, {"place"}), layout, features) == {}


def test_the_largest_table_is_spread_where_a_plan_replicates_all():
    config = TrainConfig(run_dir="none", dim=8, linear=False)
    layout = lay_out((INPUTS[0], INPUTS[3]), config)
    features = joined_features(layout, config, BINARY)
    assert replicated_tables(plan_of(layout, {"country", "user"}), layout, features) == {"country": 1}


def test_a_plan_gives_stacks_limits_and_replicated_tables():
    layout, features = model(linear=False)
    options = {"batch_events": 64, "sparse_cores": 8, "max_ids": 100, "max_unique_ids": None}
    plan = plan_of(layout, {"country"}, stacks=(("country", "words"), ("last", "user")))
    found = slice_tables(plan, layout, features, {}, **options)
    assert dict(found.settings.replicated) == {"country": 1}
    assert found.settings.stacks == plan.stacks
    assert found.settings.default_max_ids == 100
    assert "there are no statistics of last, words, user" in found.reason, "replicated tables need no buffer"
    without = slice_tables(None, layout, features, {}, **options)
    assert (dict(without.settings.replicated), without.settings.stacks) == ({}, ())
