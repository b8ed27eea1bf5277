"""The servers of a run: they must answer, and a run takes them over from those with lower numbers."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tests.support.parameter_servers import thread_servers
from tests.support.processes import free_port
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from trainer.errors import ConfigError, ServerLost
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.servers.client_updates import attempt_number, run_of
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.run_servers import RunServers
from trainer.servers.service import ServerService
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.connections import listen
from trainer.wire.flight.error_documents import RemoteError

SEED, HELD = 3, 2
_LATE_SECS = 0.3


def test_attempts_are_in_the_order_of_runs_then_of_attempts():
    numbers = [attempt_number(run, attempt) for run in (0, 1, 2, 1_795_614_936_991) for attempt in (0, 1, 1000)]
    assert numbers == sorted(set(numbers))
    assert [run_of(one) for one in numbers[::3]] == [0, 1, 2, 1_795_614_936_991]
    assert numbers[-1] < 1 << 62, "frames and documents have numbers below"


@pytest.mark.medium
def test_a_later_run_takes_the_servers_over_whatever_the_attempts():
    with thread_servers(2) as servers:
        first = RunServers(tuple(one.address for one in servers), run=7)
        engine = first.engine(500, FEATURES, SEED, HELD)
        train(engine, range(2))
        assert first.wait(lambda address: None) == 7
        second = replace(first, run=8).engine(1, FEATURES, SEED, HELD)
        train(second, range(2))
        with pytest.raises(RemoteError, match="a newer session") as found:
            train(engine, [2])
        assert "start other servers" in found.value.next_step
        with pytest.raises(RemoteError, match="must be the newest one"):
            first.engine(501, FEATURES, SEED, HELD)
        train(second, [2])
        second.close()
        engine.close()


def test_servers_without_some_are_those_of_their_plan_if_it_has_as_many_cores():
    places = tuple(Address("ps", 7000 + k) for k in range(3))
    servers = RunServers(places)
    assert servers.without(()) is servers
    assert servers.without(("s0",)).addresses == places[1:]
    assert servers.without(("s0",)).are_named
    with pytest.raises(ConfigError, match="all of its servers"):
        servers.without(("s0", "s1", "s2"))
    planned = replace(servers, plan=PartitionPlan(2, (TablePlan("user", 8, 4, (Slice(0, 4, (0, 1)),)),)))
    assert planned.without(("s1",)).addresses == (places[0], places[2]), "the third one is a spare"
    with pytest.raises(ConfigError, match="all of its servers"):
        planned.without(("s1", "s2"))


def test_a_server_that_starts_late_is_waited_for():
    address, waited = Address("127.0.0.1", free_port()), []
    ends = threading.Event()

    def start() -> None:
        time.sleep(_LATE_SECS)
        with listen(address) as listening, ServerService(listening, RowServer(HeldRows(None))):
            ends.wait()

    starting = threading.Thread(target=start)
    starting.start()
    try:
        with thread_servers(1) as (other,):
            assert RunServers((other.address, address)).wait(waited.append) == 0
    finally:
        ends.set()
        starting.join()
    assert waited == [address], "said once, and not for the server that answers at once"


def test_a_server_that_stays_away_is_one_error():
    servers = RunServers((Address("127.0.0.1", free_port()),), patience_secs=_LATE_SECS)
    with pytest.raises(ServerLost, match="must answer") as found:
        servers.wait(lambda address: None)
    assert "headrace ps serve" in found.value.next_step
