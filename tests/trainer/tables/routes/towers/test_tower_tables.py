"""The tower transform gives the bits of the flat exchange."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.towers.grouped_threads import on_workers
from tests.trainer.tables.routes.towers.tower_cases import (
    FEATURES,
    gradients_of,
    placements,
    steps,
    tower_plans,
    train_flat,
    train_towers,
)
from tests.trainer.tables.test_engine import batch_of
from trainer.errors import BadBatch, ConfigError, NonFiniteLoss
from trainer.tables import CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.optimizers import SGD
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.towers.counted_exchange import TowerExchanges
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.routes.towers.tower_tables import TowerTables
from trainer.tables.spec import Quantization


def same_states(one, other):
    assert sorted(one) == sorted(other)
    for name, table in one.items():
        for part in ("rows", "weights", "slots"):
            assert getattr(table, part).tobytes() == getattr(other[name], part).tobytes(), (name, part)


@pytest.mark.slow
@settings(max_examples=scaled(60))
@given(st.data(), placements(), st.booleans())
def test_activations_and_states_have_the_bits_of_the_flat_exchange(data, placement, is_swapped):
    trained, plans = data.draw(steps(placement.workers)), data.draw(tower_plans(placement))
    flat, states = train_flat(placement, trained)
    found, own = train_towers(placement, trained, plans, is_swapped=is_swapped)
    assert [[one.tobytes() for one in of_worker] for of_worker in found] == flat
    same_states(own, states)


@settings(max_examples=scaled(20))
@given(st.data(), placements(), st.booleans())
def test_shared_requests_and_sums_differ_by_rounding_only(data, placement, may_send_sums):
    trained, plans = data.draw(steps(placement.workers)), data.draw(tower_plans(placement))
    flat, states = train_flat(placement, trained)
    ways = {"is_deterministic": False, "may_send_sums": may_send_sums}
    found, own = train_towers(placement, trained, plans, **ways)
    again, repeated = train_towers(placement, trained, plans, **ways)
    same_states(own, repeated)
    for mine, same, other in zip(found, again, flat, strict=True):
        assert mine[0].tobytes() == same[0].tobytes()
        if not may_send_sums and all(one.weights is None for one in trained[0]):
            assert mine[0].tobytes() == other[0]
        np.testing.assert_allclose(mine[0].reshape(-1), np.frombuffer(other[0], np.float32), rtol=1e-5, atol=1e-6)
    for name, state in states.items():
        assert np.array_equal(own[name].rows, state.rows)
        np.testing.assert_allclose(own[name].weights, state.weights, rtol=1e-3, atol=1e-3)


@settings(max_examples=scaled(15))
@given(st.data(), placements())
def test_a_state_of_one_process_goes_on_in_towers(data, placement):
    """A checkpoint is that of any exchange: tables of one engine are loaded by the workers of towers."""
    engine = CpuEngine(FEATURES, seed=3)
    for step, (batch,) in enumerate(data.draw(steps(1))):
        engine.apply_gradients(batch, gradients_of(step, 0, batch.rows, engine.width))
    whole, (batches,) = engine.state(), data.draw(steps(placement.workers).map(lambda found: found[:1]))

    def work(rank, exchanges, sent):
        tables = TowerTables(FEATURES, seed=3, placement=placement, rank=rank, exchanges=exchanges, threads=1)
        tables.rows.load_state({one.name: whole[one.name] for one in tables.rows.tables})
        return tables.lookup(batches[rank])

    for found, batch in zip(on_workers(placement, work), batches, strict=True):
        assert found.tobytes() == engine.lookup(batch).tobytes()


def test_statistics_are_those_of_the_flat_exchange():
    placement = TowerPlacement(2, 2, (("a", "c", "d"), ("b", "e", "f")))
    batches = [batch_of([[[rank, 1], [2]]] * 5 + [[[0, 1], [2]]]) for rank in range(4)]

    def work(rank, exchanges, sent):
        tables = TowerTables(FEATURES, seed=3, placement=placement, rank=rank, exchanges=exchanges)
        flat = ShardedTables(FEATURES, seed=3, exchange=exchanges.world)
        for one in (tables, flat):
            one.lookup(batches[rank])
            one.apply_gradients(batches[rank], gradients_of(0, rank, 2, one.width))
        return tables.statistics(), flat.statistics()

    for by_towers, flat in on_workers(placement, work):
        assert by_towers == flat


def _sent(bags: int, is_flat: bool, **options) -> list:
    """What workers of 4 hosts x 2 send in a step of long bags of a large table each."""
    features = tuple(FeatureSpec(name, TableSpec(name, 100_000, 16, SGD(0.1), "sum")) for name in "abcd")
    placement = TowerPlacement(4, 2, (("a",), ("b",), ("c",), ("d",)))

    def work(rank, exchanges, sent):
        random = np.random.default_rng(rank)
        ids = random.integers(0, 100_000, 4 * 8 * bags).astype(np.int32)
        batch = IdBatch(ids, np.arange(4)[:, None] * 8 * bags + np.arange(9)[None] * bags)
        own = (
            {"exchange": exchanges.world}
            if is_flat
            else {"placement": placement, "rank": rank, "exchanges": exchanges, **options}
        )
        tables = (ShardedTables if is_flat else TowerTables)(features, seed=1, threads=1, **own)
        tables.apply_gradients(batch, np.ones_like(tables.lookup(batch)))
        return sent

    return on_workers(placement, work)


def test_combined_bags_move_between_hosts():
    """Of bags of 20 rows a combined one moves, and its gradient; messages go to 3 peers in place of 6 workers of other hosts."""
    flat, towers = _sent(20, True), _sent(20, False)
    outputs = 3 * 8 * 16 * 4  # of 8 events of a worker of each other host
    assert [one.between_hosts for one in towers] == [2 * outputs + 3 * 8 * (20 + 1) * 4 + 3 * 2 * 4] * 8
    assert min(one.between_hosts for one in flat) > 8 * towers[0].between_hosts
    assert [
        (one.messages_between_hosts, other.messages_between_hosts) for one, other in zip(flat, towers, strict=True)
    ] == [(18, 9)] * 8
    assert min(one.inside_hosts for one in towers) > max(one.inside_hosts for one in flat)
    swapped = _sent(20, False, is_swapped=True)
    assert sum(one.inside_hosts for one in swapped) < sum(one.inside_hosts for one in towers)
    assert sum(one.between_hosts for one in swapped) > sum(one.between_hosts for one in towers)


WAYS: dict[str, dict[str, bool]] = {"rows": {}, "swapped": {"is_swapped": True}, "bags": {"may_send_rows": False}}


def _short_bags(*, is_flat: bool, **options) -> list:
    """Two steps of bags of one id, many of them equal; of a sequence, of bags that share its table, and of long bags."""
    table, dims = TableSpec("shared", 40, 4, SGD(0.1), "mean", quantization=Quantization(64, -1.0, 1.0)), (4, 8)
    features = (FeatureSpec("a", table), FeatureSpec("b", table, max_sequence_length=3),
                *(FeatureSpec(name, TableSpec(name, 500, dim, SGD(0.1), "sqrtn")) for name, dim in zip("cd", dims, strict=True)))  # fmt: skip
    placement = TowerPlacement(2, 2, (("a", "b", "c"), ("d",)))
    longest = {"a": 1, "b": 5, "c": 1, "d": 9}

    def work(rank, exchanges, sent):
        own = (
            {"exchange": exchanges.world}
            if is_flat
            else {"placement": placement, "rank": rank, "exchanges": exchanges, **options}
        )
        tables, found = (ShardedTables if is_flat else TowerTables)(features, seed=1, threads=1, **own), []
        for step in range(2):
            random = np.random.default_rng((rank, step))
            batch = batch_of([[random.integers(0, 40, random.integers(0, longest[one.name] + 1)).tolist() for _ in range(30)] for one in features])  # fmt: skip
            if step:
                batch = replace(batch, weights=random.random(len(batch.ids), np.float32))
            found.append(tables.lookup(batch).tobytes())
            tables.apply_gradients(batch, gradients_of(step, rank, 30, tables.width))
        return found, sent.between_hosts

    return on_workers(placement, work)


def test_rows_move_between_hosts_where_they_are_fewer_bytes_than_bags():
    """With the bits of the flat exchange, also of weighted bags, quantized rows, sequences and rows that features share."""
    flat = _short_bags(is_flat=True)
    by_way = {name: _short_bags(is_flat=False, **options) for name, options in WAYS.items()}
    for name, found in by_way.items():
        assert [one for one, _ in found] == [one for one, _ in flat], name
    rows, bags = (sum(sent for _, sent in by_way[name]) for name in ("rows", "bags"))
    assert rows < 0.8 * bags


def test_two_batches_are_looked_up_before_their_updates():
    placement = TowerPlacement(2, 1, (("a", "c", "d"), ("b", "e", "f")))
    batches = [[batch_of([[[k, rank]]] * 6) for rank in range(2)] for k in (0, 1)]

    def work(rank, exchanges, sent):
        tables = TowerTables(FEATURES, seed=3, placement=placement, rank=rank, exchanges=exchanges)
        flat = ShardedTables(FEATURES, seed=3, exchange=exchanges.world)
        for one in (tables, flat):
            for of_step in batches:
                one.lookup(of_step[rank])
            for step, of_step in enumerate(batches):
                one.apply_gradients(of_step[rank], gradients_of(step, rank, 1, one.width))
        return tables.lookup(batches[0][rank]), flat.lookup(batches[0][rank])

    for found, expected in on_workers(placement, work):
        assert found.tobytes() == expected.tobytes()


def test_what_does_not_fit_is_refused_before_anything_is_exchanged():
    placement = TowerPlacement(1, 1, (("a", "b", "c", "d", "e", "f"),))

    def work(rank, exchanges, sent):
        def made(**options):
            given = {"placement": placement, "rank": rank, "exchanges": exchanges, **options}
            return TowerTables(FEATURES, seed=3, **given)

        tables, batch = made(), batch_of([[[0]]] * 6)
        with pytest.raises(BadBatch, match="must be looked up before its update"):
            tables.apply_gradients(batch, np.zeros((1, tables.width), np.float32))
        found = tables.lookup(batch)
        with pytest.raises(BadBatch, match="must have the shape"):
            tables.apply_gradients(batch, found[:, 1:])
        found[0, 4] = np.nan
        with pytest.raises(NonFiniteLoss, match="gradient is NaN") as caught:
            tables.apply_gradients(batch, found)
        assert caught.value.where == "feature b, event 0 of the batch"
        with pytest.raises(BadBatch):
            tables.lookup(batch_of([[[99]]] * 6))
        for options in ({"is_deterministic": False}, {"exchanges": TowerExchanges(exchanges.peers, exchanges.group)}):
            with pytest.raises(ConfigError, match="swapped lookup must be deterministic"):
                made(is_swapped=True, **options)
        with pytest.raises(ConfigError, match="must have the rank of its worker"):
            made(placement=TowerPlacement(2, 1, placement.towers))
        with pytest.raises(ConfigError, match="must be those of the towers' modules"):
            made(output_widths=(3,))

    on_workers(placement, work)
