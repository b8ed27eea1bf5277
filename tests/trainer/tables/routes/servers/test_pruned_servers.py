"""Pruned tables whose places and importance are on servers: the bits of a process, or of hosts, with the same places."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.in_caller import InCaller
from tests.support.parameter_servers import sources_of, thread_servers
from tests.support.server_process import killed_meanwhile
from tests.trainer.servers.test_killed_servers import link_to, processes
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import batches, same_states
from tests.trainer.tables.routes.servers.test_ps_engine import counted
from tests.trainer.tables.stores.pruned.histories import histories_of
from tests.trainer.tables.stores.pruned.test_pruned_engine import (
    FEATURES,
    NEVER,
    PAPER,
    SEED,
    TABLES,
    popular_batch,
    pruned,
    step,
)
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.thread_exchange import on_hosts
from trainer.errors import BadBatch, ConfigError, NonFiniteLoss, ServerLost, TornCheckpoint
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.run.weights.saved_tables import parted_tables, saved_states, state_arrays
from trainer.servers.client_updates import Greeting, Mode
from trainer.servers.moves.engine_move import EngineMove, MoveStage
from trainer.servers.moves.table_copy import TableCopy
from trainer.tables import SGD, CpuEngine, FeatureSpec, TableSpec
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned import table_parts
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers import pruned_servers
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.remote_tables import RemoteTables
from trainer.tables.routes.servers.stacked_plan import stacked_plan
from trainer.tables.snapshot_states import state_of
from trainer.tables.spec import tables_of
from trainer.tables.state_checks import empty_state
from trainer.tables.wire.settings import WireSettings

SERVERS = 3
ATTEMPTS = count(1)
#: Each table has one feature.
SINGLE = tuple(FeatureSpec(f"only {one.name}", one) for one in TABLES)


@pytest.fixture(scope="module")
def servers():
    with thread_servers(SERVERS) as made:
        yield made


def options_of(budget, **options) -> PruningOptions:
    return PruningOptions.read({"budget": budget, **PAPER, **options})


def served(servers, budget=0.5, **options) -> PsEngine:
    """As a new attempt: other budgets have other rows."""
    greeting = Greeting(attempt=next(ATTEMPTS))
    return over([one.connect(greeting) for one in servers], budget, **options)


def over(
    connects, budget=0.5, *, features=FEATURES, threads=1, wire=None, plan=None, is_first=True, **options
) -> PsEngine:
    found = PsEngine(features, seed=SEED, servers=connects, threads=threads, wire=wire, plan=plan, pruning=options_of(budget, **options))  # fmt: skip
    if is_first:
        found.load_state({one.name: empty_state(one) for one in tables_of(features)})
    return found


def same(one, other) -> None:
    """Values and importance."""
    found, expected = one.state(), other.state()
    same_states(found, expected)
    own = histories_of(found)
    for name, history in histories_of(expected).items():
        assert own[name].rows.tobytes() == history.rows.tobytes()
        assert own[name].importance.tobytes() == history.importance.tobytes()
        assert (own[name].gain, own[name].step, own[name].rounds) == (history.gain, history.step, history.rounds)
    assert one.statistics() == other.statistics()


@pytest.mark.medium
@settings(max_examples=scaled(25))
@given(
    st.lists(batches(SINGLE), min_size=1, max_size=8),
    st.floats(0.2, 1.0),
    st.sampled_from(["zero", "initial", "restored", "none"]),
    st.sampled_from([{"round_steps": 2}, {"check_steps": 2}, {"check_steps": 1, "normalised": True}]),
)
def test_one_server_has_the_bits_of_one_process(servers, trained, budget, reset, rounds):
    """Where each table has one feature; also which rows get the last free places, and when rounds begin."""
    options = {"reset": reset, "spare_share": 0.3, "decay_steps": 3, **rounds}
    here, there = pruned(budget, features=SINGLE, **options), served(servers[:1], budget, features=SINGLE, **options)
    for seed, batch in enumerate(trained):
        assert step(there, batch, seed) == step(here, batch, seed)
    same(there, here)
    there.close()


def hosts_of(count: int, budget: float, trained, features=FEATURES, plan=None, **options):
    """The activations of each host's batches, and the states that all hosts have together; hosts divide places as servers do."""
    tables = tables_of(features)

    def work(exchange):
        parts = TableParts(tables, count, plan or stacked_plan(tables, count))
        made = ShardedTables(features, seed=SEED, exchange=exchange, parts=parts, threads=1,
                             pruning=options_of(budget, places="divided", **options))  # fmt: skip
        return [
            step(made, of_hosts[exchange.rank], (k, exchange.rank)) for k, of_hosts in enumerate(trained)
        ], made.state()

    found = on_hosts(count, work)
    return [seen for seen, _ in found], [states for _, states in found]


