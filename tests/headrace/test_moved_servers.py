"""``headrace ps move``: the tables of a running ``headrace train --servers`` are moved to other servers, and no bit is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.headrace.test_lost_servers import server_processes
from tests.headrace.test_served_training import OPTIONS, assert_equal_runs, served  # noqa: F401 (a fixture)
from tests.headrace.test_worker_training import Kills
from tests.support.certificates import make_certificates
from tests.support.processes import PATIENCE_SECS, end, free_port, start, wait_until
from trainer.job.control.job_files import JobFiles
from trainer.planning.plan import PartitionPlan
from trainer.run.progress.lock import run_lock
from trainer.servers.moves.move_documents import MoveFiles, MoveReport, TrainingServers, new_id

#: A place for each id, so that bits do not depend on the number of servers.
HASHED = {"overlap": {"capacity": 5000}}
_HEADRACE = (sys.executable, "-m", "headrace")


def move(run: Path, servers: object, *options: object) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own."""
    command = [*_HEADRACE, "ps", "move", str(run), "--servers", str(servers), *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECS)


def test_a_run_that_does_not_train_is_refused(served, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    run.mkdir()
    found = served("ps", "move", run, "--servers", 2, status=4).err
    assert "ps move needs a running training with --servers" in found
    assert "it goes on from its newest checkpoint" in found


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ("0", "--servers must be a number of processes, or addresses"),
        ("9" * 5000, "--servers must be a number of processes, or addresses"),
        ("here", "an address must be host:port"),
        ("127.0.0.1:2,127.0.0.1:2", "the addresses of servers must be different"),
        ("127.0.0.1:2,127.0.0.1:1", "other servers than the current ones"),
        ("3", "needs a plan for the new servers"),
    ],
)
def test_servers_that_cannot_be_are_refused(served, tmp_path, servers, problem):  # noqa: F811
    from trainer.wire.flight.addresses import Address

    files = MoveFiles.of_run(tmp_path)
    with run_lock(files.folder):
        files.write_state(TrainingServers(new_id(), (Address("127.0.0.1", 1),), plan=PartitionPlan(1, ())))
        assert problem in served("ps", "move", tmp_path, "--servers", servers, status=2).err
        assert not files.request.exists()


class Mover:
    """Moves a run as soon as it trains; each move begins when the one before has ended."""

    def __init__(self, run: Path, moves: list[tuple[object, tuple[object, ...]]]) -> None:
        self._run, self._moves, self.found = run, moves, []
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        until = time.monotonic() + PATIENCE_SECS
        while not any((self._run / "checkpoints").glob("epoch-*")) and time.monotonic() < until:
            time.sleep(0.05)
        for servers, options in self._moves:
            self.found.append(move(self._run, servers, *options))

    def __enter__(self) -> Mover:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.join(PATIENCE_SECS)


@pytest.mark.slow
@pytest.mark.parametrize("hashed", [{}, HASHED], ids=["plain", "hashed"])
def test_moves_change_no_bit(served, tmp_path, hashed):  # noqa: F811
    """From 2 to 3 to 1, from those that training has started to others with the token of the run and back; some do not answer."""
    served.options.write_text(json.dumps({**OPTIONS, "passes": 120, "staleness": 2, "hashed": hashed}))
    arguments = ("train", "first", "--config", served.options, "--json")
    run = tmp_path / "moved"
    files = JobFiles(run)
    files.make_token()
    with server_processes(tmp_path, 3, str(files.token)) as servers:
        addresses = ",".join(str(one.address) for one in servers)
        moves = [(addresses, ("--json",)), (f"127.0.0.1:{free_port()}", ()), (1, ())]
        with Mover(run, moves) as mover:
            report = served(*arguments, "--run-dir", run, "--servers", 2)
    assert [one.returncode for one in mover.found] == [0, 6, 0], [one.stderr for one in mover.found]
    first, failed, last = mover.found
    screen = json.loads(first.stdout)
    assert screen["servers"] == addresses.split(",")
    assert screen["copied_rows"] > 0
    assert "tables were not moved: a server must answer" in failed.stderr
    assert f"{addresses.replace(',', ', ')}: not used any more, and may be ended" in last.stdout
    assert report.err.count("tables moved from") == 2
    assert report.json["exact"] is True
    served(*arguments, "--run-dir", tmp_path / "alone")
    assert_equal_runs(tmp_path / "alone", run)


