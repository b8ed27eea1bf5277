from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.run.reading.test_batches import NULLABLE, NULLABLE_LAYOUT, RICH_LAYOUT, nullable_table, rich_table
from tests.trainer.synthetic import config
from trainer.errors import BadFeature, BadLabel
from trainer.model.heads import BINARY, Head
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.task_heads import TaskHeads
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import ROW_COLUMN, read_columns, take_events
from trainer.run.reading.packed_units import PackedUnit, UnitDecoder, UnitLayout, pack_unit, unpack_unit
from trainer.run.reading.packing import narrow_labels
from trainer.run.reading.unit_requests import UnitRequest, bits_of
from trainer.wire.flight.error_documents import BadAnswer
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError, HeadraceError
from transforms.types import Dense, DType, Ragged, Vector, Weighted

REQUEST = UnitRequest(7, 1, "a" * 64, "hour=00#0", 0, 1000)
REGRESSION = Head("regression")


def packed(stored, layout=NULLABLE_LAYOUT):
    return PackedUnit.of(pack_unit(stored, UnitLayout.of(layout)).tobytes())


def parts_of(table, cuts, layout=NULLABLE_LAYOUT):
    stored = read_columns(table, layout, REQUEST.fragment)
    edges = [0, *sorted(cuts), stored.rows]
    return [stored.part(first, stop) for first, stop in pairwise(edges)]


def assert_equal_batches(one, other):
    for a, b in zip(one, other, strict=True):
        for x, y in ((a.ids.ids, b.ids.ids), (a.ids.offsets, b.ids.offsets), (a.dense, b.dense), (a.labels, b.labels)):
            assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
        assert (a.ids.weights is None) == (b.ids.weights is None)
        assert a.ids.weights is None or a.ids.weights.tobytes() == b.ids.weights.tobytes()
        for x, y in zip(a.spans, b.spans, strict=True):
            assert (x.key, np.arange(10_000)[x.events].tolist()) == (y.key, np.arange(10_000)[y.events].tolist())


def with_columns(table, seed, deletes):
    """The table with labels that are null or fractions, and numbered events, some of them deleted."""
    draw = np.random.default_rng(seed)
    kinds = [None, 0.0, 1.0, 255.0, 256.0, -0.0, 0.5, -3.0]
    labels = pa.array([kinds[draw.integers(8 if seed % 2 else 3)] for _ in range(table.num_rows)], pa.float64())
    table = table.set_column(table.column_names.index("__label__"), "__label__", labels)
    events = np.sort(draw.permutation(table.num_rows + deletes)[: table.num_rows])
    return table.append_column(ROW_COLUMN, pa.array(events))


@settings(max_examples=scaled(80))
@given(data=st.data())
def test_a_packed_unit_gives_the_same_batches_as_its_columns(data):
    rows, offset = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 9))
    table = with_columns(nullable_table(rows + offset, seed=rows).slice(offset), rows, data.draw(st.integers(0, 3)))
    cuts = data.draw(st.lists(st.integers(0, rows), max_size=4))
    decode = UnitDecoder(NULLABLE_LAYOUT, REGRESSION)
    parts = parts_of(table, cuts)
    local = [decode(REQUEST, part) for part in parts]
    remote = [decode(REQUEST, packed(part)) for part in parts]
    assert [one.unlabelled for one in local] == [one.unlabelled for one in remote]
    batch_rows = data.draw(st.integers(1, 20))
    assert_equal_batches(
        make_batches(local, NULLABLE_LAYOUT, batch_rows=batch_rows),
        make_batches(remote, NULLABLE_LAYOUT, batch_rows=batch_rows),
    )


@given(labels=st.lists(st.one_of(st.integers(-2, 258).map(float), st.floats(), st.sampled_from([-0.0, 0.5, 255.5]))))
def test_labels_are_bytes_only_if_that_keeps_each_of_them(labels):
    found, out = np.array(labels, np.float64), np.empty(len(labels), np.uint8)
    kept = all(value in range(256) and not np.signbit(value) for value in labels)
    assert narrow_labels(found, out) == kept
    if kept:
        assert out.tolist() == labels


@settings(max_examples=scaled(80))
@given(data=st.data())
def test_chosen_rows_are_those_of_the_whole_unit(data):
    """Packed or not, of columns of every kind: the events of a range that are chosen are taken, and no others."""
    rows, offset = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 9))
    kind, layout = data.draw(st.sampled_from([(nullable_table, NULLABLE_LAYOUT), (rich_table, RICH_LAYOUT)]))
    table = kind(rows + offset, seed=rows).slice(offset)
    (stored,) = parts_of(table, [], layout)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows).filter(any)))
    request = replace(REQUEST, rows=rows, row_bits=bits_of(chosen))
    part = stored.take(np.flatnonzero(chosen))
    decode = UnitDecoder(layout)
    remote = decode(request, packed(part, layout))
    taken = take_events(decode(REQUEST, stored), np.flatnonzero(chosen))
    for found in (decode(request, part), remote):
        assert found.positions.tolist() == np.flatnonzero(chosen).tolist()
        assert_equal_batches(
            make_batches([found], layout, batch_rows=rows), make_batches([taken], layout, batch_rows=rows)
        )
    if not chosen.all():
        with pytest.raises(BadAnswer, match="asked for"):
            decode(request, packed(stored, layout))


