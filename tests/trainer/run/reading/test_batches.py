from __future__ import annotations

import threading
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.synthetic import TYPES, Synthetic, config, fragment_table
from trainer.errors import BadFeature, BadLabel, ConfigError
from trainer.model.heads import Head
from trainer.model.inputs import TypedInput, lay_out
from trainer.run.preparation.preparation import fragment_refs
from trainer.run.reading.batches import BatchAssembler, make_batches
from trainer.run.reading.columns import decode, take_events
from trainer.run.reading.shuffling import ShuffleWindow
from trainer.run.reading.stream import fragment_stream
from transforms.columns.arrow_types import arrow_type
from transforms.types import Dense, DType, Ragged, Vector, Weighted

LAYOUT = lay_out([TypedInput(name, kind) for name, kind in TYPES.items()], config("run"))


def events_of(table: pa.Table):
    """One tuple an event, the slow way: (words, user as a list, dense, label)."""
    return [
        (
            row["words"] or [],
            [] if row["user"] is None else [row["user"]],
            [np.float32(row["price"] or 0.0), np.float32(row["mobile"] or False)],
            float(row["__label__"]),
        )
        for row in table.to_pylist()
    ]


def events_in(batch):
    def bag(f, b):
        return list(batch.ids.ids[batch.ids.offsets[f, b] : batch.ids.offsets[f, b + 1]])

    return [(bag(0, b), bag(1, b), list(batch.dense[b]), float(batch.labels[b])) for b in range(batch.rows)]


@settings(max_examples=scaled(40))
@given(sizes=st.lists(st.integers(0, 40), max_size=5), batch_rows=st.integers(1, 50), cut=st.integers(0, 20))
def test_batches_hold_every_event_in_order(sizes, batch_rows, cut):
    tables = [fragment_table(k, size + cut).slice(cut) for k, size in enumerate(sizes)]  # slices have Arrow offsets
    decoded = [decode(table, LAYOUT, str(k)) for k, table in enumerate(tables)]
    found = list(make_batches(decoded, LAYOUT, batch_rows=batch_rows))
    assert [event for batch in found for event in events_in(batch)] == [e for table in tables for e in events_of(table)]
    assert [batch.rows for batch in found[:-1]] == [batch_rows] * len(found[:-1])
    places = [(span.key, row) for batch in found for span in batch.spans for row in range(span.start, span.stop)]
    assert places == [(str(k), row) for k, size in enumerate(sizes) for row in range(size)]


def test_padding_is_empty_and_weighs_nothing():
    (batch,) = make_batches([decode(fragment_table(0, 3), LAYOUT, "f")], LAYOUT, batch_rows=8)
    assert batch.rows == 3
    assert list(batch.weights) == [1, 1, 1, 0, 0, 0, 0, 0]
    assert not batch.dense[3:].any()
    assert not batch.labels[3:].any()
    assert not np.diff(batch.ids.offsets, axis=1)[:, 3:].any()


def table_with(**columns):
    table = fragment_table(0, 4)
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def stacked(table, layout=LAYOUT):
    """The batches of one fragment, 4 events each."""
    return list(make_batches([decode(table, layout, "f")], layout, batch_rows=4))


def test_nulls_have_their_written_meaning():
    table = table_with(
        words=pa.array([[1, None, 2], None, [], [3]], pa.list_(pa.int64())),
        user=pa.array([None, 5, None, 7]),
        price=pa.array([1.5, None, -1.0, None], pa.float32()),
        mobile=pa.array([True, None, False, None]),
    )
    (batch,) = stacked(table)
    assert batch.ids.ids.tolist() == [1, 2, 3, 5, 7]
    assert batch.ids.offsets.tolist() == [[0, 2, 2, 2, 3], [3, 3, 4, 4, 5]]
    assert batch.dense.tolist() == [[1.5, 1.0], [0.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_named(bad):
    with pytest.raises(BadFeature, match="a dense input must be finite") as caught:
        decode(table_with(price=pa.array([0.0, 1.0, bad, 0.0], pa.float32())), LAYOUT, "hour=01#0")
    assert caught.value.where == "fragment hour=01#0, row 2, input price"
    assert ".fill_nan(0.0)" in caught.value.next_step


def test_a_double_that_no_float32_holds_is_named():
    layout = lay_out([TypedInput("x", Dense(DType.FLOAT64))], config("run"))
    table = pa.table({"x": [1.0, 1e300], "__label__": [0, 1]})
    with pytest.raises(BadFeature) as caught:
        decode(table, layout, "f")
    assert (caught.value.value, caught.value.where) == (1e300, "fragment f, row 1, input x")


def test_ids_outside_their_buckets_are_named():
    with pytest.raises(BadFeature) as caught:
        stacked(table_with(words=pa.array([[1], [], [2, 500], [3]])))
    assert (caught.value.value, caught.value.where) == (500, "fragment f, row 2, input words")
    with pytest.raises(BadFeature) as caught:
        stacked(table_with(user=pa.array([None, 1, -1, 2])))
    assert (caught.value.value, caught.value.where) == (-1, "fragment f, row 2, input user")


@pytest.mark.parametrize("offsets", [[0, 2, 1, 3, 3], [0, 3, 3, 3, 2]])
def test_lists_that_do_not_follow_one_another_are_refused(offsets):
    """A reader of one's own may give any array; engines follow what is stacked without looking again."""
    words = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 3], pa.int32()), pa.array([1, 2, 3]))
    held = pa.py_buffer(np.array(offsets, np.int32))
    unsound = pa.Array.from_buffers(words.type, 4, [None, held], 0, 0, [words.values])
    with pytest.raises(BadFeature, match="must ascend"):
        stacked(table_with(words=unsound))


