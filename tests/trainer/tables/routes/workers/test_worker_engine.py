"""The engine through an embedding worker: the bits of the engine of one process, and a worker that may be replaced at any moment."""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.embedding_workers import ThreadWorker, engine_through
from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import BadBatch, ConfigError, NonFiniteLoss, ServerLost
from trainer.options.pruning import PruningOptions
from trainer.servers.client_updates import Greeting
from trainer.servers.session_roles import SessionRole
from trainer.tables import SGD, Adagrad, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.wire.settings import WireSettings
from trainer.wire.frames import HEADER_BYTES
from transforms.errors import HeadraceError

SEED = 3


@contextmanager
def through_worker(count: int = 2, features=FEATURES, **settings):
    """An engine, its worker and its servers."""
    with thread_servers(count) as servers:
        worker = ThreadWorker([one.address for one in servers])
        engine = engine_through(features, servers, worker, seed=settings.pop("seed", SEED), **settings)
        yield engine, worker, servers
        engine.close()
        worker.close()


@settings(max_examples=scaled(12))
@given(st.integers(1, 3), st.sampled_from(["plain", "unique"]), st.booleans(), st.integers(0, 1000))
def test_bits_are_those_of_the_engine_of_one_process(count, ids, is_planned, seed):
    features = FEATURES[:-1] if is_planned else FEATURES
    plan = mixed_plan(features, count) if is_planned else None
    seeds = range(seed, seed + 5)
    with through_worker(count, features, seed=seed, plan=plan, wire=WireSettings(ids)) as (engine, _, _):
        alone = CpuEngine(features, seed=seed)
        assert train(engine, seeds, features) == train(alone, seeds, features)
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        rows = np.arange(50)
        assert engine.weights_of("one", rows).tobytes() == alone.weights_of("one", rows).tobytes()


@pytest.mark.parametrize("ids", ["plain", "unique"])
def test_pruned_tables_are_those_of_the_engine_on_the_servers(ids):
    """Also their importance, and which rows keep their places in rounds."""
    pruning = PruningOptions.read({"budget": 0.2, "round_steps": 2, "decay_steps": 3})
    with through_worker(2, pruning=pruning, wire=WireSettings(ids)) as (engine, _, _), thread_servers(2) as others:
        connects = [one.connect() for one in others]
        direct = PsEngine(FEATURES, seed=SEED, servers=connects, wire=WireSettings(ids), pruning=pruning)
        assert (engine.setup.pruned, engine.setup.workers, direct.setup.pruned) == (True, True, True)
        assert train(engine, range(9)) == train(direct, range(9))
        state, expected = engine.state(), direct.state()
        assert_same(state, expected)
        for name, one in expected.items():
            found = state[name].sections
            assert found.arrays["pruning"].tobytes() == one.sections.arrays["pruning"].tobytes()
            importance = one.sections.by_rows["importance"]
            assert found.by_rows["importance"].weights.tobytes() == importance.weights.tobytes()
        assert expected["two"].sections.arrays["pruning"][2] == 4, "rounds"
        engine.load_state(state)
        assert_same(engine.state(), expected)
        direct.close()


@pytest.mark.parametrize("values", ["fp16", "fp14"])
def test_encoded_values_are_near_those_of_the_engine_of_one_process(values):
    with through_worker(wire=WireSettings("unique", values)) as (engine, _, _):
        alone = CpuEngine(FEATURES, seed=SEED)
        for seed in range(4):
            batch = random_batch(FEATURES, seed)
            np.testing.assert_allclose(engine.lookup(batch), alone.lookup(batch), rtol=0.02, atol=0.02)
            for one in (engine, alone):
                one.apply_gradients(batch, gradients_of(batch, one.width, seed))
        empty = random_batch(FEATURES, 1, longest=0, weighted=False)
        assert not engine.lookup(empty).any()


