"""Pruned tables by the tower transform have the bits of the flat exchange by the plan of the towers, rounds and samples included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.towers.grouped_threads import on_workers
from tests.trainer.tables.stores.pruned.test_pruned_engine import popular_batch, pruned
from trainer.errors import ConfigError
from trainer.options.pruning import PruningOptions
from trainer.tables import FTRL, SGD, Adagrad, Adam, FeatureSpec, IdBatch, RowWiseAdagrad, TableSpec
from trainer.tables.routes.partitioned.pruned_groups import groups_on
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts, join_sections
from trainer.tables.routes.towers.placement import TowerPlacement, tower_partition
from trainer.tables.routes.towers.tower_rows import TowerRows
from trainer.tables.routes.towers.tower_tables import TowerTables
from trainer.tables.spec import tables_of
from trainer.tables.stores.pruned.rows import groups_of
from trainer.tables.stores.pruned.store import PrunedStore
from transforms.errors import DataError

SEED = 3
ADAGRAD = Adagrad(0.1, 0.01)
#: Tables of one group are in several towers, and one has fewer rows than there may be workers.
FEATURES = (
    FeatureSpec("a", one := TableSpec("one", 60, 3, ADAGRAD, "mean")),
    FeatureSpec("b", TableSpec("two", 80, 5, Adam(0.1), "sqrtn")),
    FeatureSpec("c", one, max_sequence_length=2),
    FeatureSpec("d", TableSpec("three", 50, 16, RowWiseAdagrad(0.1), "sum")),
    FeatureSpec("e", TableSpec("four", 40, 1, SGD(0.5), "sum")),
    FeatureSpec("f", TableSpec("five", 70, 3, ADAGRAD, "sum")),
    FeatureSpec("g", TableSpec("six", 64, 5, FTRL(0.1), "sum")),
    FeatureSpec("h", TableSpec("seven", 2, 3, ADAGRAD, "sum")),
)
TABLES = tables_of(FEATURES)
#: Features that share a table are in one tower.
UNITS = (("a", "c"), ("b",), ("d",), ("e",), ("f",), ("g",), ("h",))
BUDGET = 0.4


def options_of(**options: Any) -> PruningOptions:
    return PruningOptions.read({"budget": BUDGET, "crossing_share": 0.05, **options})


@st.composite
def placements(draw: st.DrawFn) -> TowerPlacement:
    """Placements of all features on up to 6 workers, also with towers of several hosts in any order."""
    hosts, workers = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    count = draw(st.integers(1, hosts))
    order = draw(st.permutations(UNITS))
    towers = [list(order[k]) for k in range(count)]
    for unit in order[count:]:
        towers[draw(st.integers(0, count - 1))] += unit
    ranked = draw(st.permutations(range(hosts)))
    of_towers = [[ranked[k]] for k in range(count)]
    for host in ranked[count:]:
        of_towers[draw(st.integers(0, count - 1))].append(host)
    placed = TowerPlacement(hosts, workers, tuple(map(tuple, towers)), tuple(map(tuple, of_towers)))
    try:
        groups_on(parts_of(placed), groups_of(TABLES, options_of()), 0)
    except ConfigError:
        assume(False)  # a worker would have rows and no place
    return placed


def parts_of(placement: TowerPlacement) -> TableParts:
    return TableParts(TABLES, placement.workers, tower_partition(FEATURES, placement))


def popular(placement: TowerPlacement, steps: int, seed: int) -> list[list[IdBatch]]:
    """For each step a batch for each worker, whose popular ids change; some have no events."""
    return [
        [popular_batch(seed + 100 * k + rank, (8, 5, 0)[(k + rank) % 3], FEATURES, shift=3 * k) for rank in range(placement.workers)]
        for k in range(steps)
    ]  # fmt: skip


def gradients_of(step: int, rank: int, rows: int, width: int) -> np.ndarray:
    return np.random.default_rng((step, rank)).normal(size=(rows, width)).astype(np.float32)


def train(tables: ShardedTables | TowerTables, trained: list[list[IdBatch]], rank: int, first: int = 0) -> list[bytes]:
    """The activations of a worker's batches."""
    found = []
    for step, batches in enumerate(trained, first):
        found.append(tables.lookup(batches[rank]).tobytes())
        tables.apply_gradients(batches[rank], gradients_of(step, rank, batches[rank].rows, tables.width))
    return found


