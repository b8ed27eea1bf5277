"""Arrays by input: fixed shapes with bounds of ids, weights of weighted inputs, and the columns of numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.loaders.feature_batch import bucket_counts, dense_columns, feature_batch
from headrace.loaders.fixed_shapes import FixedShapes
from tests.support.examples import scaled
from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import Batch, BatchShape, assemble
from trainer.run.reading.columns import decode
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError, InputError
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

TYPES: dict[str, ColumnType] = {
    "words": Ragged(DType.INT64, 50),
    "history": Weighted(DType.INT64, 40),
    "pair": Vector(DType.INT64, 2, 9),
    "user": Dense(DType.INT64, 20),
    "price": Dense(DType.FLOAT32),
    "vector": Vector(DType.FLOAT32, 3),
}


def layout() -> InputLayout:
    return lay_out([TypedInput(name, kind) for name, kind in TYPES.items()], TrainConfig("loader"))


def batch_of(words: list[list[int]], rows: int = 8) -> Batch:
    """A batch with these words, filled up to ``rows``."""
    count = len(words)
    columns = {
        "words": words,
        "history": [[{"id": item % 40, "weight": item / 10} for item in own] for own in words],
        "pair": [[k % 9, (k + 1) % 9] for k in range(count)],
        "user": [None if k % 3 == 2 else k for k in range(count)],
        "price": [float(k) for k in range(count)],
        "vector": [[k, k + 0.5, k + 1.0] for k in range(count)],
    }
    table = pa.table({name: pa.array(values, arrow_type(TYPES[name])) for name, values in columns.items()} | {"__label__": pa.array([1] * count)})  # fmt: skip
    decoded = decode(table, layout(), "part#0")
    return assemble([(decoded, 0, count)], BatchShape.of(layout(), rows))


BAGS = st.lists(st.lists(st.integers(0, 49), max_size=4), min_size=1, max_size=8)


@settings(max_examples=scaled(60))
@given(BAGS)
def test_fixed_shapes_hold_what_ragged_arrays_hold(words):
    batch = batch_of(words)
    ragged = feature_batch(batch, layout())
    shapes = FixedShapes.of(layout(), 8, 40)
    fixed = shapes.arrays(batch)
    assert {name: one["values"].shape for name, one in fixed["ids"].items()} == {"words": (40,), "history": (40,), "pair": (16,), "user": (8,)}  # fmt: skip
    for name, one in ragged.ids.items():
        held = fixed["ids"][name]
        count = len(one.values)
        assert held["values"].dtype == held["offsets"].dtype == np.int32
        assert held["values"][:count].tolist() == one.values.tolist()
        assert not held["values"][count:].any()
        assert held["offsets"].tolist() == one.offsets.tolist()
        assert ("weights" in held) == (name == "history")
    assert ragged.ids["history"].weights is not None
    assert fixed["ids"]["history"]["weights"][: len(ragged.ids["history"].values)].tolist() == ragged.ids["history"].weights.tolist()  # fmt: skip
    assert [ragged.ids["words"].values[a:b].tolist() for a, b in zip(ragged.ids["words"].offsets, ragged.ids["words"].offsets[1:], strict=False)][: len(words)] == words  # fmt: skip
    assert fixed["weights"].tolist() == [1.0] * len(words) + [0.0] * (8 - len(words))


def test_more_ids_than_the_bound_are_refused():
    shapes = FixedShapes.of(layout(), 8, {"words": 3, "history": 10})
    shapes.arrays(batch_of([[1, 2], [3]]))
    with pytest.raises(DataError, match="no more ids") as found:
        shapes.arrays(batch_of([[1, 2], [3, 4]]))
    assert (found.value.where, found.value.value, found.value.allowed) == ("input words", 4, "3")


@pytest.mark.parametrize(
    ("bound", "match"),
    [
        ({"words": 3}, "must have a bound"),
        ({"words": 3, "history": 3, "other": 3}, "must name an input"),
        (0, "from 1 on"),
        (True, "from 1 on"),
        ({"words": 2**31, "history": 3}, "from 1 on"),
    ],
)
def test_bounds_that_do_not_fit_are_refused(bound, match):
    with pytest.raises(InputError, match=match):
        FixedShapes.of(layout(), 8, bound)


def test_buckets_that_int32_cannot_count_are_refused():
    large = lay_out([TypedInput("user", Dense(DType.INT64, 2**31 + 1))], TrainConfig("loader"))
    with pytest.raises(InputError, match="at most 2\\*\\*31 buckets"):
        FixedShapes.of(large, 8, 1)


def test_columns_and_buckets_are_named():
    assert dense_columns(layout()) == {"price": slice(0, 1), "vector": slice(1, 4)}
    assert bucket_counts(layout()) == {"words": 50, "history": 40, "pair": 9, "user": 20}
