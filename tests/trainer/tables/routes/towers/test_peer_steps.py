"""Messages of bags, and each step of the tower transform alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.towers.grouped_threads import on_workers
from tests.trainer.tables.routes.towers.tower_cases import FEATURES, worker_batches
from tests.trainer.tables.test_engine import batch_of
from trainer.tables import SGD, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.towers.peer_messages import (
    TowerPart,
    bags_of,
    from_message,
    join_events,
    joined_batch,
    to_message,
)
from trainer.tables.routes.towers.peer_steps import permute_indices, return_gradients, send_outputs
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.routes.towers.tower_layout import AS_BAGS, TowerLayout
from trainer.tables.routes.towers.tower_module import sum_in_tower
from trainer.tables.routes.towers.tower_rows import TowerRows, split_asked
from transforms.errors import DataError


def same(one: IdBatch, other: IdBatch) -> None:
    assert np.array_equal(one.ids, other.ids)
    assert one.ids.dtype == other.ids.dtype
    assert np.array_equal(one.offsets, other.offsets)
    assert (one.weights is None) == (other.weights is None)
    assert one.weights is None or np.array_equal(one.weights, other.weights)


def layout_of(chosen) -> TowerLayout:
    return TowerLayout([FEATURES[f] for f in chosen])


@settings(max_examples=scaled(100))
@given(st.booleans().flatmap(worker_batches), st.permutations(range(6)), st.integers(1, 6))
def test_bags_return_from_a_message(batch, order, count):
    chosen = sorted(order[:count])
    part, layout = bags_of(batch, chosen), layout_of(chosen)
    for k, f in enumerate(chosen):
        for b in range(batch.rows):
            bag = batch.ids[batch.offsets[f, b] : batch.offsets[f, b + 1]]
            assert np.array_equal(part.ids[part.offsets[k, b] : part.offsets[k, b + 1]], bag)
    message = to_message(TowerPart(part, layout.all_bags()), layout)
    found = from_message(message, layout, "host 1")
    same(found.batch, part)
    assert (found.rows == AS_BAGS).all()


@st.composite
def folded(draw: st.DrawFn) -> tuple[TowerLayout, int, np.ndarray]:
    """A tower, the events of a worker, and the rows by which each table is sent."""
    layout, events = layout_of(sorted(draw(st.sets(st.integers(0, 5), min_size=1)))), draw(st.integers(0, 4))
    rows = [draw(st.integers(AS_BAGS, most)) for most in layout.places(events).tolist()]
    return layout, events, np.array(rows, np.int64)


@settings(max_examples=scaled(200))
@given(folded(), st.booleans())
def test_rows_are_folded_into_the_places_of_bags(case, is_weighted):
    """Each distinct row once, in its order; a message has as many values as there are rows, and all return to their places."""
    layout, events, rows = case
    lengths = layout.folded_lengths(rows, events)
    of_tables = [np.arange(max(count, 0), dtype=np.int64) for count in rows]
    ids = layout.folded_ids(rows, events, of_tables)
    assert [len(one) for one in ids] == lengths.sum(axis=1).tolist()
    for t, count in enumerate(rows):
        of_table = np.concatenate([one for one, own in zip(ids, layout.table_of, strict=True) if own == t])
        assert of_table.tolist() == list(range(max(count, 0)))
    weights = [np.ones(len(one), np.float32) for one in ids] if is_weighted else None
    part = TowerPart(joined_batch(ids, lengths, weights, layout.bounds), rows)
    fits = all(rows[t] <= one.vocabulary_size for t, one in enumerate(layout.tables))
    message = to_message(part, layout)
    if fits:
        found = from_message(message, layout, "host 1")
        same(found.batch, part.batch)
        assert np.array_equal(found.rows, rows)
    values = np.random.default_rng(events).random(layout.floats(rows, events), np.float32)
    activations = layout.unpack(values, rows, events)
    assert layout.pack(activations, rows).tobytes() == values.tobytes()
    assert activations.shape == (events, layout.width)


@settings(max_examples=scaled(50))
@given(st.booleans().flatmap(lambda weighted: st.lists(worker_batches(weighted), min_size=1, max_size=4)))
def test_joined_events_are_those_of_each_batch(batches):
    joined, at = join_events(batches), 0
    assert joined.rows == sum(one.rows for one in batches)
    for one in batches:
        for f in range(6):
            for b in range(one.rows):
                own = slice(one.offsets[f, b], one.offsets[f, b + 1])
                found = slice(joined.offsets[f, at + b], joined.offsets[f, at + b + 1])
                assert np.array_equal(joined.ids[found], one.ids[own])
                assert one.weights is None or np.array_equal(joined.weights[found], one.weights[own])
        at += one.rows


_ARRAYS = st.builds(
    lambda values, dtype, shape: np.array(values).astype(dtype).reshape(shape),
    st.lists(st.integers(-3, 12), max_size=6),
    st.sampled_from([np.int32, np.int64, np.float32, np.uint8]),
    st.sampled_from([(-1,), (1, -1)]),
)


@settings(max_examples=scaled(300))
@given(st.lists(_ARRAYS, max_size=5), st.integers(1, 3), st.booleans())
def test_any_message_is_a_part_or_is_refused(message, features, is_near):
    layout = TowerLayout([FeatureSpec(f"f{k}", TableSpec(f"t{k}", 5, 2, SGD(0.1))) for k in range(features)])
    if is_near and len(message) > 2:
        message[:3] = message[0].astype(np.int64).ravel(), message[1].astype(np.int32).ravel(), message[2].astype(np.int32).ravel()  # fmt: skip
    try:
        found = from_message(message, layout, "host 3")
    except DataError:
        event("refused")
    else:
        assert found.batch.offsets.shape[0] == features
        assert found.batch.offsets[-1, -1] == len(found.batch.ids)
        assert not len(found.batch.ids) or 0 <= found.batch.ids.min() <= found.batch.ids.max() < 5


@settings(max_examples=scaled(200))
@given(st.lists(_ARRAYS, max_size=3), st.integers(1, 3))
def test_any_request_is_split_or_is_refused(message, parts):
    try:
        found = split_asked(message, parts, "worker 2")
    except DataError:
        event("refused")
    else:
        assert sum(len(rows) for rows, _ in found) == len(message[0])
        assert all(len(rows) == counts.sum() and len(counts) == parts for rows, counts in found)


PLACEMENT = TowerPlacement(3, 2, (("a",), ("b",)), ((1,), (0, 2)))
LAYOUTS = [TowerLayout([FeatureSpec(name, TableSpec(name, 99, 1, SGD(0.1)))]) for name in "ab"]


def test_indices_go_to_the_peer_in_each_tower():
    """Hosts 0 and 2 share the tower of b: host 1's bags of it go to host 0."""

    def work(rank, exchanges, sent):
        batches = [batch_of([[[rank]]]), batch_of([[[rank + 10]]])]
        parts = [TowerPart(one, layout.all_bags()) for one, layout in zip(batches, LAYOUTS, strict=True)]
        return [one.batch.ids.tolist() for one in permute_indices(exchanges.peers, PLACEMENT, parts, LAYOUTS)]

    found = on_workers(PLACEMENT, work)
    assert found[0] == [[10], [12]]
    assert found[2] == [[0], [2], [4]]
    assert found[5] == [[15]]