def train_flat(
    placement: TowerPlacement, trained: list[list[IdBatch]], options: PruningOptions
) -> tuple[list[list[bytes]], dict[str, Any]]:
    """The activations of each worker by the flat exchange and the plan of the towers, and the states of the tables."""

    def work(rank, exchanges, sent):
        tables = ShardedTables(FEATURES, seed=SEED, exchange=exchanges.world, parts=parts_of(placement), threads=1, pruning=options)  # fmt: skip
        return train(tables, trained, rank), [tables.part_state(p) for p in range(len(TABLES))]

    results = on_workers(placement, work)
    parts = parts_of(placement)
    found = {one.name: _joined(parts, t, [states[t] for _, states in results]) for t, one in enumerate(TABLES)}
    return [activations for activations, _ in results], found


def train_towers(
    placement: TowerPlacement, trained: list[list[IdBatch]], options: PruningOptions, **others: Any
) -> tuple[list[list[bytes]], dict[str, Any], list[TowerRows]]:
    """As :func:`train_flat`, by the tower transform; and the rows of each worker."""

    def work(rank, exchanges, sent):
        tables = TowerTables(FEATURES, seed=SEED, placement=placement, rank=rank, exchanges=exchanges, threads=1, pruning=options, **others)  # fmt: skip
        return train(tables, trained, rank), tables.rows

    results = on_workers(placement, work)
    of_workers = [rows for _, rows in results]
    return [activations for activations, _ in results], states_of(placement, of_workers), of_workers


def states_of(placement: TowerPlacement, of_workers: list[TowerRows]) -> dict[str, Any]:
    """The states of the tables of all towers."""
    states = {}
    for t in range(len(placement.towers)):
        rows = [of_workers[rank] for rank in placement.group_of(t)]
        for k, table in enumerate(rows[0].tables):
            states[table.name] = _joined(rows[0].parts, k, [one.part_state(k) for one in rows])
    return states


def _joined(parts: TableParts, t: int, states: list[Any]) -> tuple[Any, Any]:
    return parts.join(t, [states]), join_sections([one.sections for one in states])


def bytes_of(states: dict[str, Any]) -> dict[str, bytes]:
    """What tables have, by name."""
    found = {}
    for table, (state, sections) in states.items():
        for name, one in (("", state), *sections.by_rows.items()):
            for column in ("rows", "weights", "slots"):
                found[f"{table} {name} {column}"] = getattr(one, column).tobytes()
        found |= {f"{table} {name}": array.tobytes() for name, array in sections.arrays.items()}
    return found


def rounds_of(of_workers: list[TowerRows]) -> list[int]:
    stores = [one.store for one in of_workers]
    assert all(isinstance(one, PrunedStore) for one in stores)
    return [one.rounds for one in stores]


RULES = st.sampled_from([
    {"round_steps": 2}, {"check_steps": 2, "decay_steps": 3, "deviation": 0.1}, {"round_steps": 3, "reset": "restored"},
    {"check_steps": 1, "normalised": True}, {"round_steps": 2, "metric": "gradient", "spare_share": 0.0},
])  # fmt: skip


