"""Pruned tables spread over hosts: each host has its share of the places, and rows are as important as in one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.job.host.test_shard_arrays import joined
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import batches
from tests.trainer.tables.stores.pruned.histories import histories_of
from tests.trainer.tables.stores.pruned.test_pruned_engine import (
    FEATURES,
    NEVER,
    PAPER,
    SEED,
    TABLES,
    gradients_of,
    popular_batch,
    pruned,
    step,
    sums_of,
)
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.thread_exchange import on_hosts
from trainer.errors import BadBatch, ConfigError, TornCheckpoint
from trainer.job.host.shard_arrays import parted_shards, shard_arrays, shard_states
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.tables.engine import TableSections, TableState
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.core_threads import ThreadExchange
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TablePart, TableParts
from trainer.tables.routes.pruned_engine import PrunedEngine
from trainer.tables.stores.dense.placed_snapshot import PlacedSnapshot
from trainer.tables.stores.pruned.store import PrunedStore

WIDTH = sum(one.width for one in FEATURES)


def sharded(exchange, budget=0.5, *, threads=1, **options) -> ShardedTables:
    found = PruningOptions.read({"budget": budget, **PAPER, **options})
    return ShardedTables(FEATURES, seed=SEED, exchange=exchange, threads=threads, pruning=found)


def train(tables: ShardedTables, trained, rank: int) -> list[bytes]:
    """The activations of one host's batches, with gradients whose sums have no rounding."""
    found = []
    for seed, of_hosts in enumerate(trained):
        batch = of_hosts[rank]
        found.append(tables.lookup(batch).tobytes())
        tables.apply_gradients(batch, exact_gradients(batch, (seed, rank)))
    return found


def exact_gradients(batch, seed):
    return np.random.default_rng(seed).integers(-4, 5, (batch.rows, WIDTH)).astype(np.float32)


def popular(steps: int, hosts: int, first: int = 0):
    return [[popular_batch(first + 100 * k + rank, shift=k) for rank in range(hosts)] for k in range(steps)]


def of_steps(hosts: int):
    return st.lists(st.lists(batches(FEATURES), min_size=hosts, max_size=hosts), min_size=1, max_size=4)


def arrays_of(tables: ShardedTables) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in shard_arrays("embedding", tables).items()}


def merged(of_hosts: list[dict[str, np.ndarray]]) -> dict[str, TableState]:
    """The states of all hosts, as a commit merges them."""
    states = {}
    for table in TABLES:
        found = {}
        for kind in ("embedding", "embedding-importance"):
            rows, weights, slots = (np.concatenate([one[f"{kind}/{column}/{table.name}"] for one in of_hosts])
                                    for column in ("rows", "weights", "slots"))  # fmt: skip
            order = np.argsort(rows)
            assert len(np.unique(rows)) == len(rows)
            found[kind] = TableState(rows[order], weights[order], slots[order])
        numbers = of_hosts[0][f"history/embedding/pruning/{table.name}"]
        sections = TableSections({"importance": found["embedding-importance"]}, {"pruning": numbers})
        states[table.name] = replace(found["embedding"], sections=sections)
    return states


def own_of(part: TablePart, rank: int, state: TableState) -> TableState:
    """The rows of a host, with the numbers of the whole table."""
    mine, _ = part.own_rows(rank, state.rows)
    return TableState(state.rows[mine], state.weights[mine], state.slots[mine])


@settings(max_examples=scaled(25))
@given(st.data(), st.integers(1, 4))
def test_with_places_for_all_rows_they_have_the_bits_of_whole_tables(data, hosts):
    trained = data.draw(of_steps(hosts))

    def work(exchange: ThreadExchange):
        whole, tables = ShardedTables(FEATURES, seed=SEED, exchange=exchange, threads=1), sharded(exchange, 1.0, round_steps=2)  # fmt: skip
        assert train(tables, trained, exchange.rank) == train(whole, trained, exchange.rank)
        for name, expected in whole.state().items():
            found = tables.state()[name]
            changed = np.isin(found.rows, expected.rows)
            assert found.rows[changed].tobytes() == expected.rows.tobytes()
            assert found.weights[changed].tobytes() == expected.weights.tobytes()
            assert found.slots[changed].tobytes() == expected.slots.tobytes()
        assert tables.statistics() == whole.statistics()

    on_hosts(hosts, work)


