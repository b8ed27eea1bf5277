"""Hybrid placement over parameter servers gives the bits of one engine, whichever rows are hot and whatever happens to the servers."""

from __future__ import annotations

from collections import Counter
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.trainer.servers.test_killed_servers import link_to, processes
from tests.trainer.servers.test_tcp_link import CutLater
from tests.trainer.tables.routes.partitioned.plans import plans
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import batches, same_states
from tests.trainer.tables.routes.servers.test_ps_engine import counted
from tests.trainer.tables.stores.tiered.test_tiered_store import FEATURES, TABLES, some_hot, train
from tests.trainer.tables.test_engine import batch_of
from trainer.errors import BadBatch
from trainer.servers.client_updates import Greeting
from trainer.tables import CpuEngine
from trainer.tables.engine import RowValues
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.servers.frames import NUMBERED, Kind
from trainer.tables.routes.servers.server_tier import ServerTier
from trainer.tables.stores.tiered.tiered_store import TieredStore
from trainer.tables.wire.settings import WireSettings
from trainer.wire.flight.error_documents import RemoteError
from transforms.errors import DataError

SEED, SERVERS = 3, 3
HOT_ROWS = {"one": 5, "two": 9, "three": 4}


@pytest.fixture(scope="module")
def servers():
    with thread_servers(SERVERS) as made:
        yield made


ATTEMPTS = count(1)


def tier_on(servers, **options) -> ServerTier:
    """On rows that have their initial values, as a new attempt: other plans put other rows on the servers."""
    greeting = Greeting(attempt=next(ATTEMPTS))
    made = ServerTier(TABLES, seed=SEED, servers=[one.connect(greeting) for one in servers], **options)
    made.load_state(CpuEngine(FEATURES, seed=SEED).state())
    return made


def hybrid(cold: ServerTier, hot_rows=HOT_ROWS, **options) -> ShardedTables:
    store = TieredStore(TABLES, seed=SEED, hot_rows=hot_rows, cold=cold, **options)
    return ShardedTables(FEATURES, seed=SEED, exchange=OneHost(), store=store)