def test_outputs_return_to_the_workers_of_the_events():
    def work(rank, exchanges, sent):
        host = PLACEMENT.host_of(rank)
        sources, width = PLACEMENT.sources_of(host), 2 - PLACEMENT.tower_of(host)
        outputs = [np.full(width, 10 * host + source, np.float32) for source in sources]
        found = send_outputs(exchanges.peers, PLACEMENT, outputs, (2, 1))
        back = return_gradients(exchanges.peers, PLACEMENT, found, [width] * len(sources))
        return [one.tolist() for one in found], [one.tolist() for one in back]

    for rank, (found, back) in enumerate(on_workers(PLACEMENT, work)):
        host = PLACEMENT.host_of(rank)
        assert found == [[10.0 + host] * 2, [10.0 * PLACEMENT.peer_host(1, host) + host]]
        assert [one[0] for one in back] == [10.0 * host + source for source in PLACEMENT.sources_of(host)]


def test_rows_are_shuffled_inside_a_tower():
    """Steps b, c and d of one worker, which has all rows."""
    rows = TowerRows(FEATURES, seed=3, exchange=OneHost())
    batches = [batch_of([[[1, 2]]] * 6), batch_of([[[2]], [[], []], [[1]], [[]], [[]], [[]]][:1] + [[[0]]] * 5)]
    units = [rows.prepare(one).requests for one in batches]
    asked = rows.shuffle_requests(units)
    assert [[len(one) for one, _ in of_worker] for of_worker in asked] == [[10, 6]]
    found = rows.shuffle_rows(units, rows.read(asked))
    for batch, one in zip(batches, found, strict=True):
        assert rows.combine(one).tobytes() == rows.lookup(batch).tobytes()
    with pytest.raises(DataError, match="must hold the values that were asked for"):
        rows.shuffle_rows(units, [[np.zeros(1, np.float32)]])


def test_gradients_are_summed_inside_the_tower():
    placement = TowerPlacement(2, 3, (("a",), ("b",)))

    def work(rank, exchanges, sent):
        own = np.random.default_rng(rank).normal(size=7).astype(np.float32)
        return own, sum_in_tower(exchanges.group, own), sent

    results = on_workers(placement, work)
    for t in range(2):
        members = [results[rank] for rank in placement.group_of(t)]
        expected = np.zeros(7, np.float32)
        for own, _, _ in members:
            expected += own
        assert {found.tobytes() for _, found, _ in members} == {expected.tobytes()}
        assert all(sent.between_hosts == 0 for _, _, sent in members)
    short = on_workers(placement, lambda rank, exchanges, sent: sum_in_tower(exchanges.group, np.ones(1, np.float32)))
    assert [one.tolist() for one in short] == [[3.0]] * 6