def test_batches_say_the_bounds_of_their_ids():
    """So that no engine looks at every id of every batch again."""
    (batch,) = make_batches([decode(fragment_table(0, 3), LAYOUT, "f")], LAYOUT, batch_rows=8)
    assert batch.ids.bounds == tuple(feature.table.vocabulary_size for feature in LAYOUT.features)
    for f, bound in enumerate(batch.ids.bounds):
        ids = batch.ids.ids[batch.ids.offsets[f, 0] : batch.ids.offsets[f, -1]]
        assert not len(ids) or 0 <= ids.min() <= ids.max() < bound


@pytest.mark.parametrize("bad", [2.0, -1.0, 0.5, float("nan")])
def test_labels_other_than_0_and_1_are_named(bad):
    with pytest.raises(BadLabel, match="binary label must be 0 or 1") as caught:
        decode(table_with(__label__=pa.array([0.0, 1.0, 0.0, bad])), LAYOUT, "f")
    assert caught.value.where == "fragment f, row 3"
    assert 'task="multiclass"' in caught.value.next_step


@settings(max_examples=scaled(40))
@given(missing=st.lists(st.booleans(), min_size=30, max_size=30))
def test_events_without_a_label_are_left_out_and_counted(missing):
    table = fragment_table(3, 30)
    label = pa.array(
        [None if gone else value for gone, value in zip(missing, table["__label__"].to_pylist(), strict=True)],
        pa.int64(),
    )
    decoded = decode(table.set_column(table.column_names.index("__label__"), "__label__", label), LAYOUT, "f")
    assert (decoded.rows, decoded.unlabelled) == (30 - sum(missing), sum(missing))
    found = [event for batch in make_batches([decoded], LAYOUT, batch_rows=7) for event in events_in(batch)]
    assert found == [event for event, gone in zip(events_of(table), missing, strict=True) if not gone]
    places = np.concatenate([np.zeros(0, int), *(np.arange(30)[s.events] for b in make_batches([decoded], LAYOUT, batch_rows=7) for s in b.spans)])  # fmt: skip
    assert places.tolist() == [row for row, gone in enumerate(missing) if not gone]


@pytest.mark.parametrize(
    ("head", "good", "bad"),
    [
        (Head("multiclass", 3), [0, 1, 2, None], [3, -1, 0.5, float("nan")]),
        (Head("regression"), [-1e30, 0.5, None, 7], [float("inf"), 1e300, float("nan")]),
    ],
)
def test_labels_of_other_tasks_are_checked(head, good, bad):
    values = pa.array(good, pa.float64())
    assert decode(table_with(__label__=values), LAYOUT, "f", head=head).unlabelled == 1
    for value in bad:
        with pytest.raises(BadLabel, match=head.task) as caught:
            decode(table_with(__label__=pa.array([1.0, 1.0, value, 0.0])), LAYOUT, "f", head=head)
        assert caught.value.where == "fragment f, row 2"


def test_textual_labels_are_named():
    with pytest.raises(BadLabel, match="bool or a number"):
        decode(table_with(__label__=pa.array(["0", "1", "0", "1"])), LAYOUT, "f")
    assert list(decode(table_with(__label__=pa.array([True, False, True, True])), LAYOUT, "f").labels) == [1, 0, 1, 1]


