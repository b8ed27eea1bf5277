from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.run.reading.test_batches import NULLABLE_LAYOUT, RICH_LAYOUT, nullable_table, rich_table
from tests.trainer.run.reading.test_packed_units import assert_equal_batches, with_columns
from tests.trainer.synthetic import config
from trainer.errors import DamagedBatches
from trainer.model.heads import BINARY, Head
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.task_heads import TaskHeads
from trainer.run.batch_files.packed_batches import BatchLayout, BatchPacker, unpack_batch
from trainer.run.reading.batches import BatchAssembler, make_batches
from trainer.run.reading.columns import decode
from trainer.run.reading.shuffling import ShuffleWindow
from transforms.columns.arrow_types import arrow_type
from transforms.types import Dense, DType, Ragged, Vector, Weighted

REGRESSION = Head("regression")
KINDS = [(nullable_table, NULLABLE_LAYOUT), (rich_table, RICH_LAYOUT)]


def frozen(content):
    """Bytes as a file has them: aligned, and not to be written."""
    found = np.frombuffer(bytes(content), np.uint8)
    found = found if found.ctypes.data % 8 == 0 else found.copy()
    found.flags.writeable = False
    return found


def packed_again(batches, layout, batch_rows, fragments, head=BINARY):
    own = BatchLayout.of(layout, head, batch_rows, fragments)
    pack = BatchPacker(own)
    return [unpack_batch(frozen(pack(batch)), own) for batch in batches]


def assert_same(one, other):
    assert_equal_batches(one, other)
    for a, b in zip(one, other, strict=True):
        assert (a.rows, a.weights.tobytes(), a.ids.bounds) == (b.rows, b.weights.tobytes(), b.ids.bounds)


@settings(max_examples=scaled(80))
@given(data=st.data())
def test_a_packed_batch_is_the_batch(data):
    """Of columns of every kind, from several fragments with deleted and unlabelled events, in order or shuffled."""
    kind, layout = data.draw(st.sampled_from(KINDS))
    sizes = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    batch_rows = data.draw(st.integers(1, 30))
    decoded, fragments = [], []
    for number, rows in enumerate(sizes):
        deletes = data.draw(st.integers(0, 3))
        table = with_columns(kind(rows, seed=rows), 2 * number + 1, deletes)
        fragments.append((f"hour=00#{number}", rows + deletes))
        decoded.append(decode(table, layout, fragments[-1][0], head=REGRESSION))
    window = data.draw(st.sampled_from([None, ShuffleWindow(2 * batch_rows, seed=3)]))
    assembler = BatchAssembler(layout, batch_rows, window)
    origin = 0
    for one, (_, rows) in zip(decoded, fragments, strict=True):
        assembler.add(one, origin=origin)
        origin += rows
    assembler.finish()
    batches = []
    while assembler.ready:
        batches.append(assembler.take())
    assert_same(packed_again(batches, layout, batch_rows, fragments, REGRESSION), batches)


