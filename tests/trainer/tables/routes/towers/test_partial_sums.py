"""Owners add their rows of long bags: fewer bytes inside a tower, and the results of rows up to the order of sums."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.towers.grouped_threads import on_workers
from tests.trainer.tables.routes.towers.tower_cases import gradients_of
from tests.trainer.tables.test_engine import batch_of
from trainer.options.pruning import PruningOptions
from trainer.tables import SGD, Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.core_store import store_of
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.bag_shards import bags_of_owners
from trainer.tables.routes.towers.partial_sums import PartialSums
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.routes.towers.sent_forms import TableUse, summed_by_owners
from trainer.tables.routes.towers.tower_tables import TowerTables
from trainer.tables.spec import Quantization, tables_of
from trainer.tables.stores.hashed.limits import TableLimits
from transforms.errors import DataError

ROWS, EVENTS = 400, 6
FEATURES = (
    FeatureSpec("a", TableSpec("one", ROWS, 8, Adagrad(0.1, 0.1), "mean")),
    FeatureSpec("b", TableSpec("two", ROWS, 4, SGD(0.1), "sum", quantization=Quantization(32, -1.0, 1.0))),
    FeatureSpec("c", TableSpec("three", ROWS, 8, SGD(0.1), "sqrtn")),
    FeatureSpec("d", TableSpec("four", ROWS, 4, SGD(0.1), "sum"), max_sequence_length=3),
)
#: Pruned tables are not quantized; and a rounded value may have another of few levels.
PLAIN = [replace(one, table=replace(one.table, quantization=None)) for one in FEATURES]
PLACEMENT = TowerPlacement(2, 2, (("a", "b"), ("c", "d")))
KINDS = {
    "plain": {},
    "hashed": {"hashed": {"one": TableLimits(ROWS)}},
    "pruned": {"pruning": PruningOptions.read({"budget": 0.95})},
    "rounded": {"values": "fp16"},
}


def long_bags(rank: int, step: int, is_weighted: bool) -> IdBatch:
    """Bags of up to 40 ids; the last worker of a step has no events."""
    random = np.random.default_rng((rank, step))
    events = 0 if rank == 3 else EVENTS
    batch = batch_of([[random.integers(0, ROWS, random.integers(0, 41)).tolist() for _ in range(events)] for _ in FEATURES])  # fmt: skip
    return replace(batch, weights=random.random(len(batch.ids), np.float32) + 0.1) if is_weighted else batch


def train(is_weighted: bool, **options):
    """The outputs of each worker's steps, and the bytes that all have sent inside hosts."""

    def work(rank, exchanges, sent):
        features = PLAIN if {"pruning", "values"} & options.keys() else FEATURES
        tables, found = TowerTables(features, seed=3, placement=PLACEMENT, rank=rank, exchanges=exchanges, threads=1, **options), []  # fmt: skip
        for step in range(3):
            batch = long_bags(rank, step, is_weighted)
            found.append(tables.lookup(batch).copy())
            tables.apply_gradients(batch, gradients_of(step, rank, batch.rows, tables.width))
        return found, sent.inside_hosts

    results = on_workers(PLACEMENT, work)
    return [found for found, _ in results], sum(sent for _, sent in results)


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_sums_are_fewer_bytes_and_near_those_of_rows(kind, is_weighted):
    """Long bags of means, quantized rows and roots; the rows of a sequence move as they are. Equal trainings give equal bits."""
    sums, fewer = train(is_weighted, is_deterministic=False, **KINDS[kind])
    again, _ = train(is_weighted, is_deterministic=False, **KINDS[kind])
    rows, more = train(is_weighted, is_deterministic=False, may_send_sums=False, **KINDS[kind])
    exact, most = train(is_weighted, **KINDS[kind])
    assert fewer < 0.8 * more <= 0.8 * most
    close = {"rtol": 0.02, "atol": 0.03} if kind == "rounded" else {"rtol": 1e-4, "atol": 1e-5}
    for of_sums, same, of_rows, of_bits in zip(sums, again, rows, exact, strict=True):
        for one, other, row, bit in zip(of_sums, same, of_rows, of_bits, strict=True):
            assert one.tobytes() == other.tobytes()
            np.testing.assert_allclose(one, row, **close)
            np.testing.assert_allclose(one, bit, **close)


@settings(max_examples=scaled(50))
@given(st.lists(st.lists(st.integers(0, 60), max_size=5), max_size=6), st.integers(1, 5), st.booleans())
def test_bags_are_divided_among_the_owners_of_their_rows(bags, owners, has_shares):
    batch = batch_of([bags]) if bags else IdBatch(np.zeros(0, np.int64), np.zeros((1, 1), np.int64))
    shares = np.random.default_rng(0).random(len(batch.ids), np.float32) if has_shares else None
    divided = bags_of_owners(batch.ids, batch.offsets, shares, owners)
    assert len(divided) == owners
    for owner, (rows, lengths, own) in enumerate(divided):
        expected = [[one // owners for one in bag if one % owners == owner] for bag in bags]
        assert lengths.tolist() == [len(one) for one in expected]
        assert rows.tolist() == [row for bag in expected for row in bag]
        assert (own is None) == (shares is None)
        if shares is not None and own is not None:
            assert own.tolist() == shares[batch.ids % owners == owner].tolist()


@pytest.mark.parametrize(
    ("ids", "distinct", "bags", "owners", "expected"),
    [
        (20 * 256, 1900, 256, 2, True),
        (20 * 256, 1900, 256, 4, True),
        (20 * 256, 1900, 256, 16, False),  # a sum from each of 15 others
        (256, 181, 256, 2, False),
        (0, 0, 256, 2, False),
    ],
)
def test_owners_add_where_bags_are_long_and_owners_few(ids, distinct, bags, owners, expected):
    use = TableUse(*(np.array([one], np.int64) for one in (ids, distinct, bags, bags * 32, 32)))
    assert summed_by_owners(use, owners=owners, has_weights=False, flag=0).tolist() == [expected]


def _sums() -> PartialSums:
    parts = TableParts(tables_of(FEATURES), 2, None)
    second = SimpleNamespace(rank=1, hosts=2)  # nothing is exchanged
    store = store_of(parts, second, seed=3, threads=1, pruning=None, hashed={}, hash_prefix="")
    shards = [part.shard(1)[0] for part in parts.parts]
    return PartialSums(FEATURES, shards, owners=2, seed=3, hashed=[], store=store, team=Team(1), flag=0)


_ARRAYS = st.builds(
    lambda values, dtype, shape: np.array(values).astype(dtype).reshape(shape),
    st.lists(st.integers(-2, 3) | st.integers(190, 300), max_size=6),
    st.sampled_from([np.int64, np.int32, np.float32]),
    st.sampled_from([(-1,), (1, -1)]),
)


@settings(max_examples=scaled(300))
@given(st.lists(_ARRAYS, max_size=5), st.booleans())
def test_any_message_is_a_request_for_sums_or_is_refused(message, is_near):
    sums = _sums()
    if is_near and len(message) > 2:
        message[:3] = [message[k].astype(kind).ravel() for k, kind in enumerate((np.int64, np.int32, np.int32))]
    try:
        found = sums.received(message, "worker 1")
    except DataError:
        event("refused")
        return
    events = found.requests.batch.rows
    assert sums.sums(found).shape == (events * len(found.columns),)
    with pytest.raises(DataError, match="must hold the values that were asked for"):
        sums.update(found, [np.zeros(events * len(found.columns) + 1, np.float32)], "worker 1")