def test_columns_that_lack_or_have_another_type_are_named():
    with pytest.raises(BadFeature, match="must have a column"):
        decode(fragment_table(0, 4).drop_columns(["user"]), LAYOUT, "f")
    with pytest.raises(BadFeature, match="must have a label"):
        decode(fragment_table(0, 4).drop_columns(["__label__"]), LAYOUT, "f")
    with pytest.raises(BadFeature, match="must have its input's type") as caught:
        decode(table_with(words=pa.array([["a"], [], ["b"], []])), LAYOUT, "f")
    assert caught.value.where.endswith("input words")


def refs_of(data: Synthetic):
    return [ref for part in data.solution.partitions for ref in fragment_refs(part.key, part.fragments)]


def test_fragments_come_in_order_and_are_read_ahead_in_one_other_thread():
    data, threads = Synthetic(3, 20), set()

    def read(fragment):
        threads.add(threading.current_thread())
        return data.read(fragment)

    stream = fragment_stream(refs_of(data), read, LAYOUT, ahead=2)
    with closing(stream):
        assert [decoded.key for decoded in stream] == [ref.key for ref in refs_of(data)]
    assert data.reads == [ref.fragment.path for ref in refs_of(data)]
    (thread,) = threads
    assert thread is not threading.main_thread()
    assert not thread.is_alive()


def test_closing_early_ends_the_thread_and_reads_no_more():
    data = Synthetic(5, 20)
    stream = fragment_stream(refs_of(data), data.read, LAYOUT, ahead=1)
    with closing(stream):
        next(stream)
    assert len(data.reads) <= 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fragment-reader")]


def test_an_error_comes_where_its_fragment_would_have():
    data = Synthetic(2, 20)
    refs = refs_of(data)
    data.tables[refs[2].fragment.path] = data.tables[refs[2].fragment.path].slice(1)
    stream = fragment_stream(refs, data.read, LAYOUT, ahead=3)
    with closing(stream):
        assert [next(stream).key, next(stream).key] == [refs[0].key, refs[1].key]
        with pytest.raises(BadFeature, match="must have the rows") as caught:
            next(stream)
    assert caught.value.where == f"fragment {refs[2].key}"


def test_a_model_may_have_only_one_kind_of_input():
    table = fragment_table(0, 5)
    for types in ({"words": Ragged(DType.INT64, 500)}, {"price": Dense(DType.FLOAT32)}):
        layout = lay_out([TypedInput(name, kind) for name, kind in types.items()], config("run"))
        (batch,) = make_batches([decode(table, layout, "f")], layout, batch_rows=8)
        assert batch.dense.shape == (8, len(layout.dense))
        assert batch.ids.offsets.shape == (len(layout.embedded), 9)


RICH = {
    "topics": Weighted(DType.INT64, 50),
    "words": Ragged(DType.INT64, 500),
    "slots": Vector(DType.INT64, 2, 9),
    "price": Dense(DType.FLOAT32),
    "numbers": Vector(DType.FLOAT64, 3),
}
RICH_LAYOUT = lay_out([TypedInput(name, kind) for name, kind in RICH.items()], config("run"))


def rich_table(rows=6, **replaced):
    """Weighted ids and vectors; ``replaced`` values by column."""
    columns = {
        "topics": [[{"id": (i + j) % 50, "weight": j - 0.5 * i} for j in range(i % 4)] for i in range(rows)],
        "words": [list(range(i % 3)) for i in range(rows)],
        "slots": [[i % 9, 8] for i in range(rows)],
        "price": [None if i == 1 else float(i) for i in range(rows)],
        "numbers": [[i + 0.5, -1.0, 0.0] for i in range(rows)],
    }
    arrays = {name: pa.array(replaced.get(name, values), arrow_type(RICH[name])) for name, values in columns.items()}
    return pa.table({**arrays, "__label__": pa.array([i % 2 for i in range(rows)])})


@pytest.mark.parametrize("batch_rows", [1, 4, 5, 20])
def test_weights_and_vectors_come_with_their_events(batch_rows):
    tables = [rich_table(), rich_table(9).slice(2)]
    decoded = [decode(table, RICH_LAYOUT, str(k)) for k, table in enumerate(tables)]
    rows = [row for table in tables for row in table.to_pylist()]
    found = []
    for batch in make_batches(decoded, RICH_LAYOUT, batch_rows=batch_rows):
        ids, at = batch.ids, batch.ids.offsets
        for b in range(batch.rows):
            bags = [slice(at[f, b], at[f, b + 1]) for f in range(3)]
            found.append(
                (
                    [list(ids.ids[bag]) for bag in bags],
                    [list(ids.weights[bag]) for bag in bags],
                    batch.dense[b].tolist(),
                )
            )
    assert found == [
        (
            [[pair["id"] for pair in row["topics"]], row["words"], row["slots"]],
            [[pair["weight"] for pair in row["topics"]], [1.0] * len(row["words"]), [1.0, 1.0]],
            [row["price"] or 0.0, *row["numbers"]],
        )
        for row in rows
    ]


