"""Random placements of towers, batches and trainings, by the tower transform and by the flat exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.trainer.tables.routes.partitioned.plans import plans
from tests.trainer.tables.routes.towers.grouped_threads import on_workers
from tests.trainer.tables.test_engine import batch_of
from trainer.tables import FTRL, SGD, Adagrad, Adam, FeatureSpec, IdBatch, RowWiseAdagrad, TableSpec
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.placement import TowerPlacement, features_of_towers
from trainer.tables.routes.towers.tower_tables import TowerTables
from trainer.tables.spec import tables_of

ROWS = 11
FEATURES = (
    FeatureSpec("a", one := TableSpec("one", ROWS, 3, Adagrad(0.1, 0.01), "mean")),
    FeatureSpec("b", TableSpec("two", 2 * ROWS, 5, Adam(0.1), "sqrtn")),
    FeatureSpec("c", one, max_sequence_length=2),
    FeatureSpec("d", TableSpec("three", ROWS, 2, SGD(0.5), "sum")),
    FeatureSpec("e", TableSpec("four", ROWS, 4, RowWiseAdagrad(0.1), "mean")),
    FeatureSpec("f", TableSpec("five", 3, 1, FTRL(0.1), "sum")),
)
#: Features that share a table are in one tower.
_UNITS = (("a", "c"), ("b",), ("d",), ("e",), ("f",))


@st.composite
def placements(draw: st.DrawFn, most_hosts: int = 3, most_workers: int = 3) -> TowerPlacement:
    """Placements of all features, also with towers of several hosts in any order."""
    hosts, workers = draw(st.integers(1, most_hosts)), draw(st.integers(1, most_workers))
    count = draw(st.integers(1, hosts))
    order = draw(st.permutations(_UNITS))
    towers = [list(order[k]) for k in range(count)]
    for unit in order[count:]:
        towers[draw(st.integers(0, count - 1))] += unit
    if draw(st.booleans()):
        return TowerPlacement(hosts, workers, tuple(map(tuple, towers)))
    ranked = draw(st.permutations(range(hosts)))
    of_towers = [[ranked[k]] for k in range(count)]
    for host in ranked[count:]:
        of_towers[draw(st.integers(0, count - 1))].append(host)
    return TowerPlacement(hosts, workers, tuple(map(tuple, towers)), tuple(map(tuple, of_towers)))


@st.composite
def worker_batches(draw: st.DrawFn, is_weighted: bool) -> IdBatch:
    """The batch of one worker, which may have no events."""
    count = draw(st.integers(0, 3))
    bags = [
        draw(
            st.lists(
                st.lists(st.integers(0, one.table.vocabulary_size - 1), max_size=4), min_size=count, max_size=count
            )
        )
        for one in FEATURES
    ]
    batch = batch_of(bags)
    ids = batch.ids.astype(draw(st.sampled_from([np.int32, np.int64])))
    weights = np.random.default_rng(len(ids)).random(len(ids)).astype(np.float32) + 0.1
    return replace(batch, ids=ids, weights=weights if is_weighted else None)


@st.composite
def steps(draw: st.DrawFn, workers: int) -> list[list[IdBatch]]:
    """For each of some steps, a batch for each worker."""
    is_weighted = draw(st.booleans())
    return [[draw(worker_batches(is_weighted)) for _ in range(workers)] for _ in range(draw(st.integers(1, 3)))]


def tower_plans(placement: TowerPlacement) -> st.SearchStrategy[tuple[Any, ...]]:
    """A plan for each tower, or None: tables split by rows and columns, and replicated ones."""
    chosen = features_of_towers(FEATURES, placement.towers)
    return st.tuples(*(
        st.none() | plans([FEATURES[f] for f in of_tower], len(placement.group_of(t))) for t, of_tower in enumerate(chosen)
    ))  # fmt: skip


def gradients_of(step: int, rank: int, rows: int, width: int) -> np.ndarray:
    return np.random.default_rng((step, rank)).normal(size=(rows, width)).astype(np.float32)


def train_flat(placement: TowerPlacement, trained: list[list[IdBatch]]) -> tuple[list[list[bytes]], dict[str, Any]]:
    """The activations of each worker by the flat exchange, and the states of the tables."""

    def work(rank, exchanges, sent):
        tables = ShardedTables(FEATURES, seed=3, exchange=exchanges.world, threads=1)
        found = []
        for step, batches in enumerate(trained):
            found.append(tables.lookup(batches[rank]).tobytes())
            tables.apply_gradients(batches[rank], gradients_of(step, rank, batches[rank].rows, tables.width))
        return found, [tables.part_state(p) for p in range(len(tables.parts.parts))], tables.statistics()

    results = on_workers(placement, work)
    parts = TableParts(tables_of(FEATURES), placement.workers, None)
    states = {one.name: parts.join(t, [[state[p] for _, state, _ in results] for p in parts.of_table(t)])
              for t, one in enumerate(parts.tables)}  # fmt: skip
    return [found for found, _, _ in results], states


def train_towers(placement: TowerPlacement, trained: list[list[IdBatch]], plans: tuple[Any, ...] = (),
                 **options: Any) -> tuple[list[list[Any]], dict[str, Any]]:  # fmt: skip
    """As :func:`train_flat`, by the tower transform."""

    def work(rank, exchanges, sent):
        tables = TowerTables(
            FEATURES, seed=3, placement=placement, rank=rank, exchanges=exchanges, plans=plans, threads=1, **options
        )
        found = []
        for step, batches in enumerate(trained):
            found.append(tables.lookup(batches[rank]))
            tables.apply_gradients(batches[rank], gradients_of(step, rank, batches[rank].rows, tables.width))
        return found, tables.rows

    results = on_workers(placement, work)
    states = {}
    for t in range(len(placement.towers)):
        rows = [results[rank][1] for rank in placement.group_of(t)]
        parts = rows[0].parts
        for k, table in enumerate(parts.tables):
            states[table.name] = parts.join(k, [[one.part_state(p) for one in rows] for p in parts.of_table(k)])
    return [found for found, _ in results], states
