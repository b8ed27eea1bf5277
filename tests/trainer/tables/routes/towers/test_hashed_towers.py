"""Hashed tables by the tower transform have the bits of the flat exchange, where as many workers divide their ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.trainer.tables.routes.servers.random_batches import gradients_of
from tests.trainer.tables.routes.servers.test_hashed_servers import FEATURES as UNBOUNDED
from tests.trainer.tables.routes.servers.test_hashed_servers import LIMITS as UNBOUNDED_LIMITS
from tests.trainer.tables.routes.servers.test_hashed_servers import SEED, batch_of
from tests.trainer.tables.routes.towers.grouped_threads import on_workers
from tests.trainer.tables.stores.pruned.test_pruned_engine import popular_batch
from trainer.errors import ConfigError
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import cyclic_plan
from trainer.tables import Adagrad, Adam, FeatureSpec, IdBatch, TableSpec
from trainer.tables.engine import TableState
from trainer.tables.hashed_counts import NO_COUNTS, sum_counts
from trainer.tables.routes.partitioned.core_store import store_of
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.placement import TowerPlacement, tower_partition
from trainer.tables.routes.towers.tower_tables import TowerTables
from trainer.tables.spec import tables_of
from trainer.tables.stores.hashed.limits import TableLimits

FEATURES = (
    FeatureSpec("user", TableSpec("user", 5000, 4, Adagrad(0.1, 0.25), "sum")),
    FeatureSpec("place", TableSpec("place", 60, 4, Adagrad(0.1, 0.25), "mean")),
    FeatureSpec("words", TableSpec("words", 4000, 3, Adam(0.1), "mean")),
    FeatureSpec("city", TableSpec("city", 70, 4, Adagrad(0.1, 0.25), "sum")),
)
LIMITS = {
    "user": TableLimits(24, expire_after_steps=9),
    "words": TableLimits(18, admit_after=2, candidates=32, candidate_steps=50),
}
TABLES = tables_of(FEATURES)
#: The first tower has two hosts.
PLACEMENT = TowerPlacement(3, 1, (("user", "city"), ("place", "words")), ((0, 2), (1,)))
PRUNING = PruningOptions.read({"budget": 0.4, "round_steps": 3})
KINDS = [{"hashed": LIMITS}, {"hashed": LIMITS, "pruning": PRUNING}]


def batches(seed: int, steps: int = 25) -> list[list[IdBatch]]:
    """For each step a batch for each worker, whose popular ids change."""
    return [[popular_batch(seed + 100 * k + rank, 6, FEATURES, shift=k) for rank in range(3)] for k in range(steps)]


def train(tables: Any, trained: list[list[IdBatch]], rank: int, first: int = 0) -> list[bytes]:
    found = []
    for step, of_workers in enumerate(trained, first):
        found.append(tables.lookup(of_workers[rank]).tobytes())
        tables.apply_gradients(of_workers[rank], gradients_of(of_workers[rank], tables.width, step))
    return found


def by_towers(rank, exchanges, placement=PLACEMENT, features=FEATURES, **options) -> TowerTables:
    return TowerTables(features, seed=SEED, placement=placement, rank=rank, exchanges=exchanges, threads=1, **options)


def bytes_of(state: TableState) -> dict[str, bytes]:
    """What a table has on a worker."""
    found = {column: getattr(state, column).tobytes() for column in ("rows", "weights", "slots")}
    found |= {name: array.tobytes() for name, array in state.sections.arrays.items()}
    return found | {name: one.weights.tobytes() for name, one in state.sections.by_rows.items()}


@pytest.mark.parametrize("kinds", KINDS, ids=["hashed", "mixed"])
def test_the_bits_are_those_of_the_flat_exchange_by_the_plan_of_the_towers(kinds):
    """A worker of a tower has its share of the capacity of the tower's tables."""
    trained, plan = batches(1), tower_partition(FEATURES, PLACEMENT)
    parts = TableParts(TABLES, 3, plan)
    shares = {name: one.divided(len(plan.of_table(name).slices[0].cores), name) for name, one in LIMITS.items()}

    def work(rank, exchanges, sent):
        store = store_of(
            parts, exchanges.world, seed=SEED, threads=1, pruning=kinds.get("pruning"), hashed=shares, hash_prefix=""
        )
        flat = ShardedTables(FEATURES, seed=SEED, exchange=exchanges.world, parts=parts, threads=1, store=store)
        towers = by_towers(rank, exchanges, **kinds)
        assert train(towers, trained, rank) == train(flat, trained, rank)
        for p in towers.rows.held_parts:
            table = towers.rows.parts.parts[p].table.name
            whole = [one.name for one in TABLES].index(table)
            assert bytes_of(towers.rows.part_state(p)) == bytes_of(flat.part_state(whole)), table
        return towers.hashed_counts, flat.hashed_counts

    counts = on_workers(PLACEMENT, work)
    total = sum_counts(own for own, _ in counts)
    assert total["user"].capacity == 24
    assert total["words"].capacity == 18
    assert all(one.evicted + one.expired for one in total.values())
    assert total["words"].unadmitted
    for rank, (own, flat) in enumerate(counts):
        here = "words" if rank == 1 else "user"
        assert own[here] == flat[here]
        assert [own[name] for name in LIMITS if name != here] == [NO_COUNTS]


