"""Embedding workers in processes that are killed and stopped at random moments: every update is made once, and no bit differs."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random

import pytest

from tests.support.examples import scaled
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.support.worker_process import WorkerProcess
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch
from tests.trainer.tables.table_states import assert_same
from trainer.servers.client_updates import Mode
from trainer.servers.moves import server_moves
from trainer.servers.moves.move_documents import MoveFiles, MoveRequest, new_id
from trainer.servers.moves.server_moves import ServerMoves
from trainer.servers.run_servers import RunServers
from trainer.tables import CpuEngine
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.workers.engine import WorkerEngine
from trainer.wire.flight.addresses import Address

SEED, STALENESS = 3, 2


@contextmanager
def processes(servers: Sequence[ThreadServer], count: int):
    """Workers of these servers."""
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(WorkerProcess([one.address for one in servers]))
            stack.callback(made[-1].close)
        for one in made:
            one.start()
        yield made


def run_of(
    servers: Sequence[ThreadServer], workers: Sequence[Address], patience_secs: float = PATIENCE_SECS
) -> RunServers:
    addresses = tuple(one.address for one in servers)
    return RunServers(addresses, mode=Mode.SUMMED, workers=tuple(workers), patience_secs=patience_secs)


def engine_of(run: RunServers, client: int = 0, clients: int = 1) -> WorkerEngine:
    connects, workers = run.connect(1, client, clients), run.connect_workers(1, STALENESS + 1, client, clients)
    made = run.engine_over(connects, FEATURES, SEED, STALENESS + 1, workers=workers)
    assert isinstance(made, WorkerEngine)
    return made


class Training:
    """Trains as a pipeline does: lookups run ahead of updates. ``client``: it has batches of its own."""

    def __init__(self, engine, client: int = 0) -> None:
        self.engine, self._client = engine, client
        self._batches: dict[int, object] = {}
        self.steps = 0
        self.seen: list[bytes] = []
        for step in range(STALENESS):
            self._look_up(step)

    def _look_up(self, step: int) -> None:
        self._batches[step] = random_batch(FEATURES, 1000 * step + self._client)
        self.seen.append(self.engine.lookup(self._batches[step]).tobytes())

    def train(self) -> None:
        batch, step = self._batches.pop(self.steps), self.steps
        self.engine.apply_gradients(batch, gradients_of(batch, self.engine.width, 1000 * step + self._client))
        self._look_up(step + STALENESS)
        self.steps += 1


def disturb(workers: Sequence[WorkerProcess], trainings: Sequence[Training], times: int) -> None:
    """Kill workers, and stop others for a while, with steps between."""
    random = Random(0)
    for number in range(times):
        made, deadline = sum(one.steps for one in trainings), time.monotonic() + PATIENCE_SECS
        one = random.choice(workers)
        if number % 4 == 3:
            one.signal(signal.SIGSTOP)
            time.sleep(random.uniform(0.0, 0.05))
            one.signal(signal.SIGCONT)
        else:
            time.sleep(random.uniform(0.0, 0.03))
            one.kill()
            one.start()
        while sum(one.steps for one in trainings) == made and time.monotonic() < deadline:
            time.sleep(1e-3)


@pytest.mark.slow
def test_killed_and_stopped_workers_change_no_bit():
    with thread_servers(2) as servers, processes(servers, 1) as workers, ThreadPoolExecutor(1) as pool:
        engine, alone = engine_of(run_of(servers, [workers[0].address])), CpuEngine(FEATURES, seed=SEED, held=3)
        training, expected = Training(engine), Training(alone)
        disturbing = pool.submit(disturb, workers, [training], scaled(60))
        while not disturbing.done():
            training.train()
            expected.train()
        disturbing.result(timeout=PATIENCE_SECS)
        assert training.seen == expected.seen
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        assert sum(one.reconnections for one in engine.links) > 2
        assert [one.rows.status().applied for one in servers] == [(training.steps,)] * 2
        engine.close()


@pytest.mark.slow
def test_workers_that_are_killed_while_tables_move_make_every_update_once(tmp_path, monkeypatch):
    """Back and forth between two groups of servers, by a client whose lookups run ahead."""
    monkeypatch.setattr(server_moves, "_LOOK_SECS", 0.0)
    with thread_servers(5) as servers, processes(servers[:2], 2) as workers, ThreadPoolExecutor(1) as pool:
        files = MoveFiles(tmp_path / "servers")
        run = replace(run_of(servers[:2], [one.address for one in workers]), run=1)
        alone = CpuEngine(FEATURES, seed=SEED, held=STALENESS + 1)
        with ServerMoves(run, files, start=lambda count: pytest.fail("no servers are started")) as moves:
            training, expected = Training(moves.engine(1, FEATURES, SEED, STALENESS + 1)), Training(alone)
            disturbing = pool.submit(disturb, workers, [training], scaled(40))
            groups, made, request = (servers[2:], servers[:2]), 0, None
            while made < 4 or not disturbing.done():
                if request is None:
                    addresses = tuple(one.address for one in groups[made % 2])
                    request = MoveRequest(new_id(), files.read_state().training, addresses)
                    files.ask(request)
                training.engine = moves.follow(training.engine, True)
                training.train()
                expected.train()
                report = files.read_state().move
                if report is not None and report.id == request.id and report.is_over:
                    assert report.problem == {}
                    made, request = made + 1, None
            disturbing.result(timeout=PATIENCE_SECS)
            assert training.seen == expected.seen
            assert_same(training.engine.state(), alone.state())
            training.engine.close()


def train_all(engine, client: int, steps: int) -> list[bytes]:
    training = Training(engine, client)
    for _ in range(steps):
        training.train()
    engine.finish()
    return training.seen


@pytest.mark.slow
def test_summed_updates_of_clients_over_killed_workers_are_made_once():
    """Two clients, each of a worker of its own, which goes over to the other worker while its own is away."""
    clients, times = 2, scaled(60)
    with thread_servers(2) as servers, processes(servers, 2) as workers, ThreadPoolExecutor(clients + 1) as pool:
        run = run_of(servers, [one.address for one in workers])
        engines = list(pool.map(lambda k: engine_of(run, k, clients), range(clients)))
        trainings = list(pool.map(lambda k: Training(engines[k], k), range(clients)))
        disturbing = pool.submit(disturb, workers, trainings, times)
        while not disturbing.done():
            list(pool.map(Training.train, trainings))
        disturbing.result(timeout=PATIENCE_SECS)
        list(pool.map(WorkerEngine.finish, engines))
        found, steps = engines[0].state(), trainings[0].steps
        assert sum(link.reconnections for one in engines for link in one.links) > 2
        assert [one.rows.status().applied for one in servers] == [(steps, steps)] * 2
        for one in engines:
            one.close()
    with thread_servers(2) as servers, ThreadPoolExecutor(clients) as pool:
        run = run_of(servers, [])
        calm = list(
            pool.map(
                lambda k: PsEngine(FEATURES, seed=SEED, servers=run.connect(1, k, clients), held=3), range(clients)
            )
        )
        seen = list(pool.map(lambda k: train_all(calm[k], k, steps), range(clients)))
        assert seen == [one.seen for one in trainings]
        assert_same(calm[0].state(), found)
        for one in calm:
            one.close()


@pytest.mark.slow
def test_a_client_goes_over_to_another_worker_when_its_own_stays_stopped():
    """The worker that was stopped goes on afterwards, with what it was sent: servers refuse its session."""
    with thread_servers(2) as servers, processes(servers, 2) as workers:
        engine = engine_of(run_of(servers, [one.address for one in workers], patience_secs=4.0))
        alone = CpuEngine(FEATURES, seed=SEED, held=3)
        training, expected = Training(engine), Training(alone)
        for step in range(9):
            if step == 3:
                workers[0].signal(signal.SIGSTOP)
            if step == 6:
                workers[0].signal(signal.SIGCONT)
            training.train()
            expected.train()
        assert training.seen == expected.seen
        assert sum(one.reconnections for one in engine.links) == 1
        assert_same(engine.state(), alone.state())
        assert sum(one.reconnections for one in engine.links) == 2, "its lane goes back to it, which answers again"
        engine.close()


@pytest.mark.slow
@pytest.mark.soak
def test_workers_killed_a_thousand_times_change_no_bit():
    with thread_servers(3) as servers, processes(servers, 1) as workers, ThreadPoolExecutor(1) as pool:
        engine, alone = engine_of(run_of(servers, [workers[0].address])), CpuEngine(FEATURES, seed=SEED, held=3)
        training, expected = Training(engine), Training(alone)
        disturbing = pool.submit(disturb, workers, [training], 1000)
        while not disturbing.done():
            training.train()
            expected.train()
        assert training.seen == expected.seen
        assert_same(engine.state(), alone.state())
        engine.close()