@pytest.mark.slow
@settings(max_examples=scaled(40))
@given(placements(), RULES, st.booleans(), st.integers(0, 1000))
def test_activations_rounds_and_importance_have_the_bits_of_the_flat_exchange(placement, rules, is_swapped, seed):
    trained, options = popular(placement, 6, seed), options_of(**rules)
    flat, states = train_flat(placement, trained, options)
    found, own, of_workers = train_towers(placement, trained, options, is_swapped=is_swapped)
    assert found == flat
    assert bytes_of(own) == bytes_of(states)
    assert "check_steps" in rules or min(rounds_of(of_workers)) > 1


TWO_TOWERS = TowerPlacement(3, 1, (("a", "c", "d", "h"), ("b", "e", "f", "g")))


@pytest.mark.parametrize("rules", [{"round_steps": 2}, {"check_steps": 2, "deviation": 0.1}])
def test_two_towers_have_the_bits_of_the_flat_exchange(rules):
    """One of two hosts; tables of one group are in both, and rows come and go in rounds."""
    trained, options = popular(TWO_TOWERS, 12, 7), options_of(**rules)
    flat, states = train_flat(TWO_TOWERS, trained, options)
    found, own, of_workers = train_towers(TWO_TOWERS, trained, options)
    assert found == flat
    assert bytes_of(own) == bytes_of(states)
    assert min(rounds_of(of_workers)) > 1
    moved = [one.store.counts.moved_rows for one in of_workers]
    assert min(moved) > 0
    for state, sections in own.values():
        assert (
            len(state.rows) < len(sections.by_rows["importance"].rows) or len(state.rows) == 2
        )  # of the smallest table


@pytest.mark.parametrize("rules", [{"round_steps": 3}, {"round_steps": 2, "reset": "restored"}])
def test_one_worker_is_the_engine_of_one_process(rules):
    """One tower of all features, no two of which share a table."""
    placement, features = (
        TowerPlacement(1, 1, (("b", "d", "e", "f", "g"),)),
        [one for one in FEATURES if one.name in "bdefg"],
    )
    engine = pruned(BUDGET, features=features, **rules)

    def work(rank, exchanges, sent):
        options = PruningOptions.read({"budget": BUDGET, "spare_share": 0.0, "crossing_share": 0.05, **rules})
        tables = TowerTables(
            features, seed=SEED, placement=placement, rank=rank, exchanges=exchanges, threads=1, pruning=options
        )
        for k in range(12):
            batch = popular_batch(k, features=features, shift=k)
            assert tables.lookup(batch).tobytes() == engine.lookup(batch).tobytes()
            gradients = gradients_of(k, 0, batch.rows, engine.width)
            engine.apply_gradients(batch, gradients)
            tables.apply_gradients(batch, gradients)
        return tables.rows

    (rows,) = on_workers(placement, work)
    assert engine.rows.rounds > 3
    assert engine.rows.counts.misses
    expected = {name: (state, state.sections) for name, state in engine.state().items()}
    assert bytes_of(states_of(placement, [rows])) == bytes_of(expected)


def test_shared_requests_count_the_lookups_of_all_sources():
    """By frequency all rows are as important as in the flat exchange; equal runs have equal bits."""
    trained, options = popular(TWO_TOWERS, 6, 5), options_of(metric="frequency", round_steps=2)
    _, states = train_flat(TWO_TOWERS, trained, options)
    _, own, _ = train_towers(TWO_TOWERS, trained, options, is_deterministic=False)
    _, again, _ = train_towers(TWO_TOWERS, trained, options, is_deterministic=False)
    assert bytes_of(own) == bytes_of(again)
    for name, (_, sections) in states.items():
        importance, expected = (one.by_rows["importance"] for one in (own[name][1], sections))
        assert importance.rows.tobytes() == expected.rows.tobytes()
        assert importance.weights.tobytes() == expected.weights.tobytes()


