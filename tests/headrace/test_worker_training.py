"""``headrace train --embedding-workers``: the bits of training in one process, with rows that embedding workers pool."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest

from headrace.cli.options.servers import server_command, worker_command
from tests.headrace.test_served_training import OPTIONS, assert_equal_runs
from tests.support.certificates import make_certificates
from tests.support.embedding_workers import ThreadWorker
from tests.support.host_steps import check_hosts_train
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.support.processes import end, start, wait_until
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from tests.trainer.tables.table_states import assert_same
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.local_servers import LocalServers
from trainer.servers.run_servers import RunServers
from trainer.servers.server_status import read_status
from trainer.servers.tls import client_tls, server_tls
from trainer.tables import CpuEngine
from trainer.wire.flight.addresses import Address

_BETWEEN_KILLS_SECS = 0.5


@pytest.fixture
def served(submitted, tmp_path):
    """The command line, with options in ``options.json``."""
    submitted.options = tmp_path / "options.json"
    submitted.options.write_text(json.dumps(OPTIONS))
    return submitted


@pytest.mark.medium
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--embedding-workers", "1"), "--embedding-workers must go with --servers"),
        (("--servers", "1", "--embedding-workers", "0"), "--embedding-workers must be a number of processes"),
        (("--servers", "1", "--embedding-workers", "here:1"), "at addresses must go with --servers at addresses"),
        (("--servers", "here:1", "--embedding-workers", "here"), "an address must be host:port"),
        (("--servers", "here:1", "--embedding-workers", "a:1,a:1"), "must be different"),
        (
            ("--servers", "here:1", "--embedding-workers", "2", "--launcher", "remote"),
            "remote needs the addresses of running workers",
        ),
    ],
)
def test_workers_that_cannot_be_are_refused(served, options, problem):
    assert problem in served("train", "first", *options, status=2).err


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(), ("--hosts", 2, "--readers", 1)])
def test_training_through_workers_has_the_bits_of_training_without(served, tmp_path, hosts):
    served.options.write_text(json.dumps({**OPTIONS, "staleness": 1}))
    arguments = ("train", "first", "--config", served.options, "--json", *hosts)
    served(*arguments, "--run-dir", tmp_path / "alone")
    workers = ("--servers", 2, "--embedding-workers", 2, "--wire-ids", "unique")
    report = served(*arguments, "--run-dir", tmp_path / "workers", *workers).json
    assert report["exact"] is True
    if hosts:
        check_hosts_train(report, 2)
    assert_equal_runs(tmp_path / "alone", tmp_path / "workers")
    again = served(*arguments, "--run-dir", tmp_path / "workers").json
    assert again["events_this_time"] == 0


class Kills:
    """Kills the processes that answer of local workers again and again, stops some for a while, and kills each keeper once."""

    def __init__(self, monkeypatch) -> None:
        self._started: list[LocalServers] = []
        enter = LocalServers.__enter__
        monkeypatch.setattr(LocalServers, "__enter__", lambda own: self._started.append(enter(own)) or own)
        self.made = self.stopped = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        random, keepers = Random(1), 2
        while not self._ends.wait(_BETWEEN_KILLS_SECS):
            found = {name: keeper for one in self._started for name, keeper in one.processes.items() if name[0] == "w"}
            for keeper in found.values():
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                    keepers -= self._disturb(keeper, random, keepers)

    def _disturb(self, keeper: int, random: Random, keepers: int) -> bool:
        """Kill or stop a worker, or nothing; whether its keeper was killed, of which ``keepers`` may be."""
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        if not children or random.random() < 0.4:
            return False
        child = int(children[0])
        if self.made % 4 == 3 and not self.stopped % 2:
            os.kill(child, signal.SIGSTOP)
            self._ends.wait(random.uniform(0.0, _BETWEEN_KILLS_SECS))
            os.kill(child, signal.SIGCONT)
            self.stopped += 1
            return False
        kills_keeper = self.made > 4 and keepers > 0
        os.kill(keeper if kills_keeper else child, signal.SIGKILL)
        self.made += 1
        self.stopped += self.stopped % 2
        return kills_keeper

    def __enter__(self) -> Kills:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(), ("--hosts", 2, "--readers", 1)])
def test_killed_and_stopped_workers_change_no_bit(served, tmp_path, monkeypatch, hosts):
    served.options.write_text(json.dumps({**OPTIONS, "passes": 20, "staleness": 2}))
    arguments = ("train", "first", "--config", served.options, "--json", *hosts)
    served(*arguments, "--run-dir", tmp_path / "alone")
    with Kills(monkeypatch) as kills:
        report = served(*arguments, "--run-dir", tmp_path / "workers", "--servers", 2, "--embedding-workers", 2).json
    print(f"{kills.made} kills")
    assert kills.made > 3
    assert report["exact"] is True
    assert_equal_runs(tmp_path / "alone", tmp_path / "workers")


@contextmanager
def started_worker(folder: Path, *options: object):
    """The address of a worker that the command line has started."""
    file = folder / "worker.address"
    command = [sys.executable, "-m", "headrace", "ps", "worker", "--address-file", file, *options]
    process = start([str(one) for one in command], folder / "worker.log")
    try:
        wait_until(file.exists, "the worker listens", {"worker": process})
        yield file.read_text()
    finally:
        end(process)


@pytest.mark.slow
def test_workers_at_addresses_with_a_token_and_certificates(served, tmp_path):
    made = make_certificates(tmp_path / "tls")
    token = "the-token-of-a-test"
    (tmp_path / "token").write_text(token)
    arguments = ("train", "first", "--config", served.options, "--json")
    served(*arguments, "--run-dir", tmp_path / "alone")
    server = ThreadServer(token=token, tls=server_tls(str(made.certificate), str(made.key)))
    own = ("--token-file", tmp_path / "token", "--certificate", made.certificate, "--key", made.key)
    with started_worker(tmp_path, "--servers", server.address, "--server-ca", made.authority, *own) as address:
        at = ("--servers", server.address, "--embedding-workers", address)
        trust = ("--server-token-file", tmp_path / "token", "--server-ca", made.authority)
        report = served(*arguments, "--run-dir", tmp_path / "workers", *at, *trust).json
        shown = read_status(Address.parse(address), token=token, tls=client_tls(str(made.authority)))
    server.close()
    assert report["exact"] is True
    assert_equal_runs(tmp_path / "alone", tmp_path / "workers")
    assert shown.updates == server.rows.status().updates > 0


@contextmanager
def three_workers():
    """Two servers and three workers in this process, and the options of training over them."""
    with ExitStack() as started:
        servers = started.enter_context(thread_servers(2))
        workers = [ThreadWorker([one.address for one in servers]) for _ in range(3)]
        for one in workers:
            started.callback(one.close)
        addresses = (",".join(str(one.address) for one in some) for some in (servers, workers))
        yield servers, workers, tuple(zip(("--servers", "--embedding-workers"), addresses, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(), ("--hosts", 1, "--readers", 1), ("--hosts", 2, "--readers", 1)])
@pytest.mark.parametrize("updates", ["summed", "each"])
def test_all_workers_have_batches_of_one_host(served, tmp_path, hosts, updates):
    """Batches are counted by the workers; summed updates have the bits of training without them."""
    served.options.write_text(json.dumps({**OPTIONS, "staleness": 2}))
    arguments = ("train", "first", "--config", served.options, "--json", *hosts)
    with three_workers() as (servers, workers, at):
        own = (*at[0], *at[1], "--server-updates", updates)
        report = served(*arguments, "--run-dir", tmp_path / "workers", *own).json
        done = [one.worker.status() for one in workers]
        made = [one.rows.status().updates for one in servers]
    assert report["exact"] is True
    assert min(one.updates for one in done) > 0
    assert [sum(one.updates for one in done)] * 2 == made
    if len(hosts) < 2 or hosts[1] == 1:
        assert max(one.updates for one in done) - min(one.updates for one in done) <= 3
    if updates == "summed":
        served(*arguments, "--run-dir", tmp_path / "alone")
        assert_equal_runs(tmp_path / "alone", tmp_path / "workers")


@pytest.mark.slow
def test_local_workers_are_replaced_when_they_are_killed(tmp_path):
    """By their keepers, and keepers by the processes that started them; meanwhile the client goes on with the other worker."""
    with ExitStack() as started:
        own, other = (JobFiles(tmp_path / name) for name in ("servers", "workers"))
        token, workers_token = own.make_token(), other.make_token()
        servers = started.enter_context(LocalServers(2, server_command, token_file=own.token, logs=tmp_path))
        command = partial(worker_command, servers.addresses, "", str(own.token))
        workers = started.enter_context(
            LocalServers(2, command, token_file=other.token, logs=tmp_path, kind="w", has_rows=False)
        )
        run = RunServers(servers.addresses, token, workers=workers.addresses, workers_token=workers_token, run=5)
        assert run.wait(lambda address: None) == 0
        engine, alone = run.engine(1, FEATURES, 3, 2), CpuEngine(FEATURES, seed=3)
        for step in range(9):
            keeper = workers.processes.get("w0")
            if step % 3 == 1 and keeper is not None:
                (child,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
                os.kill(keeper if step == 7 else int(child), signal.SIGKILL)
            assert train(engine, [step]) == train(alone, [step])
        assert_same(engine.state(), alone.state())
        engine.close()
