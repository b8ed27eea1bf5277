"""Hosts that share the places of a group keep the rows that one process keeps, however rows are divided among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.stores.pruned.histories import histories_of
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.thread_exchange import on_hosts
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.tables import Adagrad, FeatureSpec, TableSpec
from trainer.tables.engine import TableSections, TableState
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts, join_sections
from trainer.tables.routes.pruned_engine import PrunedEngine
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.pruned import rows as pruned_rows
from trainer.tables.stores.pruned.rows import PrunedRows, groups_of
from transforms.errors import DataError

SEED = 3
_ADAGRAD = Adagrad(0.1, 0.25)
TABLES = (
    TableSpec("one", 50, 4, _ADAGRAD, "sum"),
    TableSpec("two", 30, 4, _ADAGRAD, "sum"),
    TableSpec("three", 41, 8, _ADAGRAD, "sum"),
)
FEATURES = tuple(FeatureSpec(one.name, one) for one in TABLES)
WIDTH = sum(one.dim for one in TABLES)


def options_of(**options) -> PruningOptions:
    return PruningOptions.read({"budget": 0.4, "decay_steps": 3, **options})


def batches_of(step: int, hosts: int):
    """A batch for each host, whose popular ids change, and whose gradients have no rounding in any order."""
    found = []
    for rank in range(hosts):
        draw = np.random.default_rng((step, rank))
        bags = [[((draw.zipf(1.4, draw.integers(0, 5)) - 1 + step // 3) % one.vocabulary_size).tolist() for _ in range(6)] for one in TABLES]  # fmt: skip
        found.append((batch_of(bags), bags, draw.integers(-4, 5, (6, WIDTH)).astype(np.float32)))
    return found


def joined(of_hosts):
    bags = [[bag for _, own, _ in of_hosts for bag in own[f]] for f in range(len(TABLES))]
    return batch_of(bags), np.concatenate([gradients for *_, gradients in of_hosts])


def cyclic(hosts: int) -> None:
    return None


def in_blocks(hosts: int) -> PartitionPlan:
    """The first rows, which are popular, on the last host, and a whole table on the first."""
    ends = [(one.vocabulary_size // 5, *range(one.vocabulary_size - hosts + 2, one.vocabulary_size + 1)) for one in TABLES]  # fmt: skip
    cores = tuple(range(hosts - 1, -1, -1))
    plans = [TablePlan(one.name, one.vocabulary_size, one.dim, (Slice(0, one.dim, cores, end),)) for one, end in zip(TABLES, ends, strict=True)]  # fmt: skip
    whole = TABLES[1]
    return PartitionPlan(hosts, (plans[0], TablePlan(whole.name, whole.vocabulary_size, whole.dim, (Slice(0, whole.dim, (0,)),)), plans[2]))  # fmt: skip


PLANS = pytest.mark.parametrize("plan_of", [cyclic, in_blocks])


def tables_on(exchange, options: PruningOptions, plan: PartitionPlan | None) -> ShardedTables:
    parts = None if plan is None else TableParts(TABLES, exchange.hosts, plan)
    return ShardedTables(FEATURES, seed=SEED, exchange=exchange, threads=1, parts=parts, pruning=options)


def train(tables: ShardedTables, first: int, stop: int) -> list[bytes]:
    """The activations of this host's batches."""
    found = []
    for k in range(first, stop):
        batch, _, gradients = batches_of(k, tables._exchange.hosts)[tables.rank]
        found.append(tables.lookup(batch).tobytes())
        tables.apply_gradients(batch, gradients)
    return found


def of_one_process(options: PruningOptions, hosts: int, steps: int):
    """An engine that has trained the batches of all hosts, and after each step what it keeps."""
    engine, kept = PrunedEngine(FEATURES, options, seed=SEED, threads=1), []
    for k in range(steps):
        batch, gradients = joined(batches_of(k, hosts))
        engine.lookup(batch)
        engine.apply_gradients(batch, gradients)
        kept.append((engine.rows.rounds, kept_of(engine.state())))
    return engine, kept