@pytest.mark.parametrize("buckets", [1, 256, 257, 1 << 16, (1 << 16) + 1, 1 << 32, (1 << 32) + 1, (1 << 63) - 1])
def test_ids_of_any_width_are_kept(buckets):
    types = {
        "user": Dense(DType.INT64, buckets),
        "words": Ragged(DType.INT64, buckets),
        "slots": Vector(DType.INT64, 2, buckets),
        "topics": Weighted(DType.INT64, buckets),
    }
    layout = lay_out([TypedInput(name, kind) for name, kind in types.items()], config("run"))
    top = buckets - 1
    values = {
        "user": [None, top, 0, top // 2],
        "words": [[top, 0], [], [top] * 300, [0]],
        "slots": [[top, 0], [0, top], [0, 0], [top // 3, top]],
        "topics": [[{"id": top, "weight": 0.5}], [], [{"id": 0, "weight": -2.0}], []],
        "__label__": [0, 1, 1, 0],
    }
    table = pa.table(
        {name: pa.array(values[name], arrow_type(kind)) for name, kind in types.items()}
        | {"__label__": pa.array(values["__label__"])}
    )
    batches = list(make_batches([decode(table, layout, "a#0")], layout, batch_rows=3))
    assert_same(packed_again(batches, layout, 3, [("a#0", 4)]), batches)


def test_equal_lengths_are_stored_once():
    kind = Ragged(DType.INT64, 100)
    layout = lay_out([TypedInput(name, kind) for name in "ab"], config("run"))
    lists = pa.array([[1, 2], [], [3]] * 500, arrow_type(kind))
    table = pa.table({"a": lists, "b": lists, "__label__": pa.array([1, 0, 1] * 500)})
    (batch,) = make_batches([decode(table, layout, "a#0")], layout, batch_rows=1500)
    own = BatchLayout.of(layout, BINARY, 1500, [("a#0", 1500)])
    content = BatchPacker(own)(batch)
    assert len(content) < 2 * 1500 + 2 * 1500 + 300  # ids of both, labels and lengths of one
    assert_same([unpack_batch(frozen(content), own)], [batch])


@pytest.mark.parametrize("values", [[0.0, 1.0, None], [2.5, None, 0.0], [1.0, 0.0, 1.0]])
def test_several_labels_are_kept_with_those_that_are_missing(values):
    head = TaskHeads((("click", BINARY), ("paid", REGRESSION)))
    layout = lay_out([TypedInput("user", Dense(DType.INT64, 9))], config("run"))
    clicks = pa.array([1.0, 0.0, None])
    labels = pa.StructArray.from_arrays([clicks, pa.array(values, pa.float64())], ["click", "paid"])
    table = pa.table({"user": pa.array([1, 2, 3]), "__label__": labels})
    batches = list(make_batches([decode(table, layout, "a#0", head=head)], layout, batch_rows=2))
    assert_same(packed_again(batches, layout, 2, [("a#0", 3)], head), batches)


def some_batch(head=BINARY, seed=4):
    table = with_columns(rich_table(40, seed=4), seed, 3)
    decoded = decode(table, RICH_LAYOUT, "hour=00#0", head=head)
    (batch,) = make_batches([decoded], RICH_LAYOUT, batch_rows=64)
    own = BatchLayout.of(RICH_LAYOUT, head, 64, [("hour=00#0", 43)])
    return batch, own, BatchPacker(own)(batch).tobytes()


def assert_sound(batch, layout):
    """What engines and the ledger rely on."""
    ends = batch.ids.offsets
    assert (np.diff(ends, axis=1) >= 0).all()
    assert ends[0, 0] == 0
    assert (ends[1:, 0] == ends[:-1, -1]).all()
    assert ends[-1, -1] == len(batch.ids.ids)
    for f, bound in enumerate(layout.bounds):
        own = batch.ids.ids[ends[f, 0] : ends[f, -1]]
        assert ((own >= 0) & (own < bound)).all()
    assert np.isfinite(batch.dense).all()
    assert batch.ids.weights is None or np.isfinite(batch.ids.weights).all()
    assert 0 < batch.rows <= layout.batch_rows
    assert sum(len(np.arange(10**6)[span.events]) for span in batch.spans) == batch.rows


@pytest.mark.medium
@settings(max_examples=scaled(60))
@given(seed=st.integers(0, 2**32))
def test_damaged_bytes_are_refused_or_give_a_sound_batch(seed):
    """Also where the checksum would be that of the damaged bytes."""
    _, own, content = some_batch(REGRESSION)
    random = Random(seed)
    for _ in range(100):
        damaged = mutated(content, random)
        try:
            found = unpack_batch(frozen(damaged), own)
        except DamagedBatches:
            continue
        assert_sound(found, own)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 100, 1000])
def test_cut_bytes_are_refused(size):
    _, own, content = some_batch(REGRESSION)
    assert size < len(content)
    with pytest.raises(DamagedBatches):
        unpack_batch(frozen(content[:size]), own)
    with pytest.raises(DamagedBatches):
        unpack_batch(frozen(content + bytes(8)), own)


@pytest.mark.parametrize(("seed", "as_bytes"), [(4, True), (5, False)])
def test_a_label_that_the_task_does_not_have_is_refused(seed, as_bytes):
    """Stored as a byte, and as a float."""
    batch, own, content = some_batch(REGRESSION, seed)
    labels = np.where(batch.labels > 0, 2.0 if as_bytes else 2.5, batch.labels).astype(np.float32)
    content = BatchPacker(own)(replace(batch, labels=labels))
    assert (len(content) < len(BatchPacker(own)(replace(batch, labels=labels + np.float32(0.5))))) == as_bytes
    assert_same([unpack_batch(frozen(content), own)], [replace(batch, labels=labels)])
    other = BatchLayout.of(RICH_LAYOUT, BINARY, 64, own.fragments)
    with pytest.raises(DamagedBatches, match="labels"):
        unpack_batch(frozen(content), other)