def test_ids_without_weights_carry_none():
    (batch,) = make_batches([decode(fragment_table(0, 3), LAYOUT, "f")], LAYOUT, batch_rows=8)
    assert batch.ids.weights is None


def test_bad_weights_ids_and_numbers_are_named_by_row():
    for column, values, problem, row in (
        ("topics", [[{"id": 1, "weight": 1.0}]] * 2 + [[{"id": 1, "weight": np.nan}]] * 4, "weight of an id", 2),
        ("topics", [[]] * 5 + [[{"id": 50, "weight": 1.0}]], "must lie in its buckets", 5),
        ("slots", [[1, 1]] * 3 + [[0, 9]] * 3, "must lie in its buckets", 3),
        ("numbers", [[0.0, 0.0, 0.0]] * 4 + [[0.0, np.inf, 0.0]] * 2, "a dense input must be finite", 4),
    ):
        with pytest.raises(BadFeature, match=problem) as caught:
            stacked(rich_table(**{column: values}), RICH_LAYOUT)
        assert caught.value.where == f"fragment f, row {row}, input {column}"


@settings(max_examples=scaled(60))
@given(data=st.data())
def test_any_events_of_any_fragments_are_stacked_as_they_are_stored(data):
    decoded, expected = [], []
    for k in range(data.draw(st.integers(1, 4))):
        rows, cut = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 3))
        table = nullable_table(rows + cut, seed=k).slice(cut)
        chosen = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
        again = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(chosen), max_size=len(chosen))))
        fragment = take_events(take_events(decode(table, NULLABLE_LAYOUT, str(k)), chosen), again)
        decoded.append(fragment)
        expected += [table.to_pylist()[row] for row in chosen[again]]
        places = chosen[again] if fragment.positions is None else fragment.positions
        assert places.tolist() == chosen[again].tolist()
    batch_rows = data.draw(st.integers(1, 20))
    found = []
    for batch in make_batches(decoded, NULLABLE_LAYOUT, batch_rows=batch_rows):
        at = batch.ids.offsets
        assert at[0, 0] == 0
        assert at[-1, -1] == len(batch.ids.ids)
        assert (at[1:, 0] == at[:-1, -1]).all()
        for b in range(batch.rows):
            bags = [slice(at[f, b], at[f, b + 1]) for f in range(len(at))]
            found.append([(batch.ids.ids[bag].tolist(), batch.ids.weights[bag].tolist()) for bag in bags])
    assert found == [
        [
            ([pair["id"] for pair in row["topics"] or []], [pair["weight"] for pair in row["topics"] or []]),
            (row["words"] or [], [1.0] * len(row["words"] or [])),
            (row["slots"], [1.0, 1.0]),
            ([] if row["user"] is None else [row["user"]], [] if row["user"] is None else [1.0]),
            ([row["hour"]], [1.0]),
        ]
        for row in expected
    ]


NULLABLE = {
    "topics": Weighted(DType.INT64, 50),
    "words": Ragged(DType.INT64, 500),
    "slots": Vector(DType.INT64, 2, 9),
    "user": Dense(DType.INT64, 40),
    "hour": Dense(DType.INT64, 24),
}
NULLABLE_LAYOUT = lay_out([TypedInput(name, kind) for name, kind in NULLABLE.items()], config("run"))


def nullable_table(rows, seed):
    draw = np.random.default_rng(seed)
    pairs = [[{"id": int(draw.integers(50)), "weight": float(j)} for j in range(draw.integers(3))] for _ in range(rows)]
    columns = {
        "topics": [None if draw.random() < 0.2 else pair for pair in pairs],
        "words": [
            None if draw.random() < 0.2 else draw.integers(500, size=draw.integers(4)).tolist() for _ in range(rows)
        ],
        "slots": [draw.integers(9, size=2).tolist() for _ in range(rows)],
        "user": [None if draw.random() < 0.3 else int(draw.integers(40)) for _ in range(rows)],
        "hour": [int(draw.integers(24)) for _ in range(rows)],
    }
    arrays = {name: pa.array(values, arrow_type(NULLABLE[name])) for name, values in columns.items()}
    return pa.table({**arrays, "__label__": pa.array(draw.integers(2, size=rows))})


def unit_fragments(sizes):
    """Decoded units with numbered events, each of a fragment of its own."""
    tables = [fragment_table(k, size).append_column("__row__", pa.array(np.arange(size) + 5)) for k, size in enumerate(sizes)]  # fmt: skip
    return [decode(table, LAYOUT, f"f{k}") for k, table in enumerate(tables)]


