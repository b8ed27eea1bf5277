"""The engine on servers: the bits of the engine of one process, one fetch and one update a server, and no copied byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.support.examples import scaled
from tests.support.kept_kernels import with_bounds_checks
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import BadBatch, ConfigError, NonFiniteLoss
from trainer.tables import SGD, Adagrad, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers import placed_rows
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.spec import tables_of
from trainer.wire.frames import HEADER_BYTES

SEED = 3


@pytest.fixture(scope="module")
def servers():
    with thread_servers(3) as made:
        yield made


@pytest.fixture
def engine(servers):
    """On fresh rows of three servers."""
    made = PsEngine(FEATURES, seed=SEED, servers=[one.connect() for one in servers], threads=2)
    made.load_state(CpuEngine(FEATURES, seed=SEED).state())
    yield made
    made.close()


class CountedLink:
    """A link that counts its frames, and keeps where their answers go."""

    def __init__(self, link) -> None:
        self._link, self.requests = link, []

    def send(self, request) -> None:
        self.requests.append(request)
        self._link.send(request)

    def __getattr__(self, name):
        return getattr(self._link, name)


def counted(server: ThreadServer, links: list[CountedLink]):
    connect = server.connect()

    def make(saves):
        links.append(CountedLink(connect(saves)))
        return links[-1]

    return make


@settings(max_examples=scaled(16))
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1000))
def test_bits_are_those_of_the_engine_of_one_process(count, threads, seed):
    seeds = range(seed, seed + 6)
    with thread_servers(count) as made:
        engine = PsEngine(FEATURES, seed=seed, servers=[one.connect() for one in made], threads=threads)
        alone = CpuEngine(FEATURES, seed=seed, threads=threads)
        assert train(engine, seeds) == train(alone, seeds)
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        rows = np.arange(50)
        assert engine.weights_of("one", rows).tobytes() == alone.weights_of("one", rows).tobytes()
        engine.close()


def test_a_batch_takes_one_fetch_and_one_update_a_server(servers):
    """Whatever the number of tables."""
    for tables in (1, 40):
        features = [FeatureSpec(f"f{k}", TableSpec(f"t{k}", 30 + k, 1 + k % 3, SGD(0.5))) for k in range(tables)]
        links: list[CountedLink] = []
        with thread_servers(3) as own:
            engine = PsEngine(features, seed=SEED, servers=[counted(one, links) for one in own])
            for link in links:
                link.requests.clear()
            sent = [link.sent_bytes for link in links]
            train(engine, range(5), features, events=30)
            engine.finish()
            for link, before in zip(links, sent, strict=True):
                assert Counter(one.kind for one in link.requests) == {Kind.FETCH: 5, Kind.UPDATE: 5}
                total = sum(HEADER_BYTES + one.header.body_bytes for one in link.requests)
                assert link.sent_bytes - before == total
            engine.close()


def test_no_byte_of_whole_rows_is_copied(servers, monkeypatch):
    """Bags read the array that answers are received into, and updates are sent from the array where gradients are summed."""
    links, read, summed = [], [], []
    combine, sum_gradients = placed_rows.PlacedRows.combine, placed_rows.PlacedRows.sum_gradients

    def combined(self, placed, events, positions, weights, out):
        read.append(weights)
        combine(self, placed, events, positions, weights, out)

    def sums_of(self, placed, rows, gradients, sums):
        summed.append(sums)
        sum_gradients(self, placed, rows, gradients, sums)

    monkeypatch.setattr(placed_rows.PlacedRows, "combine", combined)
    monkeypatch.setattr(placed_rows.PlacedRows, "sum_gradients", sums_of)
    engine = PsEngine(FEATURES, seed=SEED, servers=[counted(one, links) for one in servers])
    for link in links:
        link.requests.clear()
    train(engine, [1])
    engine.finish()
    assert engine.copied_bytes == 0
    fetches, updates = ([one for link in links for one in link.requests if one.kind == kind] for kind in (Kind.FETCH, Kind.UPDATE))  # fmt: skip
    for fetch in fetches:
        assert all(np.shares_memory(space, read[0]) for space in fetch.space if len(space))
    for update in updates:
        pieces = [np.frombuffer(part, np.uint8) for part in update.body]
        shared = [part for part in pieces if np.shares_memory(part, summed[0])]
        assert sum(part.nbytes for part in shared) > sum(part.nbytes for part in pieces) // 2
    engine.close()


def test_rows_in_slices_and_copies_are_counted_as_copied():
    features = FEATURES[:-1]  # columns of the last one's table may not be apart
    with thread_servers(3) as made:
        plan = mixed_plan(features, 3)
        engine = PsEngine(features, seed=SEED, servers=[one.connect() for one in made], plan=plan)
        alone = CpuEngine(features, seed=SEED)
        assert train(engine, range(4), features) == train(alone, range(4), features)
        assert_same(engine.state(), alone.state())
        assert engine.copied_bytes > 0
        engine.close()


def test_learning_rates_are_evaluated_at_the_client():
    """Once a step, in its order; servers get numbers."""
    rates = {kind: iter([0.5, 0.25, 0.125]) for kind in ("ps", "cpu")}
    calls = Counter()

    def features_of(kind):
        def rate():
            calls[kind] += 1
            return next(rates[kind])

        return [FeatureSpec("a", TableSpec("t", 30, 4, Adagrad(rate, 0.25)))]

    with thread_servers(2) as made:
        features = features_of("ps")
        engine = PsEngine(features, seed=SEED, servers=[one.connect() for one in made])
        assert not calls
        alone = CpuEngine(others := features_of("cpu"), seed=SEED)
        assert train(engine, range(3), features) == train(alone, range(3), others)
        assert_same(engine.state(), alone.state())
        assert calls == {"ps": 3, "cpu": 3}
        engine.close()


def test_a_bad_rate_is_refused_before_anything_is_sent():
    features = [FeatureSpec("a", TableSpec("t", 30, 4, SGD(lambda: float("nan"))))]
    with thread_servers(2) as made:
        engine = PsEngine(features, seed=SEED, servers=[one.connect() for one in made])
        batch = random_batch(features, 1)
        engine.lookup(batch)
        with pytest.raises(ConfigError, match="learning_rate"):
            engine.apply_gradients(batch, gradients_of(batch, 4, 1))
        assert [one.updates for one in engine.servers] == [0, 0]
        engine.close()


def test_rows_are_numbered_beyond_int32():
    """A table of 2^33 rows: memory is committed for the rows that are touched, and its last rows are rows like others."""
    rows = 1 << 33
    features = [FeatureSpec("a", TableSpec("t", rows, 1, SGD(0.5), "sum"))]
    ids = np.array([0, 1, rows - 1, rows - 2, (1 << 32) + 7, 1 << 31, 0, rows - 1], np.int64)
    batch = IdBatch(ids, np.arange(9, dtype=np.int64)[None])
    with thread_servers(2) as made:
        before = _resident_bytes()
        engine = PsEngine(features, seed=SEED, servers=[one.connect() for one in made], threads=1)
        small = CpuEngine([FeatureSpec("a", TableSpec("t", 10, 1, SGD(0.5), "sum"))], seed=SEED)
        first = engine.lookup(batch)
        assert first[:2].tobytes() == small.weights_of("t", np.arange(2)).tobytes(), (
            "rows do not depend on their number"
        )
        assert len(set(first[:6].ravel().tolist())) == 6
        gradients = np.arange(8, dtype=np.float32)[:, None]
        engine.apply_gradients(batch, gradients)
        summed = np.array([0 + 6, 1, 2 + 7, 3, 4, 5, 0 + 6, 2 + 7], np.float32)[:, None]
        assert engine.lookup(batch).tobytes() == (first - np.float32(0.5) * summed).tobytes()
        with pytest.raises(BadBatch):
            engine.lookup(IdBatch(np.array([rows]), np.array([[0, 1]])))
        assert _resident_bytes() - before < 200 << 20
        engine.close()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_is_refused_changes_nothing(engine):
    train(engine, range(3))
    before, updates = engine.state(), [one.updates for one in engine.servers]
    batch = random_batch(FEATURES, 9)
    width = engine.width
    with pytest.raises(NonFiniteLoss):
        engine.apply_gradients(batch, np.full((batch.rows, width), np.nan, np.float32))
    with pytest.raises(BadBatch):
        engine.apply_gradients(batch, np.zeros((batch.rows, width + 1), np.float32))
    with pytest.raises(BadBatch):
        engine.lookup(IdBatch(batch.ids + 10_000, batch.offsets))
    with pytest.raises(BadBatch):
        engine.weights_of("one", np.array([50]))
    with pytest.raises(ConfigError):
        engine.weights_of("none", np.array([0]))
    assert_same(engine.state(), before)
    assert [one.updates for one in engine.servers] == updates


def test_a_batch_may_be_looked_up_before_the_last_one_is_updated(engine):
    """As a pipelined loop does: bits are those of the engine of one process in the same order."""
    alone = CpuEngine(FEATURES, seed=SEED)
    batches = [random_batch(FEATURES, seed) for seed in range(6)]
    seen = {one: [one.lookup(batches[0]).tobytes()] for one in (engine, alone)}
    for one, found in seen.items():
        for seed, batch in enumerate(batches[:-1]):
            found.append(one.lookup(batches[seed + 1]).tobytes())
            one.apply_gradients(batch, gradients_of(batch, one.width, seed))
    assert seen[engine] == seen[alone]
    assert_same(engine.state(), alone.state())


def test_an_update_without_a_lookup_is_an_update(engine):
    alone = CpuEngine(FEATURES, seed=SEED)
    for seed in range(3):
        for one in (engine, alone):
            batch = random_batch(FEATURES, seed)
            one.apply_gradients(batch, gradients_of(batch, one.width, seed))
    assert_same(engine.state(), alone.state())


def test_rows_stay_when_an_engine_ends_and_another_begins(servers, engine):
    seen = train(engine, range(3))
    state = engine.state()
    engine.close()
    again = PsEngine(FEATURES, seed=SEED, servers=[one.connect() for one in servers], threads=1)
    assert_same(again.state(), state)
    alone = CpuEngine(FEATURES, seed=SEED)
    assert seen + train(again, range(3, 6)) == train(alone, range(6))
    again.close()


def test_tables_without_rows_on_some_server():
    """More servers than rows."""
    features = [FeatureSpec("a", TableSpec("t", 2, 3, Adagrad(0.1, 0.25)))]
    with thread_servers(4) as made:
        engine = PsEngine(features, seed=SEED, servers=[one.connect() for one in made])
        alone = CpuEngine(features, seed=SEED)
        assert train(engine, range(4), features) == train(alone, range(4), features)
        assert_same(engine.state(), alone.state())
        snapshot = engine.begin_snapshot(most_bytes=1 << 20)
        assert snapshot.counts == (len(alone.state()["t"].rows),)
        engine.close()


def test_an_engine_needs_a_feature():
    with thread_servers(1) as (server,), pytest.raises(ConfigError, match="at least one feature"):
        PsEngine([], seed=SEED, servers=[server.connect()])


def test_tables_of_features_are_in_the_order_of_the_engine(engine):
    assert list(engine.state()) == [one.name for one in tables_of(FEATURES)]
    assert engine.begin_snapshot(most_bytes=1 << 20).counts == (0,) * len(tables_of(FEATURES))


@pytest.mark.slow
def test_the_engine_stays_inside_its_arrays():
    """This package's tests with kernels that check every position which they read and write."""
    environment = with_bounds_checks(os.environ)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not slow", "--hypothesis-profile", "quick", str(Path(__file__).parent)]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