def drifting_batch(step: int):
    """Rows of which some are looked up for a while, and then others."""
    draw = np.random.default_rng(step)

    def ids(rows: int) -> list[int]:
        return ((step // 4 + draw.geometric(0.3, draw.integers(0, 5))) % rows).tolist()

    return batch_of([[ids(one.table.vocabulary_size) for _ in range(6)] for one in FEATURES])


def train_both(tiers: ShardedTables, whole: CpuEngine, steps) -> None:
    for step in steps:
        batch = drifting_batch(step)
        assert tiers.lookup(batch).tobytes() == whole.lookup(batch).tobytes()
        train(tiers, batch, step)
        train(whole, batch, step)


@pytest.mark.medium
@settings(max_examples=scaled(30))
@given(
    st.lists(batches(FEATURES), min_size=1, max_size=8),
    some_hot,
    st.none() | plans(FEATURES, SERVERS),
    st.sampled_from(["plain", "unique"]),
)
def test_servers_change_no_bit(servers, trained, hot_rows, plan, ids):
    """By any plan: whole rows, blocks, slices of columns, copies on several servers."""
    cold = tier_on(servers, plan=plan, wire=WireSettings(ids=ids))
    whole, tiers = CpuEngine(FEATURES, seed=SEED), hybrid(cold, hot_rows, move_lookups=0.0)
    for seed, batch in enumerate(trained):
        assert tiers.lookup(batch).tobytes() == whole.lookup(batch).tobytes()
        train(tiers, batch, seed)
        train(whole, batch, seed)
    same_states(tiers.state(), whole.state())
    for table in TABLES:
        rows = np.arange(table.vocabulary_size)[::-1]
        assert tiers.store.weights_of(table.name, rows).tobytes() == whole.weights_of(table.name, rows).tobytes()
    cold.close()


def test_a_batch_takes_one_fetch_and_one_update_and_rows_that_move_one_more_of_each():
    links: list[list] = [[] for _ in range(SERVERS)]
    with thread_servers(SERVERS) as made:
        cold = ServerTier(TABLES, seed=SEED, servers=[counted(*one) for one in zip(made, links, strict=True)])
        tiers, whole = hybrid(cold), CpuEngine(FEATURES, seed=SEED)
        for own in links:
            own[0].requests.clear()
        moved, steps = Counter(), 40
        for step in range(steps):
            before = tiers.store.counts
            train_both(tiers, whole, [step])
            moved["in"] += tiers.store.counts.rows_in > before.rows_in
            moved["out"] += tiers.store.counts.rows_out > before.rows_out
        cold.close()
    assert moved["in"] > moved["out"] > 0
    for own in links:
        assert Counter(one.kind for one in own[0].requests) == {
            Kind.FETCH: steps,
            Kind.UPDATE: steps,
            Kind.READ_VALUES: moved["in"],
            Kind.WRITE_VALUES: moved["out"],
        }
        numbers = [one.number for one in own[0].requests if one.kind in NUMBERED]
        assert numbers == list(range(1, len(numbers) + 1))


def test_rows_that_are_hot_stay_away_from_the_servers(servers):
    """The bytes of a popular row's fetches and updates are saved."""
    cold = tier_on(servers)
    tiers = hybrid(cold, {"three": 4})
    batch = batch_of([[[]], [[]], [[]], [[7, 8]], [[]]])

    def bytes_of_batch() -> int:
        before = sum(one.link.sent_bytes + one.link.received_bytes for one in cold.servers)
        tiers.lookup(batch)
        tiers.apply_gradients(batch, np.ones((1, tiers.width), np.float32))
        cold.finish()
        return sum(one.link.sent_bytes + one.link.received_bytes for one in cold.servers) - before

    first = bytes_of_batch()
    assert bytes_of_batch() < first
    assert tiers.store.hot_rows["three"].tolist() == [7, 8]
    cold.close()


def test_a_state_goes_from_servers_to_one_process_and_back(servers):
    cold = tier_on(servers)
    tiers, whole = hybrid(cold), CpuEngine(FEATURES, seed=SEED)
    train_both(tiers, whole, range(20))
    state = tiers.state()
    train_both(tiers, whole, range(20, 30))
    tiers.load_state(state)
    whole.load_state(state)
    train_both(tiers, whole, range(30, 40))
    same_states(tiers.state(), whole.state())
    cold.close()


def test_a_snapshot_has_the_hot_rows(servers):
    cold = tier_on(servers)
    tiers, whole = hybrid(cold), CpuEngine(FEATURES, seed=SEED)
    train_both(tiers, whole, range(20))
    expected, snapshot = whole.state(), tiers.begin_snapshot(most_bytes=1 << 24)
    train_both(tiers, whole, range(20, 30))
    for t, table in enumerate(TABLES):
        found = list(snapshot.table(t))
        for name in ("rows", "weights", "slots"):
            assert b"".join(getattr(one, name).tobytes() for one in found) == getattr(expected[table.name], name).tobytes()  # fmt: skip
    cold.close()


@pytest.mark.slow
def test_killed_servers_lose_and_repeat_no_written_row(tmp_path):
    """A server is killed while updates and written values wait in its socket: each is made once."""
    with processes(tmp_path, 2) as made:
        cold = ServerTier(TABLES, seed=SEED, servers=[link_to(one.address) for one in made], threads=1)
        tiers, whole = hybrid(cold, move_lookups=0.0), CpuEngine(FEATURES, seed=SEED)
        for step in range(scaled(60)):
            train_both(tiers, whole, [step])
            server = made[step % 2]
            server.kill()
            server.start()
        assert tiers.store.counts.rows_out > 0
        same_states(tiers.state(), whole.state())
        cold.close()


@pytest.mark.parametrize("where", range(1, 400, 37))
def test_a_connection_that_is_cut_off_writes_values_once(where):
    """After the write an update of the same row follows, which a second write would undo."""
    rows, counts = np.array([1, 4]), np.array([0, 0, 2, 0])
    with thread_servers(1) as (server,), CutLater(server.address) as proxy:
        cold = ServerTier(TABLES, seed=SEED, servers=[link_to(proxy.address)])
        values = cold.read_values(rows, counts)
        proxy.cut_in(where)
        for step in range(3):
            cold.write_values(rows, counts, values, are_changed=True)
            cold.update_rows([(rows, counts)], [np.full(32, 1.0 + step, np.float32)])
            values = cold.read_values(rows, counts)
        alone = CpuEngine(FEATURES, seed=SEED)
        for step in range(3):
            batch = batch_of([[[]], [[]], [[]], [[1, 4]], [[]]])
            gradients = np.zeros((1, alone.width), np.float32)
            gradients[:, alone.columns["d"]] = 1.0 + step
            alone.apply_gradients(batch, gradients)
        same_states(cold.state(), alone.state())
        assert server.rows.status().applied == (6,)
        cold.close()


@pytest.mark.parametrize("rows", [[-1], [21], [1 << 40]])
def test_a_row_outside_its_table_is_refused_before_anything_is_sent(servers, rows):
    cold, counts = tier_on(servers), np.array([1, 0, 0, 0])
    sent = [one.link.sent_bytes for one in cold.servers]
    outside = np.array(rows, np.int64)
    values = RowValues(np.zeros(3, np.float32), np.zeros(3, np.float32))
    for call in (
        lambda: cold.read_rows(outside, counts),
        lambda: cold.read_values(outside, counts),
        lambda: cold.update_rows([(outside, counts)], [values.weights]),
        lambda: cold.write_values(outside, counts, values, are_changed=True),
    ):
        with pytest.raises(BadBatch):
            call()
    assert [one.link.sent_bytes for one in cold.servers] == sent
    cold.close()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_by_the_server(servers, value):
    cold, counts, rows = tier_on(servers), np.array([1, 0, 0, 0]), np.array([2])
    before = cold.state()
    cold.write_values(rows, counts, RowValues(np.full(3, value, np.float32), np.zeros(3, np.float32)), are_changed=True)
    with pytest.raises((RemoteError, DataError), match="finite"):
        cold.finish()
    same_states(cold.state(), before)
    cold.close()


def test_one_of_several_clients_writes_no_values():
    with thread_servers(1) as (server,):
        two = ServerTier(TABLES, seed=SEED, servers=[server.connect(Greeting(client=0, clients=2))])
        two.write_values(
            np.array([2]),
            np.array([1, 0, 0, 0]),
            RowValues(np.zeros(3, np.float32), np.zeros(3, np.float32)),
            are_changed=True,
        )
        with pytest.raises(RemoteError, match="only the single client"):
            two.finish()
        two.close()
