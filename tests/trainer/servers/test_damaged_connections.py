"""Bytes that are flipped, dropped, repeated, reordered or delayed between an engine, embedding workers and servers change no bit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from tests.support.embedding_workers import ThreadWorker
from tests.support.examples import scaled
from tests.support.parameter_servers import ThreadServer
from tests.support.processes import PATIENCE_SECS
from tests.trainer.tables.routes.servers import test_hashed_servers as hashed
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ServerLost
from trainer.job.launch.chaos.links import Link, Links
from trainer.job.launch.chaos.wire_damage import DamageKind, DamagePoint, DamageSettings, Direction, random_damage
from trainer.servers.client_updates import Greeting
from trainer.servers.service import ServiceLimits
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, connect_through, connect_to
from trainer.tables import CpuEngine
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.workers.engine import WorkerEngine, direct_engine
from trainer.tables.routes.workers.table_documents import WorkerTables
from trainer.wire.flight.addresses import Address

SEED = 3
#: Of both ends: a test waits so long for each dropped byte.
STALL_SECS = 0.3
LIMITS = ServiceLimits(stall_secs=STALL_SECS)
OPTIONS = LinkOptions(patience_secs=PATIENCE_SECS, stall_secs=STALL_SECS)


@dataclass
class Disturbed:
    """Servers in threads, and the links by which they are reached."""

    servers: list[ThreadServer]
    links: Links
    each: list[Link]

    def damage(self, mean_bytes: int, kinds=tuple(DamageKind)) -> None:
        for seed, link in enumerate(self.each):
            self.links.damage(link, random_damage(DamageSettings(seed, mean_bytes, delay_secs=0.01, kinds=kinds)))

    @property
    def damages(self) -> int:
        return sum(sum(link.damages.values()) for link in self.each)

    def engine(self, features=FEATURES, options: LinkOptions = OPTIONS, **settings) -> PsEngine:
        connects = [connect_to(link.address, options) for link in self.each]
        return PsEngine(features, seed=SEED, servers=connects, threads=1, **settings)


@contextmanager
def disturbed(count: int) -> Iterator[Disturbed]:
    with ExitStack() as stack:
        links = stack.enter_context(Links())
        servers = [ThreadServer(limits=LIMITS) for _ in range(count)]
        for server in servers:
            stack.callback(server.close)
        yield Disturbed(servers, links, [links.open(partial(_same, server.address)) for server in servers])


def _same(address: Address) -> Address:
    return address


@pytest.mark.medium
@pytest.mark.parametrize("kind", [*DamageKind, None])
def test_training_through_damaged_connections_changes_no_bit(kind):
    with disturbed(2) as them:
        engine, alone, steps = them.engine(), CpuEngine(FEATURES, seed=SEED), 0
        them.damage(30_000, tuple(DamageKind) if kind is None else (kind,))
        while them.damages < scaled(40):
            assert train(engine, [steps]) == train(alone, [steps])
            steps += 1
        engine.finish()
        assert [server.rows.status().applied for server in them.servers] == [(steps,), (steps,)]
        assert [server.rows.status().updates for server in them.servers] == [steps, steps]
        assert_same(engine.state(), alone.state())
        reconnections = sum(remote.link.reconnections for remote in engine.servers)
        assert (reconnections > 0) == (kind is not DamageKind.DELAY)
        engine.close()


@pytest.mark.parametrize("direction", list(Direction))
def test_a_flip_of_each_part_of_an_update_or_its_answer_is_mended(direction):
    """A grid over the greeting, headers, rows and values of a connection."""
    with disturbed(1) as them:
        engine, alone = them.engine(), CpuEngine(FEATURES, seed=SEED)
        stop = 6000 if direction is Direction.REQUESTS else 3000
        for step, position in enumerate(range(0, stop, 397)):
            them.links.damage(them.each[0], OneFlip(direction, position))
            assert train(engine, [step]) == train(alone, [step])
            engine.finish()
            them.links.damage(them.each[0], None)
        assert_same(engine.state(), alone.state())
        assert them.damages > 5
        engine.close()


class OneFlip:
    """One flip in the bytes of a direction that come next, and none in connections that are made then."""

    def __init__(self, direction: Direction, position: int) -> None:
        self._direction, self._position, self._is_drawn = direction, position, False

    def __call__(self, connection: int, direction: Direction) -> Iterator[DamagePoint]:
        if direction is not self._direction or self._is_drawn:
            return iter(())
        self._is_drawn = True
        return iter([DamagePoint(self._position, DamageKind.FLIP, bit=self._position % 8)])


def test_snapshots_and_loads_of_hashed_tables_through_damaged_connections_change_no_bit():
    """A request of a load that comes again is made once."""
    with disturbed(1) as them, disturbed(1) as others:
        engine = them.engine(hashed.FEATURES, hashed=hashed.LIMITS)
        alone = ShardedTables(hashed.FEATURES, seed=SEED, exchange=OneHost(), hashed=hashed.LIMITS, threads=1)
        them.damage(8_000)
        others.damage(1_500)
        for seed in range(30):
            assert hashed.step(engine, seed) == hashed.step(alone, seed), seed
        for _ in range(scaled(4)):
            loaded = others.engine(hashed.FEATURES, hashed=hashed.LIMITS)
            loaded.load_state(engine.state())
            assert_same(loaded.state(), alone.state())
            loaded.close()
        assert them.damages > 5
        assert others.damages > 20
        engine.close()


def test_an_embedding_worker_between_damaged_connections_changes_no_bit():
    with disturbed(2) as them:
        worker = ThreadWorker([link.address for link in them.each], limits=LIMITS)
        link = them.links.open(partial(_same, worker.address))
        through = connect_through(link.address, OPTIONS)
        loads = [
            connect_to(one.address, LinkOptions(Greeting(role=SessionRole.LOADS), stall_secs=STALL_SECS))
            for one in them.each
        ]
        tables = WorkerTables(tuple(FEATURES), SEED)
        engine = WorkerEngine(tables, direct_engine(tables, loads), [through])
        alone, steps = CpuEngine(FEATURES, seed=SEED), 0
        them.each.append(link)
        them.damage(60_000, tuple(one for one in DamageKind if one is not DamageKind.DROP))  # workers wait 5 s for each
        while min(sum(one.damages.values()) for one in them.each) < scaled(6):
            assert train(engine, [steps]) == train(alone, [steps])
            steps += 1
        assert_same(engine.state(), alone.state())
        assert [server.rows.status().updates for server in them.servers] == [steps, steps]
        engine.close()
        worker.close()


def test_damage_without_end_is_one_error_with_both_ends():
    with disturbed(1) as them:
        options = LinkOptions(Greeting(client=1, clients=2), patience_secs=2.0, stall_secs=STALL_SECS)
        engine = them.engine(options=options, staleness=None)
        batch = random_batch(FEATURES, 0)
        engine.lookup(batch)

        def flip_all(connection, direction):
            return iter([DamagePoint(at, DamageKind.FLIP) for at in range(400, 20_000, 50)])

        them.links.damage(them.each[0], flip_all)
        engine.apply_gradients(batch, gradients_of(batch, engine.width, 0))
        with pytest.raises(ServerLost, match="deliver bytes as they were sent") as found:
            engine.finish()
        assert f"server {them.each[0].address}" in found.value.where
        assert "client 1 on " in found.value.where
        assert re.search(r"damaged connections in [2-9](\.\d+)? s", str(found.value.value))
        assert "its body has another checksum" in str(found.value.value)
        engine.close()
