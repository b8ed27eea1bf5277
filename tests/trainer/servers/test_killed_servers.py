"""Servers and clients in processes that are killed and stopped at random moments: every update is made once, and no bit differs."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.support.server_process import ServerProcess
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from tests.trainer.tables.test_undo_log import run_apart
from trainer.errors import ServerLost
from trainer.servers.client_updates import Greeting, Mode
from trainer.servers.server_status import read_status
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import CpuEngine
from trainer.tables.routes.servers.engine import PsEngine
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import RemoteError

SEED = 3


def link_to(address: Address, patience_secs: float = PATIENCE_SECS, **greeting):
    return connect_to(address, LinkOptions(Greeting(**greeting), patience_secs=patience_secs))


def engine_on(servers, **settings) -> PsEngine:
    return PsEngine(FEATURES, seed=SEED, servers=[link_to(one.address, **settings) for one in servers], threads=1)


@contextmanager
def processes(folder: Path, count: int):
    with ExitStack() as stack:
        made = []
        for k in range(count):
            (folder / str(k)).mkdir()
            made.append(ServerProcess(folder / str(k)))
            stack.callback(made[-1].close)
        for one in made:
            one.start()
        yield made


def disturbed_training(folder: Path, disturb, count: int = 2) -> int:
    """Train while ``disturb`` runs in a thread, and compare with an engine that was not disturbed.

    ``disturb`` gets the servers and a function that counts the steps made. Returns the steps.
    """
    with processes(folder, count) as servers, ThreadPoolExecutor(1) as pool:
        engine, alone = engine_on(servers), CpuEngine(FEATURES, seed=SEED)
        steps = 0
        disturbing = pool.submit(disturb, servers, lambda: steps)
        while not disturbing.done():
            assert train(engine, [steps]) == train(alone, [steps])
            steps += 1
        disturbing.result(timeout=PATIENCE_SECS)
        engine.finish()
        assert [read_status(one.address).applied for one in servers] == [(steps,)] * count
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        engine.close()
        return steps


def killer(kills: int, seed: int):
    def disturb(servers, steps):
        random = Random(seed)
        for _ in range(kills):
            made = steps()
            time.sleep(random.uniform(0.0, 0.03))
            one = random.choice(servers)
            one.kill()
            one.start()
            deadline = time.monotonic() + PATIENCE_SECS
            while (
                steps() == made and time.monotonic() < deadline
            ):  # steps are made between kills, however slow the machine
                time.sleep(1e-3)

    return disturb


@pytest.mark.medium
def test_killed_servers_make_each_update_once(tmp_path):
    kills = scaled(120)
    assert disturbed_training(tmp_path, killer(kills, 0)) >= kills


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 6))
def test_servers_killed_a_thousand_times_make_each_update_once(tmp_path, seed):
    disturbed_training(tmp_path, killer(1000, seed), 3)


@pytest.mark.slow
def test_servers_that_are_stopped_for_a_while_change_no_bit(tmp_path):
    def disturb(servers, _steps):
        random = Random(1)
        for _ in range(scaled(40)):
            one = random.choice(servers)
            one.signal(signal.SIGSTOP)
            time.sleep(random.uniform(0.0, 0.03))
            one.signal(signal.SIGCONT)
            time.sleep(random.uniform(0.0, 0.02))

    disturbed_training(tmp_path, disturb)


@pytest.mark.slow
def test_a_server_stopped_for_longer_than_the_patience_is_lost_and_serves_the_next_attempt(tmp_path):
    """The clock runs faster while the server is stopped: no stall of the machine is taken for one of the server."""
    stopped = threading.Event()
    options = LinkOptions(
        patience_secs=PATIENCE_SECS, clock=lambda: time.monotonic() * (600 if stopped.is_set() else 1)
    )
    with processes(tmp_path, 1) as (server,):
        engine = PsEngine(FEATURES, seed=SEED, servers=[connect_to(server.address, options)], threads=1)
        train(engine, range(2))
        engine.finish()
        server.stop()
        stopped.set()
        with pytest.raises(ServerLost, match="must answer"):
            train(engine, [2])
        engine.close()
        server.signal(signal.SIGCONT)
        alone = CpuEngine(FEATURES, seed=SEED)
        again = engine_on([server], attempt=1)
        again.load_state(alone.state())
        assert train(again, range(3)) == train(alone, range(3))
        assert_same(again.state(), alone.state())
        again.close()


@pytest.mark.slow
def test_a_restarted_server_answers_in_under_a_second(tmp_path):
    """No test depends on speed: the limit is far above the milliseconds that it takes."""
    with processes(tmp_path, 1) as (server,):
        engine = engine_on([server])
        train(engine, range(2))
        engine.finish()
        server.kill()
        began = time.monotonic()
        server.start()
        train(engine, [2])
        engine.finish()
        print(f"{(time.monotonic() - began) * 1e3:.0f} ms")
        assert engine.servers[0].link.reconnections == 1
        engine.close()


@pytest.mark.slow
def test_a_server_killed_in_a_load_is_lost(tmp_path):
    """Its rows are neither the old ones nor the loaded ones: the client must not go on."""
    state = CpuEngine(FEATURES, seed=SEED)
    train(state, range(5))
    lost = whole = 0
    with processes(tmp_path, 1) as (server,), ThreadPoolExecutor(1) as pool:
        for attempt in range(scaled(30)):
            engine = engine_on([server], attempt=attempt)
            train(engine, [attempt])
            loading = pool.submit(engine.load_state, state.state())
            time.sleep(Random(attempt).uniform(0.0, 0.012))
            server.kill()
            server.start()
            try:
                loading.result(timeout=PATIENCE_SECS)
                assert_same(engine.state(), state.state())
                whole += 1
            except (ServerLost, RemoteError):
                lost += 1
            engine.close()
    print(f"{lost} lost, {whole} whole")
    assert lost


def killed_clients(address: Address, kills: int) -> None:
    """Kill clients at random moments, each of which goes on where the server is; run in a process without other threads."""

    def run() -> None:
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(address)], threads=1)
        first = engine.servers[0].updates
        for step in range(first, first + 10_000):
            batch = random_batch(FEATURES, step)
            engine.lookup(batch)
            engine.apply_gradients(batch, gradients_of(batch, engine.width, step))

    engine, alone = PsEngine(FEATURES, seed=SEED, servers=[link_to(address)], threads=1), CpuEngine(FEATURES, seed=SEED, threads=1)  # fmt: skip
    assert train(engine, [0]) == train(alone, [0])
    engine.close()
    random = Random(0)
    for _ in range(kills):
        made = read_status(address).applied
        child = os.fork()
        if not child:
            try:
                run()
            finally:
                os._exit(1)
        until = time.monotonic() + PATIENCE_SECS
        while read_status(address).applied == made and time.monotonic() < until:
            time.sleep(1e-3)  # each client makes a step, however slow the machine
        time.sleep(random.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(address)], threads=1)
    steps = engine.servers[0].updates
    train(alone, range(1, steps))
    assert_same(engine.state(), alone.state())
    assert steps > kills
    print(f"{kills} kills, {steps} steps")


@pytest.mark.slow
def test_messages_of_killed_clients_are_made_whole_or_not_at_all(tmp_path):
    with processes(tmp_path, 1) as (server,):
        run_apart(f"""
