"""Snapshots of engines on servers, read over the wire while training goes on: one moment, and no deadlock."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cutting_proxy import cutting
from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ServerLost
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import CpuEngine, TableState
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.spec import tables_of
from trainer.tables.state_checks import empty_state
from trainer.wire.flight.error_documents import RemoteError

SEED = 3
TABLES = tables_of(FEATURES)
SHORT_SECS = 0.1


def read(snapshot, pause=lambda: None) -> dict[str, TableState]:
    """The state that a snapshot has, read in ranges."""
    found = {}
    for t, table in enumerate(TABLES):
        parts = [empty_state(table)]
        for part in snapshot.table(t):
            parts.append(part)
            pause()
        found[table.name] = TableState(*(np.concatenate([getattr(one, name) for one in parts]) for name in ("rows", "weights", "slots")))  # fmt: skip
    return found


def engine_on(servers, **settings) -> PsEngine:
    return PsEngine(FEATURES, seed=SEED, servers=[one.connect() for one in servers], threads=1, **settings)


@settings(max_examples=scaled(12))
@given(st.integers(1, 3), st.sampled_from([0, 2_000, 10_000, 1 << 20]), st.integers(0, 100))
def test_a_snapshot_is_that_of_its_moment_while_training_goes_on(count, most_bytes, seed):
    with thread_servers(count) as servers, ThreadPoolExecutor(1) as pool:
        engine, alone = engine_on(servers), CpuEngine(FEATURES, seed=SEED)
        train(engine, range(seed, seed + 3))
        train(alone, range(seed, seed + 3))
        for first in (seed + 3, seed + 8):
            expected = alone.state()
            snapshot = engine.begin_snapshot(most_bytes=most_bytes)
            assert snapshot.counts == tuple(len(state.rows) for state in expected.values())
            reading = pool.submit(read, snapshot, lambda: time.sleep(1e-3))
            assert train(engine, range(first, first + 5)) == train(alone, range(first, first + 5))
            assert_same(reading.result(timeout=PATIENCE_SECS), expected)
        assert_same(engine.state(), alone.state())
        engine.close()


def test_a_snapshot_begins_after_all_updates_that_were_sent():
    with thread_servers(2) as servers:
        engine, alone = engine_on(servers), CpuEngine(FEATURES, seed=SEED)
        train(engine, range(3))  # the last one is not waited for
        train(alone, range(3))
        assert_same(read(engine.begin_snapshot(most_bytes=1 << 20)), alone.state())
        engine.close()


def waits(future) -> bool:
    time.sleep(SHORT_SECS)
    return not future.done()


@pytest.mark.medium
@pytest.mark.parametrize("end", ["ends", "dies", "goes on"])
def test_training_that_waits_for_memory_goes_on_when_the_reader(end):
    with thread_servers(2) as servers, ThreadPoolExecutor(1) as pool:
        engine, alone = engine_on(servers), CpuEngine(FEATURES, seed=SEED)
        train(engine, range(3))
        train(alone, range(3))
        expected = alone.state()
        snapshot = engine.begin_snapshot(most_bytes=0)
        training = pool.submit(train, engine, range(3, 6))
        assert waits(training)
        if end == "ends":
            engine.end_snapshot()
        elif end == "dies":
            for remote in engine.servers:
                remote._saving.close()
                remote._saving = None
        else:
            assert_same(read(snapshot, lambda: time.sleep(0.01)), expected)
        assert training.result(timeout=PATIENCE_SECS) == train(alone, range(3, 6))
        assert_same(engine.state(), alone.state())
        engine.close()


def test_a_snapshot_that_was_ended_is_not_read():
    """What it would give is of another moment."""
    with thread_servers(1) as servers:
        engine = engine_on(servers)
        train(engine, range(3))
        snapshot = engine.begin_snapshot(most_bytes=1 << 20)
        engine.end_snapshot()
        with pytest.raises(ServerLost, match="snapshot must be begun"):
            read(snapshot)
        engine.close()


@pytest.mark.slow
def test_a_reader_whose_machine_is_lost_is_freed_by_the_next_attempt():
    """Nothing ends its connection: the update that waits for it must not keep the next attempt out."""
    with thread_servers(1) as (server,), cutting(server.address, lambda: None) as proxy, ThreadPoolExecutor(1) as pool:
        connect = connect_to(proxy.address, LinkOptions(Greeting(attempt=1)))
        engine = PsEngine(FEATURES, seed=SEED, servers=[connect], threads=1)
        train(engine, range(3))
        engine.begin_snapshot(most_bytes=0)
        training = pool.submit(train, engine, range(3, 6))
        assert waits(training)
        new = PsEngine(FEATURES, seed=SEED, servers=[server.connect(Greeting(attempt=2))], threads=1)
        assert isinstance(training.exception(timeout=PATIENCE_SECS), (RemoteError, ServerLost))
        new.load_state(CpuEngine(FEATURES, seed=SEED).state())
        assert train(new, range(3)) == train(CpuEngine(FEATURES, seed=SEED), range(3))
        new.close()
        engine.close()


def test_a_state_is_read_while_another_client_trains():
    """States of two clients: each row is one that some number of updates has made."""
    with thread_servers(1) as (server,), ThreadPoolExecutor(1) as pool:
        one = PsEngine(FEATURES, seed=SEED, servers=[server.connect(Greeting(clients=2))], staleness=None, threads=1)
        other = PsEngine(FEATURES, seed=SEED, servers=[server.connect(Greeting(client=1, clients=2))], staleness=None, threads=1)  # fmt: skip
        training = pool.submit(train, one, range(20))
        sizes = []
        while not training.done():
            sizes.append(sum(len(state.rows) for state in other.state().values()))
        training.result(timeout=PATIENCE_SECS)
        one.finish()
        assert sizes == sorted(sizes)
        assert_same(other.state(), one.state())
        one.close()
        other.close()