def assert_same_as_hosts(engine: PsEngine, of_hosts) -> None:
    state, histories = engine.state(), histories_of(engine.state())
    for name, one in state.items():
        rows = np.concatenate([states[name].rows for states in of_hosts])
        order = np.argsort(rows)
        assert rows[order].tobytes() == one.rows.tobytes()
        for array in ("weights", "slots"):
            joined = np.concatenate([getattr(states[name], array) for states in of_hosts])[order]
            assert joined.tobytes() == getattr(one, array).tobytes()
        known = [histories_of(states) for states in of_hosts]
        own = [one[name] for one in known if name in one]  # of a whole table one host
        rows = np.concatenate([one.rows for one in own])
        order = np.argsort(rows)
        assert rows[order].tobytes() == histories[name].rows.tobytes()
        assert np.concatenate([one.importance for one in own])[order].tobytes() == histories[name].importance.tobytes()


def by_blocks(servers: int) -> PartitionPlan:
    """Tables by rows, by blocks of rows and as wholes in turn."""
    plans = []
    for t, one in enumerate(TABLES):
        rows, cores, ends = one.vocabulary_size, tuple(range(servers)), ()
        if t % 3 == 1:
            cores = (t % servers,)
        elif t % 3 == 2:
            ends = tuple(rows * (k + 1) // servers for k in range(servers))
        plans.append(TablePlan(one.name, rows, one.dim, (Slice(0, one.dim, cores, ends),)))
    return PartitionPlan(servers, tuple(plans))


@pytest.mark.medium
@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("ids", ["plain", "unique"])
def test_clients_of_servers_are_hosts_of_the_same_plan(servers, ids, is_planned):
    """Two clients whose updates are summed, of two servers; fetches come in any order, also while places are short."""
    plan = by_blocks(2) if is_planned else None
    options = {"round_steps": 3, "decay_steps": 4, "spare_share": 0.2}
    trained = [[popular_batch(10 * k + rank, shift=k // 3) for rank in range(2)] for k in range(10)]
    seen, of_hosts = hosts_of(2, 0.4, trained, plan=plan, **options)
    attempt = next(ATTEMPTS)
    greetings = [Greeting("", k, 2, attempt, Mode.SUMMED) for k in range(2)]
    with ThreadPoolExecutor(2) as pool:
        made = [
            over([one.connect(own) for one in servers[:2]], 0.4, is_first=not k, plan=plan,
                 wire=WireSettings(ids=ids), **options)
            for k, own in enumerate(greetings)
        ]  # fmt: skip
        made[1].open()

        def train(rank: int) -> list[bytes]:
            return [step(made[rank], one[rank], (k, rank)) for k, one in enumerate(trained)]

        found = list(pool.map(train, range(2)))
    if ids == "plain":  # else rows of a batch ascend, and others get the last free places
        assert found == seen
        assert_same_as_hosts(made[0], of_hosts)
    assert histories_of(made[0].state())["two"].rounds > 0
    for one in made:
        one.close()


@settings(max_examples=scaled(12))
@given(st.lists(batches(FEATURES), min_size=2, max_size=8), st.floats(0.3, 0.9), st.integers(0, 7))
def test_a_run_goes_on_there_and_here(servers, trained, budget, stop):
    """Also with the values of rows that have left, and with the rounds of each server."""
    options = {"round_steps": 3, "decay_steps": 2, "reset": "restored"}
    expected, there = served(servers[:2], budget, **options), None
    for seed, batch in enumerate(trained):
        if seed == stop:
            middle = expected.state()
            there = served(servers[2:], budget, **options)
            here = pruned(budget, **options)
            for engine in (there, here):
                engine.load_state(middle)
            same_states(there.state(), here.state())
            there.close()
            with thread_servers(2) as others:
                again = served(others, budget, **options)
                again.load_state(middle)
                same(again, expected) if not seed else same_states(again.state(), middle)
                assert step(again, batch, seed) == step(expected, batch, seed)
                same_states(again.state(), expected.state())
                again.close()
            continue
        step(expected, batch, seed)
    expected.close()


def test_a_snapshot_is_of_its_moment_while_rows_lose_their_places(servers):
    engine = served(servers, 0.4, round_steps=2)
    for k in range(6):
        step(engine, popular_batch(k), k)
    expected = engine.state()
    snapshot = engine.begin_snapshot(most_bytes=1 << 22)
    assert snapshot.counts == tuple(len(one.rows) for one in expected.values())
    found = {}
    for t, table in enumerate(TABLES):
        step(engine, popular_batch(100 + t, shift=3 * t), t)
        found[table.name] = state_of(snapshot, t, table)
    engine.end_snapshot()
    same_states(found, expected)
    for name, history in histories_of(expected).items():
        assert histories_of(found)[name].importance.tobytes() == history.importance.tobytes()
        assert histories_of(found)[name].step == history.step == 6
    assert {name: one.rows.tobytes() for name, one in engine.state().items()} != {
        name: one.rows.tobytes() for name, one in expected.items()
    }
    engine.close()


def test_a_batch_takes_one_fetch_and_one_update():
    """Also where rows get places, and in rounds."""
    links: list[list] = [[] for _ in range(SERVERS)]
    with thread_servers(SERVERS) as made:
        engine = over([counted(*one) for one in zip(made, links, strict=True)], round_steps=3)
        for own in links:
            own[0].requests.clear()
        for k in range(12):
            step(engine, popular_batch(k), k)
        engine.finish()
        for own in links:
            assert Counter(one.kind for one in own[0].requests) == {Kind.FETCH: 12, Kind.UPDATE: 12}
        engine.close()


def test_a_row_without_a_place_is_read_as_zeros_and_never_trained(servers):
    table = TableSpec("t", 40, 4, SGD(0.1), "mean")
    engine = served(servers[:1], 0.25, features=[FeatureSpec("f", table)], **NEVER)
    initial = CpuEngine([FeatureSpec("f", table)], seed=SEED).weights_of("t", np.array([30]))
    assert engine.lookup(batch_of([[[30]]])).tobytes() == initial.tobytes(), "while there are free places"
    for rows in (range(10), range(10, 20)):
        batch = batch_of([[[row] for row in rows]])
        engine.lookup(batch)
        engine.apply_gradients(batch, np.ones((10, 4), np.float32))
    found = engine.lookup(batch_of([[[3, 15], [15], [30], []]]))
    assert found[0].tobytes() == (engine.weights_of("t", np.array([3]))[0] * np.float32(0.5)).tobytes()
    assert not found[1:].any()
    assert not engine.weights_of("t", np.array([15])).any()
    engine.close()


def test_bad_input_changes_nothing(servers):
    engine = served(servers, **NEVER)
    step(engine, popular_batch(1), 1)
    before = engine.state()
    bad = batch_of([[[10**6]]] + [[[]]] * (len(FEATURES) - 1))
    with pytest.raises(BadBatch):
        engine.lookup(bad)
    batch = popular_batch(2)
    with pytest.raises(NonFiniteLoss):
        engine.apply_gradients(batch, np.full((batch.rows, engine.width), np.nan, np.float32))
    with pytest.raises(TornCheckpoint):
        engine.load_state({})
    after = engine.state()
    same_states(after, before)
    assert histories_of(after)["one"].importance.tobytes() == histories_of(before)["one"].importance.tobytes()
    engine.close()


@pytest.mark.medium
def test_killed_servers_change_no_bit(tmp_path):
    """Also when they are killed while rows get places, and in rounds."""
    options = {"round_steps": 3, "decay_steps": 5, "spare_share": 0.2}
    with processes(tmp_path, 2) as running, thread_servers(2) as calm:
        engine, here, k = over([link_to(one.address) for one in running], 0.4, **options), served(calm, 0.4, **options), 0  # fmt: skip
        with killed_meanwhile(running, scaled(40)) as is_over:
            while not is_over() or k < 12:
                batch = popular_batch(k, shift=k // 3)
                assert step(engine, batch, k) == step(here, batch, k)
                k += 1
        same(engine, here)
        engine.close()
        here.close()


@pytest.mark.slow
def test_summed_updates_of_two_clients_over_killed_servers_change_no_bit(tmp_path):
    steps, options = scaled(24), {"round_steps": 3, "decay_steps": 5, "spare_share": 0.2}
    trained = [[popular_batch(10 * k + rank, shift=k // 4) for rank in range(2)] for k in range(steps)]
    seen, of_hosts = hosts_of(2, 0.4, trained, **options)
    with processes(tmp_path, 2) as running, ThreadPoolExecutor(2) as pool:
        made = [
            over([link_to(one.address, client=k, clients=2, mode=Mode.SUMMED) for one in running], 0.4, is_first=not k, **options)
            for k in range(2)
        ]  # fmt: skip
        made[1].open()

        def train(rank: int) -> list[bytes]:
            found = [step(made[rank], one[rank], (k, rank)) for k, one in enumerate(trained)]
            made[rank].finish()  # what a killed server has not made is sent again
            return found

        training, draw = [pool.submit(train, rank) for rank in range(2)], random.Random(2)
        while not all(one.done() for one in training):
            sent = made[0].servers[0].updates
            while made[0].servers[0].updates == sent and not all(one.done() for one in training):
                time.sleep(1e-3)  # clients go on between two kills, however slow the machine
            one = draw.choice(running)
            one.kill()
            one.start()
        assert [one.result() for one in training] == seen
        assert_same_as_hosts(made[0], of_hosts)
        for one in made:
            one.close()


def test_a_whole_state_is_loaded_within_the_budget(servers):
    whole = CpuEngine(FEATURES, seed=SEED)
    for k in range(6):
        step(whole, popular_batch(k), k)
    here, there = pruned(0.3), served(servers[:1], 0.3)
    for engine in (here, there):
        engine.load_state(whole.state())
    same(there, here)
    there.close()


def test_one_server_is_one_host(servers):
    """Also where features share a table: rows get the last free places table by table."""
    options = {"check_steps": 2, "spare_share": 0.2}
    tables = ShardedTables(FEATURES, seed=SEED, exchange=OneHost(), threads=1, pruning=options_of(0.4, **options))
    engine = served(servers[:1], 0.4, **options)
    for k in range(12):
        batch = popular_batch(k, shift=k // 4)
        assert step(engine, batch, k) == step(tables, batch, k)
    same_states(engine.state(), tables.state())
    engine.close()


@pytest.mark.parametrize("range_bytes", [16, 100, 1 << 20])
@pytest.mark.parametrize("plan", [None, "blocks"])
def test_a_saved_table_is_read_where_it_is_written(servers, monkeypatch, range_bytes, plan):
    """Nothing in the thread that trains; importance and rows that have left come by ranges, as rows do, of the moment of the snapshot."""
    monkeypatch.setattr(pruned_servers, "RANGE_BYTES", range_bytes)
    monkeypatch.setattr(table_parts, "RANGE_BYTES", range_bytes)
    asked: list[str] = []
    for name in ("read_snapshot", "read_history"):
        read = getattr(RemoteTables, name)
        monkeypatch.setattr(RemoteTables, name, lambda self, *given, name=name, read=read: (asked.append(name), read(self, *given))[1])  # fmt: skip
    engine = served(servers, 0.4, reset="restored", round_steps=2, plan=None if plan is None else blocks())
    for k in range(8):
        step(engine, popular_batch(k, shift=k // 2), k)
    expected = engine.state()
    assert len(expected["two"].sections.by_rows["left"].rows) > 0
    asked.clear()
    parted = parted_tables(lambda name: ("embedding", name), engine, 1 << 22)
    assert asked == []
    for k in range(8, 12):
        step(engine, popular_batch(k, shift=k // 2), k)
    saved, most = {}, 0
    for one in parted:
        pieces = [list(part) for part in one.parts]
        most = max(
            [most, *(4 * part[1].size for part in pieces if one.kinds[0].name.startswith("embedding-importance/"))]
        )
        for kind, *arrays in zip(one.kinds, *pieces, strict=True):
            saved[kind.name] = np.concatenate([np.zeros((0, *kind.shape[1:]), kind.dtype), *arrays])
            assert saved[kind.name].shape == kind.shape
    engine.end_snapshot()
    found, whole = (
        saved_states(saved, "embedding"),
        state_arrays(("embedding", name, one) for name, one in expected.items()),
    )
    assert {name: array.tobytes() for name, array in saved.items()} == {
        name: array.tobytes() for name, array in whole.items()
    }
    assert found.keys() == expected.keys()
    assert most <= SERVERS * max(range_bytes, 4)
    engine.close()


def blocks() -> PartitionPlan:
    """Blocks of rows on all servers, the last ones first."""
    cores = tuple(range(SERVERS))[::-1]
    return PartitionPlan(SERVERS, tuple(
        TablePlan(one.name, one.vocabulary_size, one.dim, (Slice(0, one.dim, cores, tuple(one.vocabulary_size * (k + 1) // SERVERS for k in cores[::-1])),))
        for one in TABLES
    ))  # fmt: skip


@pytest.mark.parametrize("reset", ["zero", "restored"])
def test_a_host_that_saves_no_rows_names_the_sections_of_the_one_that_does(servers, reset):
    """All parts of a commit must have the same arrays by rows."""
    engine = served(servers[:2], 0.4, reset=reset)
    for t, (name, state) in enumerate(engine.state().items()):
        none = engine.no_rows(t)
        assert list(none.sections.by_rows) == list(state.sections.by_rows), name
        for section, one in state.sections.by_rows.items():
            own = none.sections.by_rows[section]
            assert (own.weights.shape, own.slots.shape) == ((0, one.weights.shape[1]), (0, one.slots.shape[1]))
    engine.close()


def test_servers_without_a_place_are_refused(servers):
    table = TableSpec("t", 40, 4, SGD(0.1), "mean")
    with pytest.raises(ConfigError, match="at least one for each host"):
        served(servers, 0.05, features=[FeatureSpec("f", table)])


def move_to(engine: PsEngine, target, train) -> PsEngine:
    """The engine on other servers, which takes over between two steps; ``train`` trains one beside the move."""
    moving = EngineMove(engine, lambda check: target(), InCaller(), sources_of(engine))
    for k in range(9):
        found = moving.advance(may_end=k > 3)
        if found is not None:
            assert moving.figures.stage is MoveStage.DONE
            engine.close()
            return found
        train()
    raise AssertionError("the move has not ended")


@pytest.mark.parametrize("reset", ["zero", "initial", "restored"])
@pytest.mark.parametrize("count", [1, 2])
def test_pruned_tables_move_while_they_train(reset, count):
    """With rows that have left, also by rounds during the move: as many servers have the bits of tables that stay."""
    options = {"round_steps": 3, "decay_steps": 4, "reset": reset}
    with thread_servers(3 * count) as made:
        first, other, still = (made[k * count : (k + 1) * count] for k in range(3))
        moved, stays, steps = served(first, 0.4, **options), served(still, 0.4, **options), 0

        def train() -> None:
            nonlocal steps
            steps += 1
            batch = popular_batch(steps, shift=steps // 3)
            assert step(moved, batch, steps) == step(stays, batch, steps)

        for target in (other, first):
            for _ in range(4):
                train()
            moved = move_to(moved, partial(target_on, target, 0.4, **options), train)
            train()
            same_rows(moved, stays)
        for _ in range(7):
            train()
        same_rows(moved, stays)
        histories = histories_of(stays.state())
        assert histories["two"].rounds > 4
        assert (histories["two"].left is not None) == (reset == "restored")
        moved.close()
        stays.close()


def target_on(servers, budget, **options) -> PsEngine:
    greeting = Greeting(attempt=next(ATTEMPTS))
    return over([one.connect(greeting) for one in servers], budget, is_first=False, **options)


def same_rows(one: PsEngine, other: PsEngine) -> None:
    """Values, importance, and the values of rows that have left."""
    found, expected = one.state(), other.state()
    same_states(found, expected)
    for name, history in histories_of(expected).items():
        own = histories_of(found)[name]
        assert (own.rows.tobytes(), own.importance.tobytes()) == (history.rows.tobytes(), history.importance.tobytes())
        assert (own.gain, own.step, own.rounds) == (history.gain, history.step, history.rounds)
        if history.left is not None:
            assert own.left.rows.tobytes() == history.left.rows.tobytes()
            assert own.left.weights.tobytes() == history.left.weights.tobytes()
            assert own.left.slots.tobytes() == history.left.slots.tobytes()


def test_pruned_tables_move_to_more_and_fewer_servers():
    """Each server has a share of the places: of more rows than these the most important ones stay, and importance stays of all."""
    options = {"round_steps": 3, "reset": "restored"}
    with thread_servers(4) as made:
        moved, steps = served(made[:1], 0.4, **options), 0

        def train() -> None:
            nonlocal steps
            steps += 1
            step(moved, popular_batch(steps), steps)

        for target in (made[1:4], made[:1]):
            for _ in range(4):
                train()
            before = histories_of(moved.state())
            moved = move_to(moved, partial(target_on, target, 0.4, **options), lambda: None)
            after, state = histories_of(moved.state()), moved.state()
            assert {name: one.importance.tobytes() for name, one in after.items()} == {
                name: one.importance.tobytes() for name, one in before.items()
            }
            assert sum(len(one.rows) for one in state.values()) > 0
        train()
        moved.close()


@pytest.mark.parametrize("who", ["source", "target"])
def test_servers_that_are_lost_in_the_pause_end_the_move_and_change_nothing(who, monkeypatch):
    options = {"round_steps": 3, "reset": "restored"}
    with thread_servers(3) as made:
        moved, stays = served(made[:1], 0.4, **options), served(made[1:2], 0.4, **options)
        for k in range(5):
            assert step(moved, popular_batch(k), k) == step(stays, popular_batch(k), k)

        def lose(self, *given, **named):
            raise ServerLost("a server must answer")

        kind, name = {"source": (PsEngine, "begin_snapshot"), "target": (TableCopy, "copy_whole")}[who]
        moving = EngineMove(moved, partial(move_target, made[2:], options), InCaller(), sources_of(moved))
        monkeypatch.setattr(kind, name, lose)
        with pytest.raises(ServerLost):
            advance_to_its_end(moving)
        monkeypatch.undo()
        assert moving.figures.stage is MoveStage.GIVEN_UP
        for k in range(5, 9):
            assert step(moved, popular_batch(k), k) == step(stays, popular_batch(k), k)
        same_rows(moved, stays)
        moved = move_to(moved, partial(target_on, made[2:], 0.4, **options), lambda: None)
        same_rows(moved, stays)


def advance_to_its_end(moving: EngineMove) -> None:
    while moving.advance() is None:
        pass


def move_target(servers, options, check) -> PsEngine:
    return target_on(servers, 0.4, **options)


#: The steps of a move, after each of which a server is killed.
STEPS = {
    "the load has begun": (TableCopy, "begin"),
    "the rows of a moment are kept": (PsEngine, "begin_snapshot"),
    "all rows are taken": (TableCopy, "copy_whole"),
    "the load has ended": (TableCopy, "end"),
}


@pytest.mark.slow
@pytest.mark.parametrize("who", ["source", "target"])
@pytest.mark.parametrize("at", STEPS)
def test_servers_that_are_killed_at_each_step_of_a_move_change_no_bit(tmp_path, monkeypatch, at, who):
    """One that had begun a load is another generation without rows, which ends the move; all others go on from their memory."""
    options = {"round_steps": 3, "decay_steps": 4, "reset": "restored"}
    with processes(tmp_path, 2) as running, thread_servers(1) as calm:
        source, target = running
        moved, stays, steps = on_process(source, is_first=True, **options), served(calm, 0.4, **options), 0
        kind, name = STEPS[at]
        work = getattr(kind, name)

        def work_and_kill(self, *given, **named):
            monkeypatch.undo()
            found = work(self, *given, **named)
            killed = source if who == "source" else target
            killed.kill()
            killed.start()
            return found

        def train() -> None:
            nonlocal steps
            steps += 1
            batch = popular_batch(steps, shift=steps // 3)
            assert step(moved, batch, steps) == step(stays, batch, steps)

        for _ in range(5):
            train()
        monkeypatch.setattr(kind, name, work_and_kill)
        open_target = partial(on_process, target, is_first=False, **options)
        if who == "target" and at != "the load has ended":
            with pytest.raises(ServerLost):
                move_to(moved, open_target, train)
            train()
        moved = move_to(moved, open_target, train)
        for _ in range(4):
            train()
        same_rows(moved, stays)
        moved.close()
        stays.close()


def on_process(server, **options) -> PsEngine:
    return over([link_to(server.address, attempt=next(ATTEMPTS))], 0.4, **options)
