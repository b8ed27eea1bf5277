"""Batches that are made together are those that are made one by one, bit for bit, errors included."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.run.reading.test_batches import LAYOUT, NULLABLE_LAYOUT, nullable_table
from tests.trainer.run.reading.test_packed_units import assert_equal_batches, packed
from tests.trainer.synthetic import config, fragment_table
from trainer.errors import BadFeature
from trainer.model.inputs import TypedInput, lay_out
from trainer.run.reading import batches, drawn_batches
from trainer.run.reading.batches import BatchAssembler
from trainer.run.reading.columns import read_columns, take_events, with_labels
from trainer.run.reading.packed_units import UnitDecoder
from trainer.run.reading.shuffling import ShuffleWindow, ascending
from trainer.run.reading.unit_requests import UnitRequest
from transforms.columns.arrow_types import arrow_type
from transforms.types import Dense, DType, Ragged

SKEWED_LAYOUT = lay_out([TypedInput("ids", Ragged(DType.INT64, 1 << 20)), TypedInput("one", Dense(DType.INT64, 300))], config("run"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class OneByOne:
    """A window that does not say where its batches begin, so that each is made alone."""

    window: ShuffleWindow

    def __getattr__(self, name):
        return getattr(self.window, name)

    def cuts(self, rows, batch_rows):
        return np.zeros(0, np.int64)

    def following(self):
        return OneByOne(self.window.following())


def taken(assembler, units, sizes=()):
    """The batches of some units; the sizes of batches are these in turn, else the assembler's own."""
    found, wanted = [], itertools.cycle(sizes or [None])
    for number, unit in enumerate(units):
        assembler.add(unit, number, 1000 * number)
    assembler.finish()
    while assembler.ready:
        size = next(wanted)
        found.append((assembler.take(size if size and assembler.has(size) else None), assembler.pending()))
    return found


def assert_equal_streams(layout, units, batch_rows, window, sizes=()):
    together = taken(BatchAssembler(layout, batch_rows, window), units, sizes)
    alone = taken(BatchAssembler(layout, batch_rows, OneByOne(window)), units, sizes)
    assert [pending for _, pending in together] == [pending for _, pending in alone]
    assert_equal_batches([batch for batch, _ in together], [batch for batch, _ in alone])
    for (a, _), (b, _) in zip(together, alone, strict=True):
        assert (a.rows, a.weights.tobytes()) == (b.rows, b.weights.tobytes())
    return together


def unit_of(data, layout, table, key):
    """A table as the columns of a fragment or as the bytes of a unit, some of its events left out or without a label."""
    stored = read_columns(table, layout, key)
    first = data.draw(st.integers(0, stored.rows))
    part = stored.part(first, data.draw(st.integers(first, stored.rows)))
    if data.draw(st.booleans()):
        request = UnitRequest(0, 1, "a" * 64, key, 0, stored.rows)
        unit = UnitDecoder(layout)(request, packed(part, layout))
    else:
        unit = with_labels(part)
    kept = data.draw(st.lists(st.booleans(), min_size=unit.rows, max_size=unit.rows))
    return take_events(unit, np.flatnonzero(kept)) if data.draw(st.booleans()) else unit


def skewed_table(rows, seed):
    """Lists of which few are long, over ids of three bytes."""
    draw = np.random.default_rng(seed)
    lengths = np.where(draw.random(rows) < 0.1, draw.integers(0, 60, rows), draw.integers(0, 2, rows))
    ids = [draw.integers(1 << 20, size=n).tolist() for n in lengths]
    ones = pa.array(draw.integers(300, size=rows), pa.int64(), mask=draw.random(rows) < seed % 3 / 4)
    columns = {"ids": pa.array(ids, arrow_type(Ragged(DType.INT64, 1 << 20))), "one": ones}
    return pa.table({**columns, "__label__": pa.array(draw.integers(2, size=rows))})


