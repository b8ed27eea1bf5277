"""The last ids of events, the newest one first, against a plain reference over random batches."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.synthetic import config
from trainer.errors import BadFeature
from trainer.model.inputs import TypedInput, lay_out
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import decode
from transforms.columns.arrow_types import arrow_type
from transforms.types import Dense, DType, Ragged, Weighted

TYPES = {
    "bag": Ragged(DType.INT64, 90),
    "history": Ragged(DType.INT64, 90),
    "item": Dense(DType.INT64, 90),
    "ages": Weighted(DType.INT64, 90),
    "price": Dense(DType.FLOAT32),
}


def layout_of(length, *, gaps="ages"):
    sequence = {"length": length, "encoder": "din", "target": "item", "gaps": gaps}
    return lay_out([TypedInput(*item) for item in TYPES.items()], config("run", sequences={"history": sequence}))


def fragment(layout, bags, histories, key="f", ages=None):
    pairs = [[{"id": (one + 1) % 90, "weight": one + 0.5} for one in own] for own in (ages or histories)]
    columns = {"bag": bags, "history": histories, "item": [7] * len(bags), "ages": pairs, "price": [1.5] * len(bags)}
    arrays = {name: pa.array(columns[name], arrow_type(kind)) for name, kind in TYPES.items()}
    return decode(pa.table({**arrays, "__label__": pa.array([1] * len(bags))}), layout, key)


LISTS = st.lists(st.integers(0, 89), max_size=7)


@given(st.lists(st.tuples(LISTS, LISTS), min_size=1, max_size=9), st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=40)
def test_batches_have_the_last_ids_newest_first(events, length, batch_rows) -> None:
    layout = layout_of(length)
    bags, histories = map(list, zip(*events, strict=True))
    seen = 0
    for batch in make_batches([fragment(layout, bags, histories)], layout, batch_rows=batch_rows):
        ids = batch.ids
        assert ids.bounds is not None
        assert ids.offsets[0, 0] == 0
        assert ids.offsets[-1, -1] == len(ids.ids) == len(ids.weights)
        for row in range(batch_rows):
            bag, history = (bags[seen], histories[seen][-length:][::-1]) if row < batch.rows else ([], [])
            own = [ids.ids[ids.offsets[f, row] : ids.offsets[f, row + 1]].tolist() for f in range(4)]
            assert own == [bag, history, [7] * (row < batch.rows), [(one + 1) % 90 for one in history]]
            at = slice(ids.offsets[3, row], ids.offsets[3, row + 1])
            assert ids.weights[at].tolist() == [one + 0.5 for one in history]
            assert batch.dense[row].tolist() == [1.5 * (row < batch.rows), len(history)]
            seen += row < batch.rows
    assert seen == len(events)


def test_a_saved_model_takes_the_same_ids() -> None:
    tf = pytest.importorskip("tensorflow")
    from trainer.serving.tensorflow_model import newest_bags

    histories = [[1, 2, 3, 4], [], [5], [6, 7], [8, 9, 10]]
    ragged = tf.ragged.constant(histories, dtype=tf.int64)
    weights = tf.cast(ragged.values, tf.float32) + 0.5
    for length in (1, 2, 9):
        for found_weights in (None, weights):
            ids, bags, found = newest_bags(ragged.values, ragged.value_rowids(), found_weights, 5, length)
            expected = [(row, one) for row, own in enumerate(histories) for one in own[-length:][::-1]]
            assert list(zip(bags.numpy().tolist(), ids.numpy().tolist(), strict=True)) == expected
            assert found is None or found.numpy().tolist() == [one + 0.5 for _, one in expected]


def test_gaps_are_as_many_as_ids() -> None:
    layout = layout_of(3)
    parts = [fragment(layout, [[]] * 3, [[1], [2, 3], []], "first"),
             fragment(layout, [[]] * 2, [[4], [5, 6]], "second", ages=[[4], [5]])]  # fmt: skip
    with pytest.raises(BadFeature, match="gaps must be as many as the ids of their sequence") as caught:
        list(make_batches(parts, layout, batch_rows=9))
    assert caught.value.where == "fragment second, row 1, input ages"
    assert (caught.value.value, caught.value.allowed) == (1, "2, as input history")