def test_workers_go_on_from_a_state():
    """That of their own parts, as a commit has it, and that of whole tables."""
    options = options_of(round_steps=2, reset="restored")
    first, then = popular(TWO_TOWERS, 5, 1), popular(TWO_TOWERS, 4, 2)
    found, states, _ = train_towers(TWO_TOWERS, first + then, options)
    _, saved, of_workers = train_towers(TWO_TOWERS, first, options)

    def work(rank, exchanges, sent, *, is_whole):
        tables = TowerTables(FEATURES, seed=SEED, placement=TWO_TOWERS, rank=rank, exchanges=exchanges, threads=1, pruning=options)  # fmt: skip
        rows = tables.rows
        if is_whole:
            whole = {one.name: saved[one.name] for one in rows.tables}
            tables.load({name: replace(state, sections=sections) for name, (state, sections) in whole.items()})
        else:
            rows.load_parts({p: of_workers[rank].part_state(p) for p in rows.held_parts})
        return train(tables, then, rank, first=len(first)), rows

    for is_whole in (False, True):
        again = on_workers(TWO_TOWERS, lambda *args, is_whole=is_whole: work(*args, is_whole=is_whole))
        assert [activations for activations, _ in again] == [one[len(first) :] for one in found]
        assert bytes_of(states_of(TWO_TOWERS, [rows for _, rows in again])) == bytes_of(states)


def test_a_frozen_worker_reads_rows_without_a_place_as_zeros():
    """Before, the first such rows are read with their initial values."""

    def work(rank, exchanges, sent):
        tables = TowerTables(FEATURES, seed=SEED, placement=TWO_TOWERS, rank=rank, exchanges=exchanges, threads=1, pruning=options_of())  # fmt: skip
        batch = popular_batch(rank, features=FEATURES)
        before = tables.lookup(batch)
        tables.freeze()
        return np.abs(before).max(), np.abs(tables.lookup(batch)).max()

    for before, after in on_workers(TWO_TOWERS, work):
        assert before > 0
        assert after == 0


def test_workers_without_a_place_and_copies_are_refused():
    def made(rank, exchanges, budget, plans, places="shared"):
        options = PruningOptions.read({"budget": budget, "places": places})
        return TowerTables(FEATURES, seed=SEED, placement=TWO_TOWERS, rank=rank, exchanges=exchanges, pruning=options, plans=plans)  # fmt: skip

    def work(rank, exchanges, sent):
        with pytest.raises(ConfigError, match="at least one for each host"):
            made(rank, exchanges, 0.03, (), "divided")
        whole = tower_partition(FEATURES, TowerPlacement(2, 1, (tuple("abcdefgh"),)))
        copied = replace(whole, tables=tuple(replace(one, is_replicated=True) for one in whole.tables))
        with pytest.raises(ConfigError, match="pruned tables must be placed by rows, blocks of rows or as wholes"):
            made(rank, exchanges, BUDGET, (None, copied))

    on_workers(TWO_TOWERS, work)


class _WithoutLookups:
    """An exchange that sends gradients alone."""

    def __init__(self, exchange: Any) -> None:
        self._exchange, self.rank, self.hosts, self.is_on = exchange, exchange.rank, exchange.hosts, False

    def all_to_all(self, parts):
        return self._exchange.all_to_all([one[:1] for one in parts] if self.is_on else parts)


def test_an_update_that_does_not_say_how_often_rows_were_looked_up_is_refused():
    placement = TowerPlacement(1, 2, (tuple("abcdefgh"),))

    def work(rank, exchanges, sent):
        group = _WithoutLookups(exchanges.group)
        tables = TowerTables(FEATURES, seed=SEED, placement=placement, rank=rank, exchanges=replace(exchanges, group=group), threads=1,
                             pruning=options_of())  # fmt: skip
        batch = popular_batch(rank, features=FEATURES)
        found = tables.lookup(batch)
        group.is_on = True
        with pytest.raises(DataError, match="must say how often each of its rows was looked up") as raised:
            tables.apply_gradients(batch, np.ones_like(found))
        assert (raised.value.where, raised.value.value) == ("worker 0", "no array")

    on_workers(placement, work)