@settings(max_examples=scaled(80))
@given(data=st.data())
def test_batches_made_together_are_those_made_one_by_one(data):
    layout, table_of = data.draw(
        st.sampled_from([(LAYOUT, lambda rows, seed: fragment_table(seed, rows)), (NULLABLE_LAYOUT, nullable_table), (SKEWED_LAYOUT, skewed_table)])
    )  # fmt: skip
    units = [
        unit_of(data, layout, table_of(data.draw(st.integers(0, 40)), data.draw(st.integers(0, 99))), f"f{k}")
        for k in range(data.draw(st.integers(1, 5)))
    ]
    rows = data.draw(st.integers(1, 60))
    window = ShuffleWindow(rows, data.draw(st.integers(0, 3)), drawn=data.draw(st.integers(0, rows - 1)))
    batch_rows = data.draw(st.integers(1, 20))
    sizes = data.draw(st.lists(st.integers(0, batch_rows), max_size=2))
    assert_equal_streams(layout, units, batch_rows, window, sizes if any(sizes) else ())


def test_a_window_is_made_in_as_many_passes_as_its_bytes_ask_for(monkeypatch):
    units = [with_labels(read_columns(skewed_table(300, k), SKEWED_LAYOUT, f"f{k}")) for k in range(4)]
    made = []

    def counted(parts, dealt, form):
        made.append(len(dealt.ends))
        return drawn_batches.draw_arrays(parts, dealt, form)

    monkeypatch.setattr(batches, "draw_arrays", counted)
    assert_equal_streams(SKEWED_LAYOUT, units, 50, ShuffleWindow(500))
    assert made == [10, 10, 4]
    made.clear()
    monkeypatch.setattr(batches, "_DRAWN_BYTES", 0)
    assert_equal_streams(SKEWED_LAYOUT, units, 50, ShuffleWindow(500))
    assert sum(made) == 24
    assert len(made) > 3


def test_a_batch_with_most_of_the_ids_of_its_window_gets_the_space_that_it_needs():
    rows = 400
    lists = [list(range(200)) if row < 8 else [] for row in range(rows)]
    columns = {"ids": pa.array(lists, arrow_type(Ragged(DType.INT64, 1 << 20))), "one": pa.array(range(rows)).cast(pa.int64())}  # fmt: skip
    table = pa.table({**columns, "__label__": pa.array([1] * rows)}).slice(0, 300)
    units = [with_labels(read_columns(table, SKEWED_LAYOUT, "f"))]
    counts = [len(batch.ids.ids) for batch, _ in assert_equal_streams(SKEWED_LAYOUT, units, 10, ShuffleWindow(300))]
    assert max(counts) > 1.25 * sum(counts) / len(counts) + 2
    assert sum(counts) == 8 * 200 + 300


def test_what_is_wrong_is_raised_by_the_batch_that_has_it():
    tables = [fragment_table(k, 30) for k in range(4)]
    words = [[500] if row == 17 else words for row, words in enumerate(tables[2]["words"].to_pylist())]
    tables[2] = tables[2].set_column(0, "words", pa.array(words, arrow_type(Ragged(DType.INT64, 500))))
    units = [with_labels(read_columns(table, LAYOUT, f"f{k}")) for k, table in enumerate(tables)]
    found = []
    for window in (ShuffleWindow(60), OneByOne(ShuffleWindow(60))):
        assembler, sound = BatchAssembler(LAYOUT, 7, window), 0
        for number, unit in enumerate(units):
            assembler.add(unit, number, 30 * number)
        try:
            while assembler.ready:
                assembler.take()
                sound += 1
        except BadFeature as error:
            found.append((sound, str(error)))
    assert found[0] == found[1]
    assert "must lie in its buckets" in found[0][1]
    assert found[0][0] >= 8, "the first window is sound"


@settings(max_examples=scaled(60))
@given(
    hashes=st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 3), st.just(2**63)), max_size=60),
    copies=st.integers(1, 3),
)
def test_hashes_are_ordered_as_by_a_stable_sort(hashes, copies):
    values = np.array(hashes * copies, np.uint64)
    order = ascending(values)
    assert order.dtype == np.int64
    assert order.tolist() == np.argsort(values, kind="stable").tolist()