@pytest.mark.medium
@pytest.mark.parametrize("buckets", [1, 256, 257, 1 << 16, (1 << 16) + 1, 1 << 32, (1 << 32) + 1, (1 << 63) - 1])
def test_ids_of_any_width_arrive(buckets):
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
        "words": [[top, 0], [], [top], [0]],
        "slots": [[top, 0], [0, top], [0, 0], [top // 3, top]],
        "topics": [[{"id": top, "weight": 0.5}], [], [{"id": 0, "weight": -2.0}], []],
    }
    table = pa.table({name: pa.array(values[name], arrow_type(kind)) for name, kind in types.items()})
    stored = read_columns(table.append_column("__label__", pa.array([0, 1, 0, 1])), layout, REQUEST.fragment)
    decode = UnitDecoder(layout)
    found = [
        list(make_batches([decode(REQUEST, one)], layout, batch_rows=3)) for one in (stored, packed(stored, layout))
    ]
    assert_equal_batches(*found)
    assert top in found[0][0].ids.ids


def test_even_lists_need_no_offsets_and_equal_ones_are_there_once():
    def size_of(**lists):
        types = {name: Ragged(DType.INT64, 1 << 20) for name in lists}
        layout = lay_out([TypedInput(name, kind) for name, kind in types.items()], config("run"))
        table = pa.table({name: pa.array(value, arrow_type(types[name])) for name, value in lists.items()})
        table = table.append_column("__label__", pa.array([0] * table.num_rows))
        return len(pack_unit(read_columns(table, layout, "f"), UnitLayout.of(layout)))

    even, uneven, other = [[1], [2]] * 500, [[1, 2], []] * 500, [[], [1, 2]] * 500
    assert size_of(a=uneven) - size_of(a=even) == 4 * 1001 + 4
    assert size_of(a=uneven, b=uneven) == size_of(a=uneven, b=even)
    assert size_of(a=uneven, b=other) - size_of(a=uneven, b=uneven) == 4 * 1001 + 4


def test_errors_name_what_is_wrong_as_in_the_same_process():
    for table, problem in (
        (rich_table(words=[[500]] + [[]] * 5), "must lie in its buckets"),
        (rich_table(slots=[[1, 1]] * 3 + [[0, 9]] * 3), "must lie in its buckets"),
    ):
        with pytest.raises(BadFeature, match=problem):
            packed(read_columns(table, RICH_LAYOUT, "f"), RICH_LAYOUT)
    label = pa.array([0.0, 1.0, 7.0, 0.0, 0.0, 0.0])
    table = rich_table().set_column(5, "__label__", label).append_column(ROW_COLUMN, pa.array([3, 4, 8, 10, 11, 12]))
    stored = read_columns(table, RICH_LAYOUT, "hour=00#0")
    for delivered in (stored, packed(stored, RICH_LAYOUT)):
        with pytest.raises(BadLabel) as caught:
            UnitDecoder(RICH_LAYOUT)(REQUEST, delivered)
        assert caught.value.where == "fragment hour=00#0, row 8"


def unit_bytes():
    (stored,) = parts_of(with_columns(nullable_table(30, seed=3), 3, 5), [])
    return pack_unit(stored, UnitLayout.of(NULLABLE_LAYOUT)).tobytes()


def decoded(content, request=REQUEST):
    return unpack_unit(PackedUnit.of(content), UnitLayout.of(NULLABLE_LAYOUT), request)


def header_with(content, position, value):
    changed = np.frombuffer(content, np.uint8).copy()
    changed[8 * position :][:8].view(np.int64)[0] = value
    return changed.tobytes()


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        (0, 5, "format of this release"),
        (2, 5, "inputs of the model"),
        (5, -1, "no more events than"),
        (5, 1001, "no more events than"),
        (5, 29, "ways that their types have|length that its header"),
        (5, 2**62, "no more events than"),
        (6, 4, "sound header"),
        (7, 2, "sound header"),
        (8, 2**40, "sound header"),
        (9, -1, "sound header"),
        (9, 990, "events that were asked for"),
        (10, 3, "ways that their types have"),
        (11, 3, "ways that their types have"),
        (12, 2**62, "ways that their types have"),
        (12, -1, "ways that their types have"),
        (13, 4, "ways that their types have"),
        (13, -1, "ways that their types have"),
        (14, 2, "ways that their types have"),
    ],
)
def test_wrong_numbers_are_refused(position, value, problem):
    with pytest.raises(DataError, match=problem):
        decoded(header_with(unit_bytes(), position, value))