def test_batches_may_be_looked_up_ahead():
    ahead = 3
    with through_worker(held=ahead + 1) as (engine, _, _):
        alone = CpuEngine(FEATURES, seed=SEED, held=ahead + 1)
        batches = [random_batch(FEATURES, seed) for seed in range(9)]
        seen = {}
        for one in (engine, alone):
            found = [one.lookup(batch).tobytes() for batch in batches[:ahead]]
            for step, batch in enumerate(batches[:-ahead]):
                found.append(one.lookup(batches[step + ahead]).tobytes())
                one.apply_gradients(batch, gradients_of(batch, one.width, step))
            seen[one] = found
        assert seen[engine] == seen[alone]
        assert_same(engine.state(), alone.state())


def test_an_update_without_a_lookup_and_two_of_one_batch_are_updates():
    with through_worker() as (engine, _, _):
        alone = CpuEngine(FEATURES, seed=SEED)
        for seed in range(3):
            for one in (engine, alone):
                batch = random_batch(FEATURES, seed)
                one.apply_gradients(batch, gradients_of(batch, one.width, seed))
                one.apply_gradients(batch, gradients_of(batch, one.width, seed + 100))
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()


def test_optimizers_that_differ_by_their_rates_alone_stand_as_at_the_client():
    """Tables of equal optimizers are stacked; learning rates are evaluated at the client, once a step."""
    rates = {kind: iter([0.5, 0.25, 0.125]) for kind in ("worker", "cpu")}

    def features_of(kind):
        rate = Adagrad(lambda: next(rates[kind]), 0.25)
        kinds = [Adagrad(0.1, 0.25), rate, Adagrad(0.2, 0.25), rate, Adagrad(0.1, 0.25), SGD(0.1)]
        return [FeatureSpec(f"f{k}", TableSpec(f"t{k}", 30 + k, 4, one)) for k, one in enumerate(kinds)]

    with through_worker(3, features := features_of("worker")) as (engine, _, _):
        alone = CpuEngine(others := features_of("cpu"), seed=SEED)
        assert train(engine, range(3), features) == train(alone, range(3), others)
        assert_same(engine.state(), alone.state())


def test_what_is_refused_changes_nothing():
    with through_worker() as (engine, _, _):
        train(engine, range(3))
        before, updates = engine.state(), engine.updates
        batch = random_batch(FEATURES, 9)
        with pytest.raises(NonFiniteLoss):
            engine.apply_gradients(batch, np.full((batch.rows, engine.width), np.nan, np.float32))
        with pytest.raises(BadBatch):
            engine.apply_gradients(batch, np.zeros((batch.rows, engine.width + 1), np.float32))
        with pytest.raises(BadBatch):
            engine.lookup(IdBatch(batch.ids + 10_000, batch.offsets))
        with pytest.raises(ConfigError):
            engine.weights_of("none", np.array([0]))
        assert_same(engine.state(), before)
        assert engine.updates == updates


def test_gradients_may_be_overwritten_after_the_call():
    """They may be sent again, as they were."""
    with through_worker() as (engine, worker, _):
        alone = CpuEngine(FEATURES, seed=SEED)
        for one in (engine, alone):
            batch = random_batch(FEATURES, 1)
            one.lookup(batch)
            gradients = gradients_of(batch, one.width, 1)
            one.apply_gradients(batch, gradients)
            gradients[:] = 1e6
        drop_connections(worker)
        assert train(engine, [2]) == train(alone, [2])
        assert_same(engine.state(), alone.state())