def test_one_tower_of_all_features_is_the_flat_exchange():
    """Ids of the whole range of numbers, also in a message that an owner is asked by directly."""
    placement = TowerPlacement(2, 1, (tuple(one.name for one in UNBOUNDED),))
    trained = [[batch_of(100 * rank + seed) for rank in range(2)] for seed in range(30)]

    def work(rank, exchanges, sent):
        flat = ShardedTables(UNBOUNDED, seed=SEED, exchange=exchanges.world, hashed=UNBOUNDED_LIMITS, threads=1)
        expected = train(flat, trained, rank)
        for is_swapped in (False, True):
            towers = by_towers(rank, exchanges, placement, UNBOUNDED, hashed=UNBOUNDED_LIMITS, is_swapped=is_swapped)
            assert train(towers, trained, rank) == expected
            found, whole = towers.state(), flat.state()
            assert {name: bytes_of(one) for name, one in found.items()} == {
                name: bytes_of(one) for name, one in whole.items()
            }
            assert towers.hashed_counts == flat.hashed_counts

    on_workers(placement, work)


@pytest.mark.parametrize("kinds", KINDS, ids=["hashed", "mixed"])
def test_workers_go_on_from_their_parts_as_if_they_had_not_stopped(kinds):
    first, then = batches(1), batches(5000)

    def work(rank, exchanges, sent):
        towers = by_towers(rank, exchanges, **kinds)
        train(towers, first, rank)
        saved = {p: towers.rows.part_state(p) for p in towers.rows.held_parts}
        again = by_towers(rank, exchanges, **kinds)
        again.rows.load_parts(saved)
        assert train(again, then, rank, len(first)) == train(towers, then, rank, len(first))
        for p in towers.rows.held_parts:
            assert bytes_of(again.rows.part_state(p)) == bytes_of(towers.rows.part_state(p))

    on_workers(PLACEMENT, work)


def test_shared_requests_give_equal_bits_again():
    """Of equal runs; rows by id are those of separate requests while all ids have places."""
    trained, room = batches(1, 8), {"user": TableLimits(4000), "words": TableLimits(4000)}

    def work(rank, exchanges, sent):
        once, again = (by_towers(rank, exchanges, hashed=room, is_deterministic=False) for _ in range(2))
        apart = by_towers(rank, exchanges, hashed=room)
        assert train(once, trained, rank) == train(again, trained, rank)
        train(apart, trained, rank)
        for name, one in once.state().items():
            assert bytes_of(one) == bytes_of(again.state()[name])
            assert one.rows.tobytes() == apart.state()[name].rows.tobytes()
            np.testing.assert_allclose(one.weights, apart.state()[name].weights, rtol=1e-3, atol=1e-3)

    on_workers(PLACEMENT, work)


def test_other_names_plans_and_too_few_places_are_refused():
    def work(rank, exchanges, sent):
        with pytest.raises(ConfigError, match="a hashed table must be one of the engine's"):
            by_towers(rank, exchanges, hashed={"item": TableLimits(9)})
        own = [one for one in TABLES if one.name in ("user", "city")]
        plan = cyclic_plan([(one.name, one.vocabulary_size, one.dim) for one in own], 2)
        with pytest.raises(ConfigError, match="hashed tables must be placed without a plan"):
            by_towers(rank, exchanges, hashed=LIMITS, plans=(plan, None))
        with pytest.raises(ConfigError, match="a hashed table must have a place on each server or host"):
            by_towers(rank, exchanges, hashed={**LIMITS, "user": TableLimits(1)})
        by_towers(rank, exchanges, hashed={**LIMITS, "words": TableLimits(1)})
        all_hashed = {**LIMITS, "city": TableLimits(70)}
        tables = by_towers(rank, exchanges, hashed=all_hashed, pruning=replace(PRUNING, budget=0.5))
        assert tables.rows.store.needs_lookups == (rank == 1)

    on_workers(PLACEMENT, work)
