"""Lookups are counted as training would make them, in bounded memory."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.errors import BadFeature
from trainer.model.inputs import TypedInput, lay_out
from trainer.run.preparation.lookup_counts import RowCounts, count_lookups

INPUTS = [TypedInput(name, kind) for name, kind in TYPES.items()]


@given(st.lists(st.lists(st.integers(0, 1 << 62) | st.integers(0, 9), max_size=30), max_size=12), st.integers(1, 40))
def test_ids_are_counted_whatever_waits(parts, most_pending):
    counts = RowCounts(most_pending)
    for part in parts:
        counts.add(np.array(part, np.int64))
    for _ in range(2):  # reading the counts changes nothing
        ids, numbers = counts.counts()
        expected = Counter(one for part in parts for one in part)
        assert dict(zip(ids.tolist(), numbers.tolist(), strict=True)) == expected
        assert ids.tolist() == sorted(expected)


def expected_of(tables, name):
    found = Counter()
    for table in tables:
        for ids, label in zip(table.column(name).to_pylist(), table.column("__label__").to_pylist(), strict=True):
            if label is not None:
                found.update(ids if isinstance(ids, list) else [] if ids is None else [ids])
    return [found[row] for row in sorted(found)]


@pytest.mark.parametrize("labels", ["all", "some", "of several classes"])
def test_the_lookups_of_labelled_events_are_counted(labels):
    scene, seen = Synthetic(3, 60), []
    for k, (path, table) in enumerate(scene.tables.items()):
        label = np.arange(table.num_rows) % 7 if labels == "of several classes" else np.ones(table.num_rows, np.int64)
        is_null = np.zeros(len(label), bool) if labels != "some" else (np.arange(len(label)) + k) % 3 == 0
        at = table.schema.get_field_index("__label__")
        scene.tables[path] = table.set_column(at, "__label__", pa.array(label, mask=is_null))
    found = count_lookups(scene.solution, scene.read, lay_out(INPUTS, config("run")), progress=lambda *one: seen.append(one))  # fmt: skip
    for name in ("words", "user"):
        assert found.by_table[name].tolist() == expected_of(scene.tables.values(), name)
    events = sum(one.num_rows - one.column("__label__").null_count for one in scene.tables.values())
    assert found.events == events
    assert seen[-1] == (events, scene.solution.rows)


def test_inputs_that_share_a_table_share_its_rows():
    types = {**TYPES, "words": TYPES["words"], "user": TYPES["words"]}
    scene = Synthetic(1, 40)
    for path, table in scene.tables.items():
        at = table.schema.get_field_index("user")
        scene.tables[path] = table.set_column(at, "user", table.column("words"))
    layout = lay_out([TypedInput(name, kind) for name, kind in types.items()], config("run", tables={"words": "shared", "user": "shared"}))  # fmt: skip
    found = count_lookups(scene.solution, scene.read, layout)
    assert found.by_table["shared"].tolist() == [2 * one for one in expected_of(scene.tables.values(), "words")]


def test_an_id_outside_its_table_is_refused():
    scene = Synthetic(1, 20)
    path, table = next(iter(scene.tables.items()))
    at = table.schema.get_field_index("user")
    scene.tables[path] = table.set_column(at, "user", pa.array(np.full(table.num_rows, 1 << 40)))
    with pytest.raises(BadFeature):
        count_lookups(scene.solution, scene.read, lay_out(INPUTS, config("run")))