def kept_of(states) -> dict[str, list[int]]:
    return {name: one.rows.tolist() for name, one in states.items()}


def merged(states: list[dict[str, TableState]]) -> dict[str, TableState]:
    """The states of all hosts, as a commit has them."""
    found = {}
    for table in TABLES:
        own = [one[table.name] for one in states]
        rows = np.concatenate([one.rows for one in own])
        order = np.argsort(rows)
        assert len(np.unique(rows)) == len(rows)
        weights, slots = (
            np.concatenate([getattr(one, column) for one in own])[order] for column in ("weights", "slots")
        )
        found[table.name] = TableState(rows[order], weights, slots, join_sections([one.sections for one in own]))
    return found


RULES = st.fixed_dictionaries({
    "round_steps": st.integers(2, 4), "metric": st.sampled_from(["gradient", "frequency"]), "normalised": st.booleans(),
    "spare_share": st.sampled_from([0.0, 0.2]), "reset": st.sampled_from(["zero", "initial", "restored", "none"]),
})  # fmt: skip


@pytest.mark.medium
@PLANS
@settings(max_examples=scaled(20))
@given(st.integers(2, 4), RULES)
def test_rounds_keep_the_rows_that_one_process_keeps(plan_of, hosts, rules):
    """Also of rows that are equally important, and however many places each host's rows win."""
    options, steps = options_of(**rules), 13
    engine, kept = of_one_process(options, hosts, steps)

    def work(exchange):
        tables, found = tables_on(exchange, options, plan_of(hosts)), []
        for k in range(steps):
            train(tables, k, k + 1)
            found.append(tables.state())
            assert tables.store.rounds == kept[k][0]
            check_places(tables, exchange)
        return found

    of_hosts = on_hosts(hosts, work)
    for k in range(steps):
        if (k + 1) % options.round_steps == 0:
            assert kept_of(merged([one[k] for one in of_hosts])) == kept[k][1]
    for name, history in histories_of(merged([one[-1] for one in of_hosts])).items():
        expected = engine.rows.histories()[name]
        assert history.rows.tolist() == expected.rows.tolist()
        assert history.importance.tobytes() == expected.importance.tobytes()


def check_places(tables: ShardedTables, exchange) -> None:
    """The rows of all hosts have no more places than the groups have, and each host knows how many are free."""
    rows: PrunedRows = tables.store
    placed = np.array([int((rows.addresses.of_table(t) >= 0).sum()) for t in range(len(TABLES))])
    total = np.sum([one[0] for one in exchange.all_to_all([[placed]] * exchange.hosts)], axis=0)
    assert rows.addresses.are_whole()
    for group, free in zip(groups_of(TABLES, rows.options), rows.job.free.tolist(), strict=True):
        assert free == group.rows - total[list(group.tables)].sum() >= 0


@PLANS
def test_with_spare_places_hosts_have_the_bits_of_one_process(plan_of):
    """As long as the free places of each step suffice."""
    options, hosts, steps = options_of(budget=0.95, spare_share=0.4, round_steps=4), 3, 16
    engine, kept = of_one_process(options, hosts, steps)
    assert kept[-1][0] == 4

    def work(exchange):
        tables = tables_on(exchange, options, plan_of(hosts))
        train(tables, 0, steps)
        return tables.state(), tables.store.counts.moved_rows

    found = on_hosts(hosts, work)
    for name, state in merged([one for one, _ in found]).items():
        expected = engine.state()[name]
        assert state.rows.tolist() == expected.rows.tolist()
        assert (state.weights.tobytes(), state.slots.tobytes()) == (
            expected.weights.tobytes(),
            expected.slots.tobytes(),
        )


