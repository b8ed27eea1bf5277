from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.errors import BadFeature
from trainer.model.inputs import TypedInput, lay_out
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import ROW_COLUMN, with_labels
from trainer.run.reading.packed_units import PackedUnit, UnitLayout, unpack_unit
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.reading.unit_requests import UnitRequest, bits_of
from transforms.errors import DataError

DATA = Synthetic(2, 60)
DIGEST = DATA.solution.digest()
KEY = "hour=00#1"  # 77 events


def find(digest):
    if digest != DIGEST:
        raise DataError("the read solution must be that of the job", value=digest)
    return DATA.solution


def reader_of(read=None, *, kept_bytes=1 << 30):
    return UnitReader(find, read or (lambda _, fragment: DATA.tables[fragment.path]), kept_bytes=kept_bytes)


def with_deleted(count):
    """The solution if the second fragment of the first partition lost so many of its 77 events."""
    first, *others = DATA.solution.partitions
    fragments = (first.fragments[0], replace(first.fragments[1], deleted_rows=count))
    return replace(DATA.solution, partitions=(replace(first, fragments=fragments), *others))


def unit(first, rows, *, key=KEY, digest=DIGEST):
    return UnitRequest(0, 0, digest, key, first, rows)


LAYOUT = lay_out([TypedInput(name, kind) for name, kind in TYPES.items()], config("run"))


def events_of(table):
    """One tuple an event, the slow way."""
    dense = [(row["price"] or 0.0, float(row["mobile"] or False)) for row in table.to_pylist()]
    return [
        (row["words"] or [], [] if row["user"] is None else [row["user"]], numbers, float(row["__label__"]))
        for row, numbers in zip(table.to_pylist(), dense, strict=True)
    ]


def events_in(batches):
    found = []
    for batch in batches:
        at = batch.ids.offsets
        for b in range(batch.rows):
            bags = [batch.ids.ids[at[f, b] : at[f, b + 1]].tolist() for f in range(2)]
            found.append((*bags, tuple(batch.dense[b].tolist()), float(batch.labels[b])))
    return found


def events_of_units(units, batch_rows=16):
    return events_in(make_batches([with_labels(one) for one in units], LAYOUT, batch_rows=batch_rows))


@settings(max_examples=scaled(50))
@given(st.lists(st.integers(1, 76), unique=True), st.integers(0, 5), st.integers(0, 77))
def test_units_together_are_the_fragment(cuts, seed, deleted):
    """However a fragment is cut, and whichever of its events are deleted."""
    live = np.sort(np.random.default_rng(seed).permutation(77)[deleted:])
    whole = DATA.tables["hour=00/1.parquet"].take(live).append_column(ROW_COLUMN, pa.array(live))
    reader = UnitReader(lambda _digest: with_deleted(deleted), lambda _solution, _fragment: whole, kept_bytes=1 << 30)
    edges = [0, *sorted(cuts), 77]
    units = [reader.read(unit(first, last - first)) for first, last in itertools.pairwise(edges)]
    assert events_of_units(units) == events_of(whole)
    for first, last, stored in zip(edges[:-1], edges[1:], units, strict=True):
        assert all(first <= row < last for row in stored.positions)
    assert [row for stored in units for row in stored.positions] == live.tolist()


@settings(max_examples=scaled(50))
@given(st.integers(0, 76).flatmap(lambda first: st.tuples(st.just(first), st.integers(1, 77 - first))), st.integers(0, 9), st.integers(0, 60))  # fmt: skip
def test_chosen_rows_of_a_range_are_delivered(place, seed, deleted):
    """Those that are chosen and not deleted; what is packed is the same."""
    (first, rows), random = place, np.random.default_rng(seed)
    live = np.sort(random.permutation(77)[deleted:])
    chosen = random.random(rows) < 0.4
    chosen[random.integers(rows)] = True
    whole = DATA.tables["hour=00/1.parquet"].take(live).append_column(ROW_COLUMN, pa.array(live))
    reader = UnitReader(lambda _digest: with_deleted(deleted), lambda _solution, _fragment: whole, kept_bytes=1 << 30)
    request = replace(unit(first, rows), row_bits=bits_of(chosen))
    found = reader.read(request)
    wanted = [row for row in live.tolist() if first <= row < first + rows and chosen[row - first]]
    assert found.positions.tolist() == wanted
    assert events_of_units([found]) == events_of(whole.take(np.searchsorted(live, wanted)))
    content, events = reader.pack(request)
    sent = unpack_unit(PackedUnit.of(content), UnitLayout.of(LAYOUT), request)
    assert events == len(wanted)
    assert events_of_units([sent]) == events_of_units([found])


def test_a_fragment_is_read_once_for_units_at_the_same_time():
    reads, begin = [], threading.Event()

    def read(_solution, fragment):
        reads.append(fragment.path)
        begin.wait(PATIENCE_SECS)
        return DATA.tables[fragment.path]

    reader = reader_of(read)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(reader.read, unit(first, 10)) for first in (0, 10, 20, 30)]
        begin.set()
        assert [one.result().rows for one in found] == [10] * 4
    assert reads == ["hour=00/1.parquet"]


def test_only_some_bytes_are_kept():
    reads = []

    def read(_solution, fragment):
        reads.append(fragment.path)
        return DATA.tables[fragment.path]

    reader = reader_of(read, kept_bytes=0)
    for key in ("hour=00#0", "hour=00#0", "hour=00#1", "hour=00#0"):
        reader.read(unit(0, 10, key=key))
    assert reads == ["hour=00/0.parquet", "hour=00/1.parquet", "hour=00/0.parquet"]


def test_an_error_is_not_kept():
    failures = [OSError("the disk is gone")]

    def read(_solution, fragment):
        if failures:
            raise failures.pop()
        return DATA.tables[fragment.path]

    reader = reader_of(read)
    with pytest.raises(OSError, match="the disk is gone"):
        reader.read(unit(0, 10))
    assert reader.read(unit(0, 10)).rows == 10


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (unit(70, 8), "must be events of its fragment"),
        (unit(0, 0), "must be events of its fragment"),
        (unit(0, 10, key="hour=07#0"), "must name a fragment of its read solution"),
        (unit(0, 10, digest="0" * 64), "must be that of the job"),
    ],
)
def test_units_that_do_not_exist_are_refused(wrong, problem):
    with pytest.raises(DataError, match=problem):
        reader_of().read(wrong)


def test_a_fragment_with_other_rows_than_the_solution_says_is_refused():
    table = DATA.tables["hour=00/1.parquet"]
    with pytest.raises(BadFeature, match="must have the rows"):
        reader_of(lambda _solution, _fragment: table.slice(1)).read(unit(0, 10))
    unnumbered = UnitReader(lambda _digest: with_deleted(1), lambda _solution, _fragment: table.slice(1), kept_bytes=0)
    with pytest.raises(BadFeature, match="must return a column of event numbers"):
        unnumbered.read(unit(0, 10))
