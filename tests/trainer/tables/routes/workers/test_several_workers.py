"""One client of several embedding workers: the bits of one worker, updates in their order, and a bound that holds in every lane."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.embedding_workers import ThreadWorker, connects_of, engine_through
from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.trainer.servers.test_overlapping_lookups import late, overlapped
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.tables.routes.servers import test_hashed_servers as hashed
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.routes.workers.test_worker_engine import drop_connections
from tests.trainer.tables.table_states import assert_same
from trainer.options.pruning import PruningOptions
from trainer.servers.client_updates import Greeting, Mode
from trainer.servers.run_servers import RunServers
from trainer.servers.session_roles import SessionRole
from trainer.tables import SGD, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import MOST_UNANSWERED
from trainer.tables.wire.settings import WireSettings

SEED = 3
#: Each update takes 1 from the only row: its value counts the updates that a lookup has seen.
COUNTING = (FeatureSpec("counts", TableSpec("counts", 4, 1, SGD(1.0), "sum")),)


@contextmanager
def through_workers(lanes: int, servers: int = 2, features=FEATURES, **given):
    """An engine, its workers and the servers."""
    with thread_servers(servers) as made:
        workers = [ThreadWorker([one.address for one in made]) for _ in range(lanes)]
        engine = engine_through(features, made, *workers, seed=given.pop("seed", SEED), **given)
        yield engine, workers, made
        engine.close()
        for one in workers:
            one.close()


@settings(max_examples=scaled(12))
@given(st.integers(2, 4), st.integers(1, 3), st.sampled_from(["plain", "unique"]), st.booleans(), st.integers(0, 1000))
def test_bits_are_those_of_the_engine_of_one_process(lanes, servers, ids, is_planned, seed):
    features = FEATURES[:-1] if is_planned else FEATURES
    plan = mixed_plan(features, servers) if is_planned else None
    seeds = range(seed, seed + 7)
    with through_workers(lanes, servers, features, seed=seed, plan=plan, wire=WireSettings(ids)) as (
        engine,
        workers,
        _,
    ):
        alone = CpuEngine(features, seed=seed)
        assert train(engine, seeds, features) == train(alone, seeds, features)
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        done = [one.worker.status() for one in workers]
        assert sum(one.updates for one in done) == sum(one.fetches for one in done) == 7
        assert max(one.updates for one in done) - min(one.updates for one in done) <= 1


@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_lookups_ahead_see_what_they_see_in_one_process(lanes, ahead):
    """Those that do not overlap have ended before the next update is sent, in whatever lane that is."""
    with through_workers(lanes, held=ahead + 1) as (engine, _, _):
        alone = CpuEngine(FEATURES, seed=SEED, held=ahead + 1)
        assert overlapped(engine, 20, ahead) == late(alone, 20, ahead)
        assert_same(engine.state(), alone.state())


@pytest.mark.parametrize("lanes", [2, 3])
def test_hashed_tables_evict_and_admit_as_over_the_servers(lanes):
    with (
        through_workers(lanes, features=hashed.FEATURES, hashed=hashed.LIMITS) as (engine, _, _),
        thread_servers(2) as others,
    ):
        direct = PsEngine(hashed.FEATURES, seed=SEED, servers=[one.connect() for one in others], hashed=hashed.LIMITS)
        for seed in range(25):
            assert hashed.step(engine, seed) == hashed.step(direct, seed), seed
        assert_same(engine.state(), direct.state())
        direct.close()


def test_pruned_tables_have_their_rounds_as_over_the_servers():
    pruning = PruningOptions.read({"budget": 0.2, "round_steps": 2, "decay_steps": 3})
    with through_workers(3, pruning=pruning) as (engine, _, _), thread_servers(2) as others:
        direct = PsEngine(FEATURES, seed=SEED, servers=[one.connect() for one in others], pruning=pruning)
        assert train(engine, range(12)) == train(direct, range(12))
        assert_same(engine.state(), direct.state())
        direct.close()


def counting_batch(events: int = 2) -> IdBatch:
    return IdBatch(np.zeros(events, np.int64), np.arange(events + 1)[None], None, (4,))


@settings(max_examples=scaled(15))
@given(st.integers(2, 4), st.integers(0, 6), st.integers(0, 1000))
def test_no_lookup_misses_more_updates_than_the_bound(lanes, ahead, seed):
    """Counted in the row itself. Lanes are slowed at random, so that updates come to the servers in another order than their own."""
    random = Random(seed)
    with through_workers(lanes, 1, COUNTING, overlaps=True, held=ahead + 2) as (engine, workers, _):
        for one in workers:
            slow_down(one, random)
        begun, found = deque(), []
        begin = float(engine.weights_of("counts", np.array([0]))[0, 0])
        batches = [counting_batch() for _ in range(20)]

        def end() -> None:
            step, batch, looked_up = begun.popleft()
            found.append((step, round(begin - float(looked_up()[0, 0]))))
            engine.apply_gradients(batch, np.full((2, 1), 0.5, np.float32))

        for step, batch in enumerate(batches):
            begun.append((step, batch, engine.begin_lookup(batch)))
            while len(begun) > ahead:
                end()
        while begun:
            end()
        assert all(step - ahead <= seen <= step for step, seen in found), found
        assert round(begin - float(engine.weights_of("counts", np.array([0]))[0, 0])) == len(batches)
        assert sum(one.worker.status().updates for one in workers) == len(batches)


def slow_down(worker: ThreadWorker, random: Random) -> None:
    """Answer some requests late."""
    handle, pauses = worker.worker.handle, [random.choice([0.0, 0.0, 0.003, 0.01]) for _ in range(100)]

    def late_handle(session, header, body):
        threading.Event().wait(pauses[header.number % len(pauses)])
        return handle(session, header, body)

    worker.worker.handle = late_handle


def test_connections_that_end_in_any_lane_lose_and_repeat_nothing():
    random = Random(1)
    with through_workers(3, overlaps=True, held=6) as (engine, workers, servers):
        alone, steps = CpuEngine(FEATURES, seed=SEED), scaled(20)
        begun: deque = deque()

        def end() -> None:
            step, batch, looked_up = begun.popleft()
            looked_up()
            engine.apply_gradients(batch, gradients_of(batch, engine.width, step))
            alone.apply_gradients(batch, gradients_of(batch, engine.width, step))

        for step in range(steps):
            if random.random() < 0.7:
                drop_connections(random.choice(workers))
            batch = random_batch(FEATURES, step)
            begun.append((step, batch, engine.begin_lookup(batch)))
            while len(begun) > 4:
                end()
        while begun:
            end()
        engine.finish()
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        assert [one.rows.status().applied for one in servers] == [(steps,)] * 2
        assert sum(one.reconnections for one in engine.links) > 1, (
            "a connection that ends before it is used again counts once"
        )


def test_many_updates_without_a_lookup_stay_within_what_servers_recognize():
    """A server knows so many of the newest updates again, over all lanes."""
    steps = 2 * MOST_UNANSWERED + 9
    with through_workers(3, 1, COUNTING, held=2) as (engine, _, servers):
        batches = [counting_batch() for _ in range(3)]
        begin = float(engine.weights_of("counts", np.array([0]))[0, 0])
        for step in range(steps):
            engine.apply_gradients(batches[step % 3], np.full((2, 1), 0.5, np.float32))
            assert len(engine._unconfirmed) <= MOST_UNANSWERED
        engine.finish()
        assert servers[0].rows.status().applied == (steps,)
        assert round(begin - float(engine.weights_of("counts", np.array([0]))[0, 0])) == steps


def test_another_attempt_takes_the_place_of_all_lanes():
    with through_workers(3) as (engine, workers, servers):
        alone = CpuEngine(FEATURES, seed=SEED)
        seen = train(engine, range(4))
        own, loads = Greeting(attempt=7), Greeting(attempt=7, role=SessionRole.LOADS)
        engine.finish()
        engine.connect([one.connect(loads) for one in servers], connects_of(workers, own), keeps_rows=True)
        seen += train(engine, range(4, 9))
        fewer = Greeting(attempt=8)
        engine.finish()
        engine.connect(
            [one.connect(Greeting(attempt=8, role=SessionRole.LOADS)) for one in servers],
            connects_of(workers[:2], fewer),
            keeps_rows=True,
        )
        assert seen + train(engine, range(9, 13)) == train(alone, range(13))
        assert_same(engine.state(), alone.state())
        engine.load_state(alone.state())
        assert train(engine, range(13, 16)) == train(alone, range(13, 16))


def test_a_worker_that_is_about_to_end_takes_no_lane():
    """Another one takes it."""
    with thread_servers(2) as servers:
        workers = [ThreadWorker([one.address for one in servers]) for _ in range(2)]
        workers[0].service._drain.begin("SIGTERM", 60.0)
        run = RunServers(tuple(one.address for one in servers), workers=tuple(one.address for one in workers))
        engine, alone = run.engine(1, FEATURES, SEED, 2), CpuEngine(FEATURES, seed=SEED)
        assert len(engine.links) == 2
        assert train(engine, range(4)) == train(alone, range(4))
        engine.finish()
        assert_same(engine.state(), alone.state())
        assert [one.worker.status().updates for one in workers] == [0, 4]
        engine.close()
        for one in workers:
            one.close()


def test_one_worker_has_several_lookups_on_their_way_where_lookups_overlap():
    """Of training that looks 5 steps ahead: each batch and the next one has a lane of its own."""
    with thread_servers(2) as servers:
        worker = ThreadWorker([one.address for one in servers])
        run = RunServers(tuple(one.address for one in servers), mode=Mode.EACH, workers=(worker.address,))
        engine, alone = run.engine(1, FEATURES, SEED, 6), CpuEngine(FEATURES, seed=SEED)
        assert len(engine.links) == 7
        for step in range(20):
            batch = random_batch(FEATURES, step)
            for one in (engine, alone):
                one.lookup(batch)
                one.apply_gradients(batch, gradients_of(batch, one.width, step))
        assert_same(engine.state(), alone.state())
        engine.close()
        worker.close()