@pytest.mark.parametrize("normalised", [False, True])
@PLANS
def test_a_round_begins_when_it_begins_in_one_process(plan_of, normalised):
    """By the sample of one process, of which each host has a part."""
    options = options_of(check_steps=2, crossing_share=0.1, normalised=normalised, spare_share=0.0)
    _, kept = of_one_process(options, 3, 24)
    assert 1 < kept[-1][0] < 12

    def work(exchange):
        tables, rounds = tables_on(exchange, options, plan_of(3)), []
        for k in range(24):
            train(tables, k, k + 1)
            rounds.append(tables.store.rounds)
        return rounds, tables.state()

    found = on_hosts(3, work)
    assert all(rounds == found[0][0] for rounds, _ in found), "all hosts decide alike"
    assert found[0][0] == [rounds for rounds, _ in kept]


@PLANS
@pytest.mark.parametrize("reset", ["zero", "restored"])
@pytest.mark.parametrize("others", [1, 2, 4])
def test_a_state_moves_to_other_hosts_with_all_of_its_rows(plan_of, reset, others):
    """So hosts that restore go on as those which did not stop, and other numbers of hosts keep the same rows."""
    options = options_of(round_steps=3, reset=reset)

    def begin(exchange):
        tables = tables_on(exchange, options, plan_of(3))
        train(tables, 0, 7)
        saved = tables.state()
        return saved, train(tables, 7, 12), tables.state()

    begun = on_hosts(3, begin)
    saved = merged([one[0] for one in begun])

    def go_on(exchange):
        tables = tables_on(exchange, options, plan_of(others) if others > 1 else None)
        tables.load_state(saved)
        return kept_of(tables.state()), tables.state()

    found = on_hosts(others, go_on)
    assert kept_of(merged([one for _, one in found])) == kept_of(saved)

    def restore(exchange):
        tables = tables_on(exchange, options, plan_of(3))
        tables.load_state(saved)
        return train(tables, 7, 12), tables.state()

    for (_, activations, state), (again, restored) in zip(begun, on_hosts(3, restore), strict=True):
        assert again == activations
        assert kept_of(restored) == kept_of(state)


@pytest.mark.parametrize("has_importance", [True, False])
def test_of_more_rows_than_places_the_most_important_ones_of_all_hosts_stay(has_importance):
    """Those that one process would load; the first ones where nothing is known of them."""
    engine, _ = of_one_process(options_of(budget=1.0), 3, 12)
    state = engine.state()
    if not has_importance:
        state = {name: replace(one, sections=TableSections({}, {})) for name, one in state.items()}
    few = options_of(budget=0.3, spare_share=0.0, round_steps=3)
    alone = PrunedEngine(FEATURES, few, seed=SEED, threads=1)
    alone.load_state(state)

    def work(exchange):
        tables = tables_on(exchange, few, in_blocks(3))
        tables.load_state(state)
        batch = batches_of(40, 3)[exchange.rank][0]
        tables.lookup(batch)
        loaded = tables.state()
        train(tables, 12, 18)
        return loaded, tables.state()

    found = on_hosts(3, work)
    assert kept_of(merged([loaded for loaded, _ in found])) == kept_of(alone.state())
    assert sum(len(one.rows) for one in alone.state().values()) == sum(one.rows for one in groups_of(TABLES, few))
    for k in range(12, 18):
        batch, gradients = joined(batches_of(k, 3))
        alone.lookup(batch)
        alone.apply_gradients(batch, gradients)
    assert kept_of(merged([after for _, after in found])) == kept_of(alone.state())


@PLANS
def test_memory_that_a_host_lends_is_released_and_no_value_changes(plan_of, monkeypatch):
    options, hosts = options_of(round_steps=3, spare_share=0.1), 3

    def work(exchange):
        tables = tables_on(exchange, options, plan_of(hosts))
        given = []
        release_memory = tables.store.places.release_memory
        monkeypatch.setattr(tables.store.places, "release_memory", lambda g, first, stop: (given.append(stop - first), release_memory(g, first, stop)))  # fmt: skip
        found = train(tables, 0, 20), tables.state()
        addresses = tables.store.addresses
        assert ((addresses.rows - addresses.free_rows) <= addresses.touched).all()
        return found, sum(given)

    kept = on_hosts(hosts, work)
    assert not any(given for _, given in kept)
    monkeypatch.setattr(pruned_rows, "_LEAST_LENT_BYTES", 1)
    lent = on_hosts(hosts, work)
    assert any(given for _, given in lent)
    for (one, _), (other, _) in zip(kept, lent, strict=True):
        assert one[0] == other[0]
        for name, state in one[1].items():
            assert (state.rows.tobytes(), state.weights.tobytes(), state.slots.tobytes()) == (
                other[1][name].rows.tobytes(), other[1][name].weights.tobytes(), other[1][name].slots.tobytes())  # fmt: skip