from tests.trainer.servers.test_killed_servers import Address, killed_clients
killed_clients(Address({server.address.host!r}, {server.address.port}), {scaled(80)})
""")


@pytest.mark.slow
def test_summed_updates_of_clients_over_killed_servers_are_made_once(tmp_path):
    """Three clients in threads: each number is applied as one, whatever was killed meanwhile."""
    clients, steps = 3, scaled(60)
    with processes(tmp_path, 1) as (server,), ThreadPoolExecutor(clients) as pool:
        engines = list(pool.map(
            lambda k: PsEngine(FEATURES, seed=SEED, servers=[link_to(server.address, client=k, clients=clients, mode=Mode.SUMMED)], threads=1),
            range(clients),
        ))  # fmt: skip
        running = [pool.submit(train_part, engines[k], k, steps) for k in range(clients)]
        random = Random(0)
        while not all(one.done() for one in running):
            sent = sum(one.servers[0].updates for one in engines)
            while sum(one.servers[0].updates for one in engines) == sent and not all(one.done() for one in running):
                time.sleep(1e-3)  # clients go on between two kills, however slow the machine
            time.sleep(random.uniform(0.0, 0.01))
            server.kill()
            server.start()
        seen = [one.result(timeout=PATIENCE_SECS) for one in running]
        found = engines[0].state()
        for one in engines:
            one.close()
        again = engine_on([server], client=0, clients=clients, mode=Mode.SUMMED)
        assert again.servers[0].updates == steps
        assert_same(again.state(), found)
        again.close()
    with thread_servers(1) as (server,), ThreadPoolExecutor(clients) as pool:
        calm = list(pool.map(
            lambda k: PsEngine(FEATURES, seed=SEED, servers=[server.connect(Greeting("", k, clients, mode=Mode.SUMMED))], threads=1),
            range(clients),
        ))  # fmt: skip
        assert list(pool.map(lambda k: train_part(calm[k], k, steps), range(clients))) == seen
        assert_same(calm[0].state(), found)
        for one in calm:
            one.close()


def train_part(engine: PsEngine, client: int, steps: int) -> list[bytes]:
    """The batches of one client of many."""
    seen = []
    for step in range(steps):
        batch = random_batch(FEATURES, 100 * step + client)
        seen.append(engine.lookup(batch).tobytes())
        engine.apply_gradients(batch, gradients_of(batch, engine.width, 100 * step + client))
    engine.finish()
    return seen