@pytest.mark.slow
def test_embedding_workers_take_the_other_servers_and_are_killed_meanwhile(served, tmp_path, monkeypatch):  # noqa: F811
    """To servers with the token of the run, and to one that training starts."""
    served.options.write_text(json.dumps({**OPTIONS, "passes": 60, "staleness": 2}))
    arguments = ("train", "first", "--config", served.options, "--json")
    run = tmp_path / "moved"
    files = JobFiles(run)
    files.make_token()
    with server_processes(tmp_path, 2, str(files.token)) as servers:
        addresses = ",".join(str(one.address) for one in servers)
        with Kills(monkeypatch) as kills, Mover(run, [(addresses, ()), (1, ())]) as mover:
            report = served(*arguments, "--run-dir", run, "--servers", 2, "--embedding-workers", 2)
    assert [one.returncode for one in mover.found] == [0, 0], [one.stderr for one in mover.found]
    assert kills.made > 0
    assert report.err.count("tables moved from") == 2
    assert report.json["exact"] is True
    served(*arguments, "--run-dir", tmp_path / "alone")
    assert_equal_runs(tmp_path / "alone", run)


@pytest.mark.slow
@pytest.mark.parametrize("hashed", [{}, HASHED], ids=["plain", "hashed"])
@pytest.mark.parametrize("then", ["the servers before", "the other servers"])
def test_training_that_is_killed_in_a_move_goes_on(served, tmp_path, then, hashed):  # noqa: F811
    """One of the other servers stands still in the middle of the move."""
    served.options.write_text(json.dumps({**OPTIONS, "passes": 60, "hashed": hashed}))
    run, home = tmp_path / "run", tmp_path / "home"
    files = MoveFiles.of_run(run)
    with server_processes(tmp_path, 3) as servers:
        before, other = str(servers[0].address), ",".join(str(one.address) for one in servers[1:])
        command = [
            *_HEADRACE,
            "train",
            "first",
            "--config",
            str(served.options),
            "--run-dir",
            str(run),
            "--home",
            str(home),
        ]
        training = subprocess.Popen([*command, "--servers", before], cwd=ROOT)
        try:
            alive = {"training": training}
            wait_until(lambda: any((run / "checkpoints").glob("epoch-*")), "there is a checkpoint", alive)
            servers[2].signal(signal.SIGSTOP)
            moving = subprocess.Popen([*_HEADRACE, "ps", "move", str(run), "--servers", other], cwd=ROOT, stderr=subprocess.PIPE, text=True)  # fmt: skip
            wait_until(lambda: _newest_move(files) is not None, "the move has begun", alive)
        finally:
            training.kill()
            training.wait()
        servers[2].signal(signal.SIGCONT)
        _, err = moving.communicate(timeout=PATIENCE_SECS)
        assert (moving.returncode, "training has ended" in err) == (6, True)
        served("train", "first", "--config", served.options, "--run-dir", run, "--servers", before if then == "the servers before" else other)  # fmt: skip
    served("train", "first", "--config", served.options, "--run-dir", tmp_path / "alone")
    assert_equal_runs(tmp_path / "alone", run)


def _newest_move(files: MoveFiles) -> MoveReport | None:
    return files.read_state().move


@contextmanager
def started_servers(folder: Path, *options: tuple[object, ...]) -> Iterator[list[str]]:
    """The addresses of servers that the command line has started, each with its own options."""
    with ExitStack() as stack:
        found = []
        for k, own in enumerate(options):
            file = folder / f"server-{k}.address"
            command = [*_HEADRACE, "ps", "serve", "--address-file", file, *own]
            process = start([str(one) for one in command], folder / f"server-{k}.log")
            stack.callback(end, process)
            wait_until(file.exists, "the server listens", {"server": process})
            found.append(file.read_text())
        yield found


@pytest.mark.slow
def test_servers_with_tls_take_rows_by_the_authority_that_they_were_started_with(served, tmp_path):  # noqa: F811
    """One without an authority says which option names it, and training goes on with the servers before."""
    made = make_certificates(tmp_path / "tls")
    (tmp_path / "token").write_text("the-token-of-a-test")
    own = ("--token-file", tmp_path / "token", "--certificate", made.certificate, "--key", made.key)
    served.options.write_text(json.dumps({**OPTIONS, "passes": 120}))
    run, arguments = tmp_path / "run", ("train", "first", "--config", served.options, "--json")
    with started_servers(tmp_path, own, own, (*own, "--server-ca", made.authority)) as (first, without, able):
        trust = ("--server-token-file", tmp_path / "token", "--server-ca", made.authority)
        with Mover(run, [(without, ()), (able, ())]) as mover:
            report = served(*arguments, "--run-dir", run, "--servers", first, *trust)
    refused, moved = mover.found
    assert (refused.returncode, moved.returncode) == (6, 0), [one.stderr for one in mover.found]
    assert "must have the authority of the servers with TLS" in refused.stderr
    assert "headrace ps serve --server-ca FILE" in refused.stderr
    assert report.json["exact"] is True
    served(*arguments, "--run-dir", tmp_path / "alone")
    assert_equal_runs(tmp_path / "alone", run)