def test_a_truncated_or_longer_unit_is_refused():
    content = unit_bytes()
    assert decoded(content).rows == 30
    for end in (0, 8, 79, 80, len(content) // 2, len(content) - 1):
        with pytest.raises(DataError, match="have the length that its header states"):
            decoded(content[:end])
    with pytest.raises(DataError, match="have the length that its header states"):
        decoded(content + bytes(8))


def test_events_of_others_are_refused():
    with pytest.raises(DataError, match="events that were asked for"):
        decoded(unit_bytes(), replace(REQUEST, first_row=1, rows=999))
    with pytest.raises(DataError, match="no more events"):
        decoded(unit_bytes(), replace(REQUEST, rows=29))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_units_are_refused_or_decoded_within_their_bytes(seed):
    """Ids may change within the bytes of an id, which stacking checks; nothing else may pass unseen."""
    content, random = unit_bytes(), Random(seed)
    tokens = [(-1).to_bytes(8, "little", signed=True), (2**62).to_bytes(8, "little"), b"\xff" * 4, b"\x00\x00\xc0\x7f", bytes(8)]  # fmt: skip
    decode, outcomes = UnitDecoder(NULLABLE_LAYOUT, REGRESSION), {True: 0, False: 0}
    for _ in range(scaled(1500)):
        changed = bytearray(content)
        if random.random() < 0.3:
            changed = bytearray(mutated(content, random, tokens))
        else:  # the same length, so that what is behind the check of lengths is reached
            for _ in range(random.randint(1, 3)):
                token = random.choice(tokens) if random.random() < 0.5 else random.randbytes(random.choice((1, 4, 8)))
                at = random.randrange(max(1, len(content) - len(token)))
                changed[at : at + len(token)] = token
        try:
            fragment = decode(REQUEST, PackedUnit.of(bytes(changed)))
            batches = list(make_batches([fragment], NULLABLE_LAYOUT, batch_rows=8))
        except HeadraceError:
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        for batch in batches:
            assert np.isfinite(batch.dense).all()
            assert np.isfinite(batch.ids.weights).all()
            offsets = batch.ids.offsets
            assert (offsets[:, 1:] >= offsets[:, :-1]).all()
            assert offsets[-1, -1] == len(batch.ids.ids)
            for f, kind in enumerate(NULLABLE.values()):
                own = batch.ids.ids[offsets[f, 0] : offsets[f, -1]]
                assert ((own >= 0) & (own < kind.buckets)).all()
    assert min(outcomes.values()) > 10


SEVERAL = TaskHeads((("click", BINARY), ("grade", Head("multiclass", 5)), ("price", REGRESSION)))


def with_several_labels(table, seed):
    draw = np.random.default_rng(seed)
    kinds = ([None, 0.0, 1.0], [None, 0.0, 4.0], [None, 0.5, -3.0] if seed % 2 else [1.0, 2.0])
    columns = [pa.array([of[draw.integers(len(of))] for _ in range(table.num_rows)], pa.float64()) for of in kinds]
    several = pa.StructArray.from_arrays(columns, [name for name, _ in SEVERAL.each])
    return table.set_column(table.column_names.index("__label__"), "__label__", several)


@settings(max_examples=scaled(40))
@given(data=st.data())
def test_a_packed_unit_of_several_labels_gives_the_same_batches_as_its_columns(data):
    rows = data.draw(st.integers(0, 40))
    table = with_several_labels(nullable_table(rows, seed=rows), data.draw(st.integers(0, 9)))
    layout = UnitLayout.of(NULLABLE_LAYOUT, SEVERAL)
    decode = UnitDecoder(NULLABLE_LAYOUT, SEVERAL)
    parts = parts_of(table, data.draw(st.lists(st.integers(0, rows), max_size=3)))
    local = [decode(REQUEST, part) for part in parts]
    remote = [decode(REQUEST, PackedUnit.of(pack_unit(part, layout).tobytes())) for part in parts]
    assert [one.unlabelled for one in local] == [one.unlabelled for one in remote]
    assert all(one.labels.shape == (one.rows, 3) and not np.isnan(one.labels).all(axis=1).any() for one in local)
    assert_equal_batches(
        make_batches(local, NULLABLE_LAYOUT, batch_rows=7), make_batches(remote, NULLABLE_LAYOUT, batch_rows=7)
    )


def test_a_unit_of_other_labels_is_refused():
    stored = read_columns(nullable_table(9, seed=1), NULLABLE_LAYOUT, REQUEST.fragment)
    with pytest.raises(BadAnswer, match="the inputs of the model"):
        unpack_unit(packed(stored), UnitLayout.of(NULLABLE_LAYOUT, SEVERAL), REQUEST)


def test_a_bad_label_of_several_is_refused_with_its_name():
    table = with_several_labels(nullable_table(9, seed=1), 2)
    columns = [pa.array([2.0] * 9), *(one for one in table["__label__"].combine_chunks().flatten()[1:])]
    struct = pa.StructArray.from_arrays(columns, [name for name, _ in SEVERAL.each])
    at = table.column_names.index("__label__")
    stored = read_columns(table.set_column(at, "__label__", struct), NULLABLE_LAYOUT, REQUEST.fragment)
    with pytest.raises(BadLabel, match="a binary label must be 0 or 1") as caught:
        UnitDecoder(NULLABLE_LAYOUT, SEVERAL)(REQUEST, stored)
    assert "label click, row 0" in caught.value.where
