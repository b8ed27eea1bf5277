"""Hashed tables on servers: a load with the histories goes on as if there was none, on any number of servers rows stay those used last."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tests.support.embedding_workers import ThreadWorker, engine_through
from tests.support.parameter_servers import sources_of, thread_servers
from tests.trainer.tables.routes.servers.random_batches import gradients_of, random_batch
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.combinations import Setup
from trainer.planning.plan import PartitionPlan
from trainer.servers.client_updates import Greeting
from trainer.servers.moves.engine_move import EngineMove
from trainer.servers.session_roles import SessionRole
from trainer.tables import Adagrad, Adam, FeatureSpec, IdBatch, TableSpec
from trainer.tables.engine import TableSections
from trainer.tables.hashed_counts import sum_counts
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.snapshot_states import state_of
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.wire.settings import WireSettings

SEED = 3
USERS, WORDS = 2**63 - 1, 2**62
FEATURES = (
    FeatureSpec("user", TableSpec("user", USERS, 4, Adagrad(0.1, 0.25), "sum")),
    FeatureSpec("place", TableSpec("place", 30, 4, Adagrad(0.1, 0.25), "mean")),
    FeatureSpec("words", TableSpec("words", WORDS, 3, Adam(0.1), "mean")),
)
LIMITS = {
    "user": TableLimits(24, expire_after_steps=9),
    "words": TableLimits(18, admit_after=2, candidates=32, candidate_steps=50),
}


def batch_of(seed: int) -> IdBatch:
    """A batch whose ids are spread over the whole range; few occur often."""
    small = [FeatureSpec(one.name, TableSpec(one.name, 30, 1, Adagrad(0.1))) for one in FEATURES]
    found = random_batch(small, seed, events=6, weighted=False)
    ids = found.ids * ((2**62 - 1) // 30)
    first, stop = found.offsets[1, 0], found.offsets[1, -1]
    ids[first:stop] = found.ids[first:stop]
    return IdBatch(ids, found.offsets, found.weights)


def step(engine, seed: int) -> bytes:
    batch = batch_of(seed)
    seen = engine.lookup(batch).tobytes()
    engine.apply_gradients(batch, gradients_of(batch, engine.width, seed))
    return seen


@contextmanager
def engine_on(count: int, **options):
    with thread_servers(count) as servers:
        connects = [one.connect() for one in servers]
        made = PsEngine(FEATURES, seed=SEED, servers=connects, threads=1, **{"hashed": LIMITS, **options})
        with closing(made):
            yield made, servers


def counts_of(servers):
    return sum_counts(one.rows.status().hashed for one in servers)


def assert_same_sections(found, expected):
    assert found.keys() == expected.keys()
    for name, state in expected.items():
        arrays = state.sections.arrays
        assert arrays.keys() == ({"ages", "steps", "candidates"} if name in LIMITS else set())
        for section, array in arrays.items():
            assert found[name].sections.arrays[section].tobytes() == array.tobytes(), (name, section)


@pytest.mark.parametrize("wire", [None, WireSettings("unique", "float32")])
def test_a_loaded_state_goes_on_as_the_engine_that_was_never_stopped(wire):
    with engine_on(2, wire=wire) as (whole, servers), engine_on(2) as (resumed, _):
        for seed in range(25):
            step(whole, seed)
        middle = whole.state()
        counts = counts_of(servers)
        assert all(one.evicted + one.expired for one in counts.values()), counts
        assert counts["words"].unadmitted
        assert all(len(middle[name].rows) <= limits.capacity for name, limits in LIMITS.items())
        resumed.load_state(middle)
        assert_same_sections(resumed.state(), middle)
        for seed in range(25, 50):
            assert step(whole, seed) == step(resumed, seed), seed
        expected, found = whole.state(), resumed.state()
        assert_same(found, expected)
        assert_same_sections(found, expected)


@pytest.mark.parametrize("wire", [None, WireSettings("unique", "float32")])
def test_an_embedding_worker_has_the_bits_of_servers_alone(wire):
    """Also one that takes the place of another in the middle, and after a state is loaded."""
    with engine_on(2, wire=wire) as (alone, own), thread_servers(2) as servers:
        worker = ThreadWorker([one.address for one in servers])
        with closing(engine_through(FEATURES, servers, worker, seed=SEED, wire=wire, hashed=LIMITS)) as through:
            assert through.setup == Setup(servers=True, workers=True, hashed=True)
            for seed in range(20):
                assert step(alone, seed) == step(through, seed), seed
            middle = through.state()
            assert_same_sections(middle, alone.state())
            assert counts_of(servers) == counts_of(own)
            for engine in (alone, through):
                engine.load_state(middle)
            other = ThreadWorker([one.address for one in servers])
            through.connect(
                [one.connect(Greeting(role=SessionRole.LOADS)) for one in servers], [other.connect()], keeps_rows=True
            )
            for seed in range(20, 40):
                assert step(alone, seed) == step(through, seed), seed
            expected, found = alone.state(), through.state()
        assert_same(found, expected)
        assert_same_sections(found, expected)
        for one in (worker, other):
            one.close()


def moved(engine, servers):
    """The engine with its rows on other servers, and what the move has done; a step is trained before each of its passes."""
    with ThreadPoolExecutor(1) as executor:
        connects = [one.connect(Greeting(attempt=2)) for one in servers]
        move = EngineMove(
            engine,
            lambda check: PsEngine(FEATURES, seed=SEED, servers=connects, threads=1, hashed=LIMITS),
            executor,
            sources_of(engine),
        )
        while (found := move.advance()) is None:
            time.sleep(0.001)
        return found, move.figures


def test_a_move_keeps_ages_and_counts():
    """On as many servers all later bits are those of servers that keep their tables; what is evicted and admitted, too."""
    with engine_on(2) as (stays, _), engine_on(2) as (engine, _), thread_servers(2) as others:
        for seed in range(25):
            assert step(stays, seed) == step(engine, seed)
        rows = sum(len(one.rows) for one in engine.state().values())
        found, figures = moved(engine, others)
        with closing(found):
            assert figures.copied_rows + figures.pause_rows == rows
            assert_same_sections(found.state(), stays.state())
            for seed in range(25, 50):
                assert step(stays, seed) == step(found, seed), seed
            assert_same(found.state(), stays.state())
            assert_same_sections(found.state(), stays.state())


def test_a_move_to_more_servers_keeps_rows_and_ages():
    with engine_on(1) as (engine, _), thread_servers(3) as others:
        for seed in range(25):
            step(engine, seed)
        before = engine.state()
        found, _ = moved(engine, others)
        with closing(found):
            after = found.state()
            for name, limits in LIMITS.items():
                ages = dict(zip(before[name].rows.tolist(), before[name].sections.arrays["ages"].tolist(), strict=True))
                kept = after[name].rows.tolist()
                assert after[name].sections.arrays["ages"].tolist() == [ages[row] for row in kept]
                evicted = counts_of(others)[name].evicted
                assert len(kept) == len(ages) - evicted <= limits.capacity
            assert_same({"place": after["place"]}, {"place": before["place"]})


def test_one_server_has_the_rows_of_an_engine_in_one_process():
    with engine_on(1) as (served, _):
        local = ShardedTables(FEATURES, seed=SEED, exchange=OneHost(), hashed=LIMITS, threads=2)
        for seed in range(30):
            assert step(served, seed) == step(local, seed), seed
        assert_same(served.state(), local.state())


def test_on_other_servers_the_rows_used_last_stay_and_the_others_are_counted():
    with engine_on(1) as (one, _), engine_on(3) as (three, servers):
        for seed in range(25):
            step(one, seed)
        states = one.state()
        three.load_state(states)
        found = three.state()
        for name in LIMITS:
            rows = found[name].rows
            assert set(rows) <= set(states[name].rows)
            assert len(rows) + counts_of(servers)[name].evicted == len(states[name].rows)
            kept = dict(zip(states[name].rows.tolist(), states[name].sections.arrays["ages"].tolist(), strict=True))
            sections = found[name].sections.arrays
            assert [kept[row] for row in rows.tolist()] == sections["ages"].tolist()
            assert not sections["candidates"].any()
        step(three, 99)


def test_a_snapshot_has_the_rows_of_its_moment():
    with engine_on(2) as (engine, _):
        for seed in range(20):
            step(engine, seed)
        expected = engine.state()
        snapshot = engine.begin_snapshot(most_bytes=1 << 20)
        for seed in range(20, 40):
            step(engine, seed)
        for t, table in enumerate(engine.tables):
            assert snapshot.counts[t] == len(expected[table.name].rows)
            found = state_of(snapshot, t, table)
            for name in ("rows", "weights", "slots"):
                assert getattr(found, name).tobytes() == getattr(expected[table.name], name).tobytes(), (
                    table.name,
                    name,
                )
            for name, array in expected[table.name].sections.arrays.items():
                assert found.sections.arrays[name].tobytes() == array.tobytes(), (table.name, name)
        engine.end_snapshot()
        step(engine, 50)


@pytest.mark.parametrize(
    ("hashed", "plan", "problem"),
    [
        ({"users": TableLimits(9)}, None, "a hashed table must be one of the engine's"),
        ({"user": TableLimits(1)}, None, "a hashed table must have a place on each server"),
        ({"user": TableLimits(9)}, PartitionPlan(2, ()), "hashed tables must be placed without a plan"),
        ({"user": TableLimits(9, admit_after=300)}, None, "admit_after must be in range"),
    ],
)
def test_limits_that_cannot_be_are_refused(hashed, plan, problem):
    with thread_servers(2) as servers, pytest.raises(ConfigError, match=problem):
        PsEngine(FEATURES, seed=SEED, servers=[one.connect() for one in servers], hashed=hashed, plan=plan)


@pytest.mark.parametrize("changes", [{"ages": -1}, {"ages": 26}, {"steps": -1}, {"few": 1}, {"type": 1}])
def test_a_history_of_other_rows_is_refused(changes):
    with engine_on(1) as (engine, _):
        for seed in range(3):
            step(engine, seed)
        states = engine.state()
        arrays = states["user"].sections.arrays
        ages, steps = arrays["ages"].copy(), arrays["steps"].copy()
        if "ages" in changes:
            ages[0] = changes["ages"]
        if "steps" in changes:
            steps[0] = -1
        if "few" in changes:
            ages = ages[1:]
        if "type" in changes:
            ages = ages.astype(np.float64)
        sections = TableSections(arrays={**arrays, "ages": ages, "steps": steps})
        with pytest.raises(TornCheckpoint, match="the history of a hashed table must fit its rows"):
            engine.load_state({**states, "user": replace(states["user"], sections=sections)})
        assert_same(engine.state(), states)
