"""One client of several workers, which are killed and stopped with the servers at random moments: nothing is lost, repeated or seen too late."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.support.examples import scaled
from tests.support.forked_process import ForkedProcess
from tests.support.parameter_servers import thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.support.worker_process import WorkerProcess
from tests.trainer.servers import test_killed_servers as killed_servers
from tests.trainer.servers.test_killed_workers import STALENESS, Training, engine_of, run_of, train_all
from tests.trainer.servers.test_killed_workers import processes as worker_processes
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.servers.client_updates import Mode
from trainer.servers.run_servers import RunServers
from trainer.servers.server_status import read_status
from trainer.tables import SGD, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers.engine import PsEngine

SEED, WORKERS = 3, 3
#: Each update adds 1 to the last feature's only row, whose value then counts the updates that a lookup has seen.
COUNTED = (*FEATURES, FeatureSpec("counts", TableSpec("counts", 4, 1, SGD(1.0), "sum")))


@contextmanager
def started(folder: Path, servers: int, workers: int = WORKERS):
    """Servers and workers in processes."""
    with killed_servers.processes(folder, servers) as of_rows, ExitStack() as stack:
        made = []
        for _ in range(workers):
            made.append(WorkerProcess([one.address for one in of_rows]))
            stack.callback(made[-1].close)
        for one in made:
            one.start()
        yield of_rows, made


def disturb(processes: Sequence[ForkedProcess], times: int, steps) -> None:
    """Kill some, and stop others for a while, with steps between."""
    random = Random(2)
    for number in range(times):
        made, deadline, one = steps(), time.monotonic() + PATIENCE_SECS, random.choice(processes)
        if number % 4 == 3:
            one.signal(signal.SIGSTOP)
            time.sleep(random.uniform(0.0, 0.05))
            one.signal(signal.SIGCONT)
        else:
            time.sleep(random.uniform(0.0, 0.03))
            one.kill()
            one.start()
        while steps() == made and time.monotonic() < deadline:
            time.sleep(1e-3)


@pytest.mark.slow
def test_summed_updates_over_killed_workers_and_servers_change_no_bit(tmp_path):
    with started(tmp_path, 2) as (servers, workers), ThreadPoolExecutor(1) as pool:
        run = run_of(servers, [one.address for one in workers])
        engine, alone = engine_of(run), CpuEngine(FEATURES, seed=SEED, held=STALENESS + 1)
        assert len(engine.links) == WORKERS
        training, expected = Training(engine), Training(alone)
        for _ in range(2 * WORKERS):
            training.train()
            expected.train()
        assert min(read_status(one.address).updates for one in workers) > 0, "all workers have batches"
        disturbing = pool.submit(disturb, [*workers, *servers], scaled(60), lambda: training.steps)
        while not disturbing.done():
            training.train()
            expected.train()
        disturbing.result(timeout=PATIENCE_SECS)
        assert training.seen == expected.seen
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        assert [read_status(one.address).applied for one in servers] == [(training.steps,)] * 2
        assert sum(one.reconnections for one in engine.links) > WORKERS
        engine.close()


class Overlapping:
    """Trains with ``ahead`` lookups on their way, and notes how many updates each of them has seen."""

    def __init__(self, engine, ahead: int) -> None:
        self._engine, self._ahead = engine, ahead
        self._begun: deque = deque()
        self.seen: list[tuple[int, int]] = []
        self.steps = self.begun = 0
        self._first = float(engine.weights_of("counts", np.zeros(1, np.int64))[0, 0])

    def batch_of(self, step: int) -> IdBatch:
        """A random batch, in which one event has the id that is counted."""
        own = random_batch(FEATURES, step, weighted=False)
        ends = np.minimum(np.arange(own.rows + 1), 1)[None] + len(own.ids)
        return IdBatch(np.append(own.ids, 0), np.concatenate([own.offsets, ends]), None)

    def gradients(self, batch: IdBatch, step: int):
        found = gradients_of(batch, self._engine.width, step)
        found[:, -1] = -1.0
        return found

    def begin(self) -> None:
        batch = self.batch_of(self.begun)
        self._begun.append((self.begun, batch, self._engine.begin_lookup(batch)))
        self.begun += 1
        if len(self._begun) > self._ahead:
            self.end()

    def end(self) -> None:
        step, batch, looked_up = self._begun.popleft()
        self.seen.append((step, round(float(looked_up()[0, -1]) - self._first)))
        self._engine.apply_gradients(batch, self.gradients(batch, step))
        self.steps += 1

    def drain(self) -> None:
        while self._begun:
            self.end()
        self._engine.finish()


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 2, 5])
def test_each_update_over_killed_workers_and_servers_is_made_once_within_the_bound(tmp_path, ahead):
    with started(tmp_path, 2) as (servers, workers), ThreadPoolExecutor(1) as pool:
        addresses = tuple(one.address for one in servers)
        run = RunServers(addresses, mode=Mode.EACH, workers=tuple(one.address for one in workers))
        engine = run.engine_over(run.connect(1), COUNTED, SEED, ahead + 1, workers=run.connect_workers(1, ahead + 1))
        training = Overlapping(engine, ahead)
        disturbing = pool.submit(disturb, [*workers, *servers], scaled(30), lambda: training.begun)
        while not disturbing.done():
            training.begin()
        disturbing.result(timeout=PATIENCE_SECS)
        training.drain()
        assert [read_status(one).applied for one in addresses] == [(training.steps,)] * 2
        # A lookup that is sent again after a server was killed sees updates that were sent meanwhile, but none that was not.
        assert all(step - ahead <= seen <= step for step, seen in training.seen)
        alone = CpuEngine(COUNTED, seed=SEED)
        for step in range(training.steps):
            batch = training.batch_of(step)
            alone.apply_gradients(batch, training.gradients(batch, step))
        assert_same(engine.state(), alone.state())
        assert engine.statistics() == alone.statistics()
        assert sum(one.reconnections for one in engine.links) > 2
        engine.close()


@pytest.mark.slow
def test_summed_updates_of_hosts_with_unequal_lanes_over_killed_workers_are_made_once():
    """Two hosts and three workers: one host has two of them."""
    clients = 2
    with thread_servers(2) as servers, worker_processes(servers, WORKERS) as workers, ThreadPoolExecutor(3) as pool:
        run = run_of(servers, [one.address for one in workers])
        engines = list(pool.map(lambda k: engine_of(run, k, clients), range(clients)))
        assert [len(one.links) for one in engines] == [2, 1]
        trainings = list(pool.map(lambda k: Training(engines[k], k), range(clients)))
        disturbing = pool.submit(disturb, workers, scaled(40), lambda: sum(one.steps for one in trainings))
        while not disturbing.done():
            list(pool.map(Training.train, trainings))
        disturbing.result(timeout=PATIENCE_SECS)
        for one in engines:
            one.finish()
        found, steps = engines[0].state(), trainings[0].steps
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
@pytest.mark.parametrize("mode", Mode)
def test_a_worker_that_is_back_has_its_batches_again_after_a_commit(mode):
    """Meanwhile another one has them; no worker stays idle."""
    with thread_servers(2) as servers, worker_processes(servers, WORKERS) as workers:
        run = replace(run_of(servers, [one.address for one in workers]), mode=mode)
        engine = run.engine_over(run.connect(1), FEATURES, SEED, 2, workers=run.connect_workers(1, 2))
        alone = CpuEngine(FEATURES, seed=SEED)
        assert train(engine, range(6)) == train(alone, range(6))
        workers[1].kill()
        assert train(engine, range(6, 12)) == train(alone, range(6, 12))
        engine.finish()
        assert train(engine, range(12, 18)) == train(alone, range(12, 18))
        workers[1].start()
        engine.finish()
        assert read_status(workers[1].address).fetches == 0
        assert train(engine, range(18, 24)) == train(alone, range(18, 24))
        assert_same(engine.state(), alone.state())
        assert read_status(workers[1].address).updates == 2
        assert [one.rows.status().applied for one in servers] == [(24,)] * 2
        engine.close()