def test_rounds_leave_all_rows_of_whole_tables_their_places_where_these_suffice():
    """Tables that a host has not are in groups of their own: its other tables have a place for each of their rows."""
    on = {one.name: (t // 4,) for t, one in enumerate(TABLES)}  # tables of one group are apart
    plan = PartitionPlan(2, tuple(TablePlan(one.name, one.vocabulary_size, one.dim, (Slice(0, one.dim, on[one.name]),)) for one in TABLES))  # fmt: skip
    batch = batch_of([[[*range(one.table.vocabulary_size)]] for one in FEATURES])

    def work(exchange: ThreadExchange):
        options = PruningOptions.read({"budget": 1.0, "round_steps": 1, "spare_share": 0.2})
        tables = ShardedTables(FEATURES, seed=SEED, exchange=exchange, threads=1, parts=TableParts(TABLES, 2, plan), pruning=options)  # fmt: skip
        for seed in range(3):
            tables.lookup(batch)
            tables.apply_gradients(batch, gradients_of(batch, WIDTH, seed))
        assert tables.store.rounds == 3
        return {name: len(state.rows) for name, state in tables.state().items()}

    for rank, rows in enumerate(on_hosts(2, work)):
        assert rows == {one.name: one.vocabulary_size if on[one.name] == (rank,) else 0 for one in TABLES}


@pytest.mark.parametrize("options", [{"round_steps": 3}, {"check_steps": 2, "spare_share": 0.2}, {"round_steps": 2, "reset": "restored"}])  # fmt: skip
def test_one_host_is_the_engine_of_one_process(options):
    """Also which rows come and go in rounds, and how important all are."""
    engine, tables = pruned(0.4, **options), sharded(OneHost(), 0.4, **options)
    for k in range(20):
        batch = popular_batch(k, shift=k // 4)
        assert tables.lookup(batch).tobytes() == engine.lookup(batch).tobytes()
        gradients = gradients_of(batch, engine.width, k)
        engine.apply_gradients(batch, gradients)
        tables.apply_gradients(batch, gradients)
    assert engine.rows.rounds > 3
    assert engine.rows.counts.misses
    for name, expected in engine.state().items():
        found = tables.state()[name]
        assert (found.rows.tobytes(), found.weights.tobytes(), found.slots.tobytes()) == (
            expected.rows.tobytes(),
            expected.weights.tobytes(),
            expected.slots.tobytes(),
        )
    for name, history in engine.rows.histories().items():
        own = histories_of(tables.state())[name]
        assert (own.rows.tobytes(), own.importance.tobytes()) == (history.rows.tobytes(), history.importance.tobytes())
        assert (own.gain, own.step, own.rounds) == (history.gain, history.step, history.rounds)


@settings(max_examples=scaled(25))
@given(st.data(), st.integers(1, 4), st.sampled_from(["frequency_gradient", "frequency", "gradient"]))
def test_a_row_is_as_important_as_if_one_process_had_trained_the_batches_of_all_hosts(data, hosts, metric):
    trained, budget = data.draw(of_steps(hosts)), data.draw(st.floats(0.4, 1.0))

    def work(exchange: ThreadExchange):
        tables = sharded(exchange, budget, metric=metric, **NEVER)
        train(tables, trained, exchange.rank)
        return histories_of(tables.state())

    expected = {table.name: np.zeros(table.vocabulary_size) for table in TABLES}
    columns = pruned().columns
    for seed, of_hosts in enumerate(trained):
        of_step = [sums_of(one, exact_gradients(one, (seed, rank)), columns) for rank, one in enumerate(of_hosts)]
        for name in expected:
            lookups, sums = (np.sum([one[name][k] for one in of_step], axis=0) for k in range(2))
            norms = np.sqrt((sums.astype(np.float64) ** 2).sum(axis=1))
            expected[name] += (lookups if "frequency" in metric else lookups > 0) * (norms if "gradient" in metric else 1.0)  # fmt: skip
    found = {name: np.zeros_like(values) for name, values in expected.items()}
    for rank, histories in enumerate(on_hosts(hosts, work)):
        for name, history in histories.items():
            assert (history.rows % hosts == rank).all()
            found[name][history.rows] = history.importance
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reset", ["zero", "restored"])
@pytest.mark.parametrize("hosts", [2, 3])
def test_restored_hosts_go_on_as_if_they_had_not_stopped(hosts, reset):
    """From what is saved in parts, while training goes on; with any number of threads."""
    trained, options = popular(20, hosts), {"round_steps": 3, "decay_steps": 4, "reset": reset, "spare_share": 0.1}

    def work(exchange: ThreadExchange):
        tables = sharded(exchange, 0.4, **options)
        train(tables, trained[:10], exchange.rank)
        at_once, saved = arrays_of(tables), {}
        parted = parted_shards("embedding", tables, 1 << 20)
        rest = train(tables, trained[10:], exchange.rank)
        for one in parted:
            saved.update(joined(one))
        tables.end_snapshot()
        assert {name: array.tobytes() for name, array in saved.items()} == {
            name: data for name, data in at_once.items() if name in saved
        }
        numbers = exchange.all_to_all([[saved[f"history/embedding/pruning/{one.name}"] for one in TABLES] if exchange.rank == 0 else []] * hosts)[0]  # fmt: skip
        saved.update({f"history/embedding/pruning/{one.name}": own for one, own in zip(TABLES, numbers, strict=True)})
        assert saved.keys() == at_once.keys()
        again = sharded(exchange, 0.4, threads=2, **options)
        again.load_parts(shard_states(saved, "embedding", again))
        assert train(again, trained[10:], exchange.rank) == rest
        names = [name for name in at_once if "/pruning/" not in name]  # the rounds of other hosts are not saved
        assert [arrays_of(again)[name] for name in names] == [arrays_of(tables)[name] for name in names]

    on_hosts(hosts, work)


def test_a_state_moves_to_other_numbers_of_hosts_and_keeps_the_most_important_rows():
    trained = popular(12, 3)

    def work(exchange: ThreadExchange):
        tables = sharded(exchange, 0.4, round_steps=3)
        train(tables, trained, exchange.rank)
        return shard_arrays("embedding", tables)

    states = merged(on_hosts(3, work))
    engine = pruned(0.4)
    engine.load_state(states)
    for name, one in engine.state().items():  # all places of the hosts together are those of one process
        assert one.rows.tobytes() == states[name].rows.tobytes()
        assert one.weights.tobytes() == states[name].weights.tobytes()

    def move(exchange: ThreadExchange):
        tables = sharded(exchange, 0.4, round_steps=3)
        own = {}
        for p, part in enumerate(tables.parts.parts):
            one = states[part.table.name]
            by_rows = {name: own_of(part, exchange.rank, found) for name, found in one.sections.by_rows.items()}
            own[p] = replace(own_of(part, exchange.rank, one), sections=TableSections(by_rows, one.sections.arrays))
        tables.load_parts(own)
        return tables.state(), histories_of(tables.state())

    histories = histories_of(states)

    for found, known in on_hosts(2, move):
        for name, one in found.items():
            at = np.searchsorted(states[name].rows, one.rows)
            assert states[name].weights[at].tobytes() == one.weights.tobytes()
            expected = dict(zip(histories[name].rows.tolist(), histories[name].importance.tolist(), strict=True))
            assert {row: expected[row] for row in known[name].rows.tolist()} == dict(
                zip(known[name].rows.tolist(), known[name].importance.tolist(), strict=True)
            )
    assert sum(len(one.rows) for found, _ in on_hosts(2, move) for one in found.values()) >= 0.8 * sum(
        len(one.rows) for one in states.values()
    )


def test_simulated_cores_are_hosts():
    """Of one batch, each a part; a snapshot reads the rows of all of them, in any pieces, while training goes on."""
    trained = popular(12, 3)
    whole = [joined_batch(one) for one in trained]
    engine = PartitionedEngine(FEATURES, seed=SEED, cores=3, pruning=PruningOptions.read({"budget": 0.4, **PAPER, "round_steps": 3}))  # fmt: skip

    def work(exchange: ThreadExchange):
        tables = sharded(exchange, 0.4, round_steps=3)
        for seed, of_hosts in enumerate(trained):
            batch = of_hosts[exchange.rank]
            tables.lookup(batch)
            first = sum(one.rows for one in of_hosts[: exchange.rank])
            tables.apply_gradients(batch, exact_gradients(whole[seed], seed)[first : first + batch.rows])
        return tables.state()

    for seed, batch in enumerate(whole):
        engine.lookup(batch)
        engine.apply_gradients(batch, exact_gradients(batch, seed))
    expected = engine.state()
    for name, one in expected.items():
        found = [states[name] for states in on_hosts(3, work)]
        rows = np.concatenate([state.rows for state in found])
        order = np.argsort(rows)
        assert rows[order].tobytes() == one.rows.tobytes()
        assert np.concatenate([state.weights for state in found])[order].tobytes() == one.weights.tobytes()
    snapshot = engine.begin_snapshot(most_bytes=1 << 22)
    assert snapshot.counts == tuple(len(one.rows) for one in expected.values())
    for t, one in enumerate(expected.values()):
        step(engine, whole[t], t)
        assert b"".join(part.weights.tobytes() for part in snapshot.table(t)) == one.weights.tobytes()


def joined_batch(of_hosts):
    """The batches of hosts as one, host after host."""
    bags = [
        [one.ids[one.offsets[f, k] : one.offsets[f, k + 1]].tolist() for one in of_hosts for k in range(one.rows)]
        for f in range(len(FEATURES))
    ]
    return batch_of(bags)


def test_what_does_not_fit_is_refused():
    plan = cyclic_plan([(one.name, one.vocabulary_size, one.dim) for one in TABLES], 1)
    copies = TableParts(TABLES, 1, plan)
    copies.has_replicas = True
    with pytest.raises(ConfigError, match="pruned tables must be placed by rows, blocks of rows or as wholes"):
        ShardedTables(FEATURES, seed=SEED, exchange=OneHost(), parts=copies, pruning=PruningOptions())

    def work(exchange: ThreadExchange):
        tables = sharded(exchange, 1.0)
        own = shard_arrays("embedding", tables)
        other = {**own, "embedding-importance/rows/two": np.array([1 - exchange.rank]),
                 "embedding-importance/weights/two": np.ones((1, 1), np.float32),
                 "embedding-importance/slots/two": np.zeros((1, 0), np.float32)}  # fmt: skip
        with pytest.raises(TornCheckpoint, match="a saved shard must hold rows of its core"):
            tables.load_parts(shard_states(other, "embedding", tables))
        with pytest.raises(TornCheckpoint, match="must have rows, weights and slots"):
            shard_states({name: array for name, array in other.items() if name != "embedding-importance/slots/two"}, "embedding", tables)  # fmt: skip
        with pytest.raises(TornCheckpoint, match="must be one number for each"):
            tables.load_parts(shard_states({**own, "embedding-importance/weights/two": np.ones((1, 2), np.float32),
                                            "embedding-importance/rows/two": np.array([exchange.rank]),
                                            "embedding-importance/slots/two": np.zeros((1, 0), np.float32)}, "embedding", tables))  # fmt: skip
        for section in ("history/embedding/pruning/two", "embedding-importance/rows/two"):
            left = {
                name: array
                for name, array in own.items()
                if not name.startswith(section.rpartition("/rows/")[0] or section)
            }
            with pytest.raises(TornCheckpoint, match="a saved table must have all its sections"):
                shard_states(left, "embedding", tables)

    on_hosts(2, work)


def test_lookups_that_are_not_those_of_the_rows_are_refused():
    shard = PrunedStore(TABLES, PruningOptions(1.0), seed=SEED)
    rows, counts = np.array([1, 2]), np.array([2, 0, 0, 0, 0, 0])
    read = shard.read_rows(rows, counts)
    for wrong in (np.ones(1, np.int32), np.ones(2, np.int64)):
        with pytest.raises(BadBatch, match="lookups must be one number for each row"):
            shard.update_rows([(rows, counts)], [read], lookups=[wrong])
    with pytest.raises(BadBatch, match="lookups must come with the gradients of each part"):
        shard.update_rows([(rows, counts)], [read])


def test_rows_of_a_snapshot_are_the_same_in_any_pieces():
    engine = pruned(0.5, threads=1)
    for k in range(3):
        step(engine, popular_batch(k), k)
    whole = [[part.weights.tobytes() for part in begin(engine).table(t)] for t in range(len(TABLES))]
    engine.end_snapshot()
    pieces, snapshot = [], begin(engine)
    for t, table in enumerate(TABLES):
        found = [snapshot.capture(t, first, min(first + 4, table.vocabulary_size)) for first in range(0, table.vocabulary_size, 4)]  # fmt: skip
        joined_ = b"".join(one.weights.tobytes() for one in found)
        pieces.append([joined_] if joined_ else [])
    assert pieces == whole


def begin(engine: PrunedEngine) -> PlacedSnapshot:
    return engine.begin_snapshot(most_bytes=1 << 20)
