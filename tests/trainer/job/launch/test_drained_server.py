"""``headrace ps serve`` and ``ps worker`` after SIGTERM: clients finish, others are refused, and the status is 0."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.drained_server import DrainedServer
from tests.support.parameter_servers import thread_servers
from tests.support.processes import PATIENCE_SECS, wait_until
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ServerLost
from trainer.servers.client_updates import Greeting, attempt_number
from trainer.servers.run_servers import RunServers
from trainer.servers.server_watch import ServerWatch
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import CpuEngine
from trainer.tables.routes.servers.engine import PsEngine

SEED = 3


@contextmanager
def started(folder: Path, *options: str):
    server = DrainedServer(folder / "server", *options)
    try:
        server.start()
        yield server
    finally:
        server.close()


def engine_on(server: DrainedServer, run: int = 7, attempt: int = 1) -> PsEngine:
    options = LinkOptions(Greeting(attempt=attempt_number(run, attempt)), patience_secs=PATIENCE_SECS)
    return PsEngine(FEATURES, seed=SEED, servers=[connect_to(server.address, options)], threads=1)


def until_draining(server: DrainedServer) -> None:
    wait_until(lambda: "SIGTERM: clients have up to" in server.log, "the server drains", {})


def child_of(server: DrainedServer) -> int:
    assert server.process is not None
    pid = server.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


@pytest.mark.medium
def test_a_server_lets_its_client_finish_and_refuses_others(tmp_path):
    """Also when the process that answers is killed meanwhile: the next one drains on, with the rows."""
    with started(tmp_path, "--drain-secs", "300") as server:
        engine, alone = engine_on(server), CpuEngine(FEATURES, seed=SEED, threads=1)
        assert train(engine, [0]) == train(alone, [0])
        server.terminate()
        until_draining(server)
        with pytest.raises(ServerLost, match="the server must stay to take a new client") as refused:
            engine_on(server, run=8)
        assert "it leaves after SIGTERM, in at most" in refused.value.value
        assert train(engine, [1]) == train(alone, [1])
        engine.finish()
        os.kill(child_of(server), signal.SIGKILL)
        assert train(engine, [2]) == train(alone, [2])
        assert_same(engine.state(), alone.state())
        engine.close()
        assert server.status() == 0
    assert "the server ends: it has no clients" in server.log


@pytest.mark.slow
def test_a_server_ends_when_its_clients_take_too_long_or_a_second_signal_comes(tmp_path):
    with started(tmp_path, "--drain-secs", "2", "--terminated-status", "143") as server:
        engine = engine_on(server)
        began = time.monotonic()
        server.terminate()
        assert server.status() == 143
        assert time.monotonic() - began >= 2
        assert "the server ends: its clients have not committed in time" in server.log
        engine.close()
    with started(tmp_path / "other", "--drain-secs", "3000") as server:
        engine = engine_on(server)
        server.terminate()
        until_draining(server)
        server.terminate()
        assert server.status() == 0
        engine.close()


@pytest.mark.slow
def test_the_training_that_watches_a_server_lets_it_go_and_sees_the_next_one(tmp_path):
    with started(tmp_path, "--drain-secs", "3000") as server, ServerWatch([server.address]) as watch:

        def found():
            (one,) = watch.servers
            return one

        engine = engine_on(server)
        wait_until(lambda: found().is_up, "the server is watched", {})
        first = found().state.process
        server.terminate()
        wait_until(lambda: found().is_leaving, "the notice has come", {})
        assert 0 < found().state.left_secs <= 3000
        assert found().state.reason == "SIGTERM"
        engine.close()
        time.sleep(1.0)
        assert not server.has_ended(), "the next attempt may begin"
        watch.let_go(server.address, first)
        assert server.status() == 0
        wait_until(lambda: found().is_gone, "it is gone", {})
        server.start()
        wait_until(lambda: found().is_up, "the next one is there", {})
        assert found().state.process != first
        watch.let_go(server.address, first)  # by one who has not seen yet that another process is there
        time.sleep(1.5)
        assert not server.has_ended(), "that was said to the process before"
        watch.let_go(server.address, found().state.process)
        assert server.status() == 0, "without a signal, as by headrace preempt"


@pytest.mark.slow
def test_a_server_that_is_terminated_before_it_serves_ends_with_its_status(tmp_path):
    server = DrainedServer(tmp_path / "server")
    try:
        server.begin()

        def takes_signals() -> bool:
            caught = Path(f"/proc/{server.process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
            return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

        wait_until(takes_signals, "it takes signals", {"server": server.process})
        server.terminate()
        assert server.status() == 0
    finally:
        server.close()


@pytest.mark.slow
def test_an_embedding_worker_ends_at_once_and_its_clients_go_on(tmp_path):
    with thread_servers(1) as servers:
        options = ("--servers", str(servers[0].address))
        first, second = (DrainedServer(tmp_path / name, *options, kind="worker") for name in ("first", "second"))
        try:
            first.start()
            second.start()
            run = RunServers(
                (servers[0].address,), workers=(first.address, second.address), patience_secs=PATIENCE_SECS
            )
            engine, alone = run.engine(1, FEATURES, SEED, 3), CpuEngine(FEATURES, seed=SEED, threads=1)
            assert train(engine, [0]) == train(alone, [0])
            first.terminate()
            assert first.status() == 0
            assert train(engine, [1, 2]) == train(alone, [1, 2])
            assert_same(engine.state(), alone.state())
            engine.close()
        finally:
            first.close()
            second.close()