def drop_connections(worker: ThreadWorker) -> None:
    """End all connections of a worker, which then has nothing of its clients."""
    for connection in list(worker.service._service._connections._open.values()):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def test_a_worker_that_loses_its_clients_gets_their_batches_again():
    with through_worker(held=3) as (engine, worker, servers):
        alone = CpuEngine(FEATURES, seed=SEED, held=3)
        batches = [random_batch(FEATURES, seed) for seed in range(12)]
        seen = {}
        for one in (engine, alone):
            found = [one.lookup(batch).tobytes() for batch in batches[:2]]
            for step, batch in enumerate(batches[:-2]):
                if one is engine and step % 3 != 2:
                    drop_connections(worker)
                one.apply_gradients(batch, gradients_of(batch, one.width, step))
                if one is engine and step % 3:
                    drop_connections(worker)
                found.append(one.lookup(batches[step + 2]).tobytes())
            seen[one] = found
        assert seen[engine] == seen[alone]
        drop_connections(worker)
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        assert engine.links[0].reconnections > 4
        assert [one.rows.status().applied for one in servers] == [(10,)] * 2
        snapshot = engine.begin_snapshot(most_bytes=1 << 20)
        drop_connections(worker)
        for t, table in enumerate(engine.tables):
            rows = np.concatenate([part.rows for part in snapshot.table(t)])
            assert rows.tolist() == alone.state()[table.name].rows.tolist()


def test_a_server_that_lost_its_rows_is_not_restored():
    """Also where the worker is another one, which has not seen the rows before."""
    with through_worker() as (engine, worker, servers):
        train(engine, range(2))
        engine.finish()
        servers[1].rows._rows.begin_load()
        servers[1].rows._rows.end_load()
        drop_connections(worker)
        with pytest.raises(ServerLost, match="lost its rows"):
            train(engine, range(2, 3))


def test_a_worker_with_other_servers_is_refused():
    with thread_servers(3) as servers:
        for addresses in ([servers[1], servers[0]], servers[:1], servers[1:]):
            worker = ThreadWorker([one.address for one in addresses])
            with pytest.raises(HeadraceError, match=r"must have|must be"):
                engine_through(FEATURES, servers[:2], worker, seed=SEED)
            worker.close()


def test_rows_stay_when_an_engine_ends_and_another_begins():
    with through_worker() as (engine, worker, servers):
        seen = train(engine, range(3))
        state = engine.state()
        engine.close()
        again = engine_through(FEATURES, servers, worker, seed=SEED)
        assert_same(again.state(), state)
        alone = CpuEngine(FEATURES, seed=SEED)
        assert seen + train(again, range(3, 6)) == train(alone, range(6))
        again.load_state(state)
        assert_same(again.state(), state)
        again.close()


def test_a_newer_attempt_goes_on_over_other_connections():
    with through_worker() as (engine, worker, servers):
        alone = CpuEngine(FEATURES, seed=SEED)
        seen = train(engine, range(2))
        own = Greeting(attempt=7)
        loads = Greeting(attempt=7, role=SessionRole.LOADS)
        engine.finish()
        engine.connect([one.connect(loads) for one in servers], [worker.connect(own)], keeps_rows=True)
        assert seen + train(engine, range(2, 5)) == train(alone, range(5))
        assert_same(engine.state(), alone.state())


def test_a_dense_worker_sends_and_receives_no_rows():
    """Bags of many ids: what comes is the width of the activations, and what goes the ids and the gradients."""
    features = [FeatureSpec("a", TableSpec("t", 1 << 20, 16, SGD(0.5), "sum"))]
    with through_worker(1, features, wire=WireSettings("unique")) as (engine, _, _):
        draw = np.random.default_rng(0)
        ids = draw.integers(0, 1 << 20, 64 * 20)
        batch = IdBatch(ids, np.arange(0, len(ids) + 1, 20)[None].astype(np.int64))
        (link,) = engine.links
        sent, received = link.sent_bytes, link.received_bytes
        engine.lookup(batch)
        engine.apply_gradients(batch, gradients_of(batch, 16, 1))
        assert link.received_bytes - received == HEADER_BYTES + 64 * 16 * 4 + 8
        assert link.sent_bytes - sent < 2 * HEADER_BYTES + 64 * 16 * 4 + 5 * len(ids)