def drawn(assembler, most=10_000):
    """The next batches of an assembler: the keys and stored events of each."""
    found = []
    while assembler.ready and len(found) < most:
        batch = assembler.take()
        found.append([(span.key, int(event)) for span in batch.spans for event in np.arange(1000)[span.events]])
        assert len(found[-1]) == batch.rows
    return found


@settings(max_examples=scaled(60))
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8),
    batch_rows=st.integers(1, 20),
    window=st.one_of(st.none(), st.integers(1, 50)),
    stop=st.integers(0, 20),
)
def test_an_interrupted_stream_continues_with_the_same_batches(sizes, batch_rows, window, stop):
    """Whatever was added when it was interrupted: what is pending is added again, to another assembler."""
    units = unit_fragments(sizes)

    def assembler(state):
        return BatchAssembler(LAYOUT, batch_rows, state)

    whole = assembler(None if window is None else ShuffleWindow(window, seed=3, start=2))
    for number, unit in enumerate(units):
        whole.add(unit, number, 100 * number)
    whole.finish()
    expected = drawn(whole)
    assert sorted(event for batch in expected for event in batch) == sorted(
        (unit.key, int(event)) for unit in units for event in unit.positions
    )
    assert [len(batch) for batch in expected[:-1]] == [batch_rows] * len(expected[:-1])

    first = assembler(None if window is None else ShuffleWindow(window, seed=3, start=2))
    added, found = 0, []
    while added < len(units) and len(found) < stop:
        first.add(units[added], added, 100 * added)
        added += 1
        found += drawn(first, stop - len(found))
    trained = sum(map(len, found))
    second = assembler(None if window is None else ShuffleWindow(window, 3, 2, trained // window, trained % window))
    pending = first.pending()
    assert [number for number, _ in pending] == sorted({number for number, _ in pending})
    for number, event in pending:
        second.add(take_events(units[number], np.flatnonzero(units[number].positions >= event)), number, 100 * number)
    for number in range(added, len(units)):
        second.add(units[number], number, 100 * number)
    second.finish()
    assert found + drawn(second) == expected
    assert second.pending() == []


def test_a_window_is_a_permutation_that_depends_on_its_seed_epoch_and_number_only():
    sizes = [40, 25, 60, 35]

    def batches(seed=1, start=0, window=80):
        assembler = BatchAssembler(LAYOUT, 16, ShuffleWindow(window, seed, start))
        for number, unit in enumerate(unit_fragments(sizes)):
            assembler.add(unit, number, 100 * number)
        assembler.finish()
        return drawn(assembler)

    first = batches()
    assert batches() == first
    assert batches(seed=2) != first
    assert batches(start=9) != first
    assert batches(window=81) != first
    stream = [(f"f{k}", row + 5) for k, size in enumerate(sizes) for row in range(size)]
    assert {event for batch in first[:5] for event in batch} == set(stream[:80])
    assert {event for batch in first[5:] for event in batch} == set(stream[80:])
    assert all(batch == sorted(batch, key=stream.index) for batch in first), "in a batch, events are in order"
    assert first[0] != stream[:16]
    spread = np.array([stream.index(event) for event in first[0]])
    assert spread.max() > 40, "a batch has events of the whole window"


def test_batches_of_shuffled_events_hold_their_values():
    tables = [nullable_table(30, seed=k) for k in range(3)]
    assembler = BatchAssembler(NULLABLE_LAYOUT, 7, ShuffleWindow(40, 5))
    for k, table in enumerate(tables):
        assembler.add(decode(table, NULLABLE_LAYOUT, str(k)), k, 30 * k)
    assembler.finish()
    while assembler.ready:
        batch = assembler.take()
        events = [(span.key, row) for span in batch.spans for row in np.arange(30)[span.events]]
        in_order = [take_events(decode(tables[int(key)], NULLABLE_LAYOUT, key), np.array([row])) for key, row in events]
        (again,) = make_batches(in_order, NULLABLE_LAYOUT, batch_rows=7)
        assert again.ids.ids.tolist() == batch.ids.ids.tolist()
        assert again.ids.offsets.tolist() == batch.ids.offsets.tolist()
        assert again.ids.weights.tolist() == batch.ids.weights.tolist()
        assert again.labels.tolist() == batch.labels.tolist()


def test_a_window_must_have_events():
    for wrong in ({"rows": 0}, {"rows": 5, "drawn": 5}, {"rows": 5, "seed": -1}):
        with pytest.raises(ConfigError, match="window of shuffled events"):
            ShuffleWindow(**wrong)
