"""The stacks of a plan on SparseCores, and what a slice does not take of a plan."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.tables.table_states import assert_same, random_states
from tests.trainer.tables.tpu.engines import engine_on, features
from trainer.errors import ConfigError
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import tables_of
from trainer.tables.tpu.planned_stacks import not_taken, stack_groups

TABLES = tables_of(features())


def planned(cores=8, stacks=(), **of_tables):
    """A plan of all tables, cyclic but for ``of_tables``: slices, and whether they are copies."""
    tables = []
    for one in TABLES:
        slices, is_replicated = of_tables.get(one.name, ((Slice(0, one.dim, tuple(range(cores))),), False))
        tables.append(TablePlan(one.name, one.vocabulary_size, one.dim, slices, is_replicated))
    return PartitionPlan(cores, tuple(tables), stacks)


def test_groups_are_stacks_cut_where_tables_differ():
    stacks = (("two", "none", "one"), ("three", "adam", "sgd"))
    assert stack_groups(TABLES, stacks) == {
        "two": (0, 0),
        "one": (0, 0),
        "three": (1, 0),
        "adam": (1, 1),
        "sgd": (1, 2),
    }


def test_a_slice_takes_a_plan_by_rows_over_all_its_cores():
    assert not_taken(cyclic_plan([(one.name, one.vocabulary_size, one.dim) for one in TABLES], 8), TABLES, 2, 4) == ()
    assert not_taken(planned(stacks=(tuple(one.name for one in TABLES[:3]), tuple(one.name for one in TABLES[3:4]),
                                     *((one.name,) for one in TABLES[4:]))), TABLES, 2, 4) == ()  # fmt: skip


def test_what_is_not_taken_is_said_by_kind():
    plan = planned(
        one=((Slice(0, 5, (3,)),), False),
        two=((Slice(0, 7, (0, 1)),), True),
        three=((Slice(0, 4, (0,)), Slice(4, 4, (1, 2))), False),
        adam=((Slice(0, 16, (0, 1), (9, 65)),), False),
        ftrl=((Slice(0, 16, (2, 5)),), False),
        stacks=(("one", "two", "three", "momentum"), ("adam",), ("ftrl",), ("sgd",)),
    )
    found = not_taken(plan, TABLES, 4, 4)
    assert len(found) == 7
    assert found[0].startswith("The plan has 8 cores and the slice 16 SparseCores")
    for sentence, part in zip(found[1:6], ("replicated (two)", "on one core (one)", "in slices of columns (three)",
                                           "in blocks of rows (adam)", "by rows on some of the cores (ftrl)"), strict=True):  # fmt: skip
        assert part in sentence
    assert found[6].startswith("The stack of one, two, three, momentum is cut")
    assert not_taken(plan, TABLES, 4, 0) == (
        "The embedding hardware of v2 to v4 takes nothing of a plan: TensorFlow places its tables.",
    )
    assert not_taken(planned(one=((Slice(0, 5, (3,)),), False)), TABLES[1:], 2, 4) == ()


def test_stacks_of_a_plan_must_not_be_disabled():
    with pytest.raises(ConfigError, match="disable_table_stacking must be False for a plan that has stacks"):
        SparseCoreSettings(stacks=(("one",),), disable_table_stacking=True)


def test_an_engine_stacks_as_the_plan_does():
    """TensorFlow's own rule stacks one, two and three; the initial values and states are those of any stacking."""
    pytest.importorskip("tensorflow")
    settings = SparseCoreSettings(stacks=(("two", "one"), ("three", "adam"), ("not there", "ftrl")))
    engine, plain = engine_on(2, settings=settings), engine_on(2)
    stacks = [{one.name for one in tables} for tables in engine.stacks()]
    assert {"one", "two"} in stacks
    assert {"three"} in stacks
    assert sorted(map(len, stacks)) == [1, 1, 1, 1, 1, 2]
    rows = np.arange(30)
    for table in TABLES:
        assert engine.weights_of(table.name, rows).tobytes() == plain.weights_of(table.name, rows).tobytes()
    states = random_states(TABLES)
    plain.load_state(states)
    engine.load_state(plain.state())
    assert_same(engine.state(), states)
    assert (
        engine_on(2, settings=SparseCoreSettings(stacks=tuple((one.name,) for one in TABLES))).places()["one"].stack
        == "one"
    )