def test_no_memory_is_released_that_a_snapshot_reads(monkeypatch):
    """It has the values of its moment."""
    monkeypatch.setattr(pruned_rows, "_LEAST_LENT_BYTES", 1)
    options = options_of(round_steps=3, spare_share=0.1)

    def work(exchange):
        tables = tables_on(exchange, options, in_blocks(2))
        train(tables, 0, 5)
        expected = tables.state()
        snapshot = tables.begin_snapshot(most_bytes=1 << 20)
        train(tables, 5, 20)
        for t, table in enumerate(TABLES):
            parts = list(snapshot.table(t))
            weights = np.concatenate([np.zeros((0, table.dim), np.float32), *(one.weights for one in parts)])
            assert weights.tobytes() == expected[table.name].weights.tobytes()
        tables.end_snapshot()
        touched = tables.store.addresses.touched.copy()
        train(tables, 20, 24)
        return touched, tables.store.addresses.touched

    found = on_hosts(2, work)
    assert any((after < before).any() for before, after in found)


def test_hashed_tables_beside_them_change_no_round():
    """One process keeps the same rows without them."""
    options, hosts = options_of(round_steps=3), 2
    by_id = TableSpec("ids", 2**40, 4, _ADAGRAD, "sum")
    features = (FeatureSpec("ids", by_id), *FEATURES)
    engine, _ = of_one_process(options, hosts, 12)

    def work(exchange):
        hashed = {"ids": TableLimits(16)}
        tables = ShardedTables(features, seed=SEED, exchange=exchange, threads=1, pruning=options, hashed=hashed)
        for k in range(12):
            _, bags, gradients = batches_of(k, hosts)[exchange.rank]
            batch = batch_of([[[2**30 + row for row in bag] for bag in bags[0]], *bags])
            tables.lookup(batch)
            tables.apply_gradients(batch, np.concatenate([np.ones((len(gradients), 4), np.float32), gradients], axis=1))
        return {name: state for name, state in tables.state().items() if name != "ids"}

    assert kept_of(merged(on_hosts(hosts, work))) == kept_of(engine.state())


def test_divided_places_are_those_of_each_host():
    """As in earlier releases: a host has a share of the places by its rows, and runs its own rounds."""
    options = options_of(places="divided", round_steps=3, spare_share=0.0)

    def work(exchange):
        tables = tables_on(exchange, options, None)
        train(tables, 0, 12)
        assert tables.store.job is None
        return [one.rows for one in tables.store.groups], [int(one) for one in tables.store.addresses.free_rows]

    found = on_hosts(3, work)
    assert np.sum([rows for rows, _ in found], axis=0).tolist() == [one.rows for one in groups_of(TABLES, options)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda one: [],
        lambda one: [one[0][:-1]],
        lambda one: [one[0].astype(np.int32)],
        lambda one: [np.full_like(one[0], -1)],
    ],
)
def test_numbers_of_another_host_that_do_not_fit_are_refused(wrong):
    class Spoiled:
        def __init__(self, exchange) -> None:
            self._exchange, self.rank, self.hosts = exchange, exchange.rank, exchange.hosts

        def all_to_all(self, parts):
            found = self._exchange.all_to_all(parts)
            return [wrong(one) if rank == 1 and len(one) == 1 else one for rank, one in enumerate(found)]

    def work(exchange):
        tables = tables_on(Spoiled(exchange), options_of(), None)
        with pytest.raises(DataError, match="must say a number for each table"):
            train(tables, 0, 1)

    on_hosts(2, work)
