"""Bad input of a job of real processes: one clear error each, and nothing is lost."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from headrace.cli.training_jobs import role_command
from tests.support.processes import PATIENCE_SECS
from tests.trainer.launch.jobs import launch, make_warehouse, run_job, settings, supervise
from tests.trainer.synthetic import config
from tests.warehouse.scenes import model
from trainer.control.controller_client import ControllerClient
from trainer.control.job_files import JobFiles
from trainer.control.membership import Membership, Refused
from trainer.errors import RunMismatch
from trainer.flight.action_service import ActionService
from trainer.flight.addresses import Address
from trainer.launch.run_comparison import run_differences
from trainer.launch.supervisor import Supervisor, SupervisorSettings
from trainer.reading.reader_service import UNIT, ReaderService
from trainer.reading.unit_reader import UnitReader
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.orders import Commit
from trainer.scheduling.transitions import JobState
from trainer.training.preparation import prepare_run
from transforms.errors import Busy, StorageError
from warehouse import read_solution, submit_model
from warehouse.reading.reader import read_labels
from warehouse.scheduling.backoff import Backoff

OPTIONS = {"batch_rows": 64, "passes": 3}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    with make_warehouse(tmp_path_factory.mktemp("warehouse"), hours=3, rows=3000) as opened:
        yield opened


@pytest.fixture(scope="module")
def calm(warehouse, tmp_path_factory):
    """The undisturbed run."""
    pytest.importorskip("tensorflow")
    run_dir = tmp_path_factory.mktemp("calm") / "run"
    run_job(warehouse, run_dir, patient(), unit_rows=300, **OPTIONS)
    return run_dir


def patient():
    return settings(epoch_secs=0.5, most_restarts=1000, most_reader_failures=1000)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_run_of_another_model_is_refused_and_kept(warehouse, calm):
    submit_model(warehouse, model("other", inputs=3))
    solution = read_solution(warehouse, "other")
    before = tree(calm)
    labels = partial(read_labels, warehouse.storage, solution)
    with pytest.raises(RunMismatch, match=r"model|run"):
        prepare_run(solution, config(calm, deterministic=True, **OPTIONS), labels, on_skip=lambda reason: None)
    assert tree(calm) == before


@pytest.mark.slow
def test_memos_that_are_lost_midway_are_computed(tmp_path, calm):
    with make_warehouse(tmp_path, hours=3, rows=3000) as own:
        memos = tmp_path / "home" / "memos"

        def lose(status):
            if status.commit_epochs >= 1:
                shutil.rmtree(memos, ignore_errors=True)

        status = run_job(own, tmp_path / "run", patient(), on_status=lose, unit_rows=300, **OPTIONS)
    assert status.state is JobState.DONE
    assert not memos.exists()
    assert run_differences(tmp_path / "run", calm) == ()


@pytest.mark.slow
def test_a_reader_of_another_release_is_refused_and_the_job_goes_on(warehouse, tmp_path, calm):
    job = launch(warehouse, tmp_path / "run", patient(), unit_rows=300, **OPTIONS)
    refused = []

    def join():
        client = ControllerClient.of_run(JobFiles(tmp_path / "run"), job=job.spec.job)
        role = Role(RoleKind.READER, "r9")
        try:
            Membership(client, role, release="another", on_orders=lambda orders, peers: None).start()
        except Refused as error:
            refused.append(error)
        client.close()

    threads = []

    def on_status(status):
        if status.state is JobState.TRAINING and not threads:
            threads.append(threading.Thread(target=join))
            threads[0].start()

    status = supervise(tmp_path / "run", job, on_status=on_status).run(job.newest)
    threads[0].join()
    assert status.state is JobState.DONE
    assert "release" in str(refused[0])
    assert all(one.role.name != "r9" for one in status.members)
    assert run_differences(tmp_path / "run", calm) == ()


JUMPING = """
import itertools, sys, threading, time
real, begun, jumps = time.monotonic, time.monotonic(), itertools.cycle((0.0, 1e6, -1e6, 40.0, -40.0))
offset = [0.0, begun]
def jumping():
    now = real()
    if now - offset[1] > 0.7:
        offset[:] = next(jumps), now
    return now + offset[0]
time.monotonic = jumping
sys.argv[1:] = sys.argv[1:]
from headrace.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.soak
def test_a_clock_that_jumps_changes_nothing(warehouse, tmp_path, calm):
    job = launch(warehouse, tmp_path / "run", patient(), unit_rows=300, **OPTIONS)

    def jumping(kind, name, options):
        arguments = role_command(str(tmp_path / "run"), kind, name, options)
        return [sys.executable, "-c", JUMPING, *arguments[3:]] if kind == "controller" else arguments

    status = Supervisor(
        JobFiles(tmp_path / "run"), job.spec.job, jumping, settings=SupervisorSettings(look_secs=0.1)
    ).run(job.newest)
    assert status.state is JobState.DONE
    assert status.restarts == 0
    assert run_differences(tmp_path / "run", calm) == ()


@pytest.mark.slow
def test_a_full_disk_delays_a_commit(warehouse, tmp_path, calm):
    """Files of the host may not grow; the job restarts its epochs until there is space."""
    job = launch(warehouse, tmp_path / "run", patient(), unit_rows=300, **OPTIONS)
    full, seen = [], []

    def on_status(status):
        running = supervisor.running().get("h0")
        if running is None:
            return
        process = running.process
        if not full:
            full.append(resource.prlimit(process.pid, resource.RLIMIT_FSIZE))
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2000, full[0][1]))
        elif status.restarts >= 2 and not seen:
            seen.append(status.commit_epochs)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, full[0])

    supervisor = supervise(tmp_path / "run", job, on_status=on_status)
    status = supervisor.run(job.newest)
    assert status.state is JobState.DONE
    assert seen == [0], "nothing is committed while the disk is full"
    assert run_differences(tmp_path / "run", calm) == ()


def test_a_controller_that_is_ending_is_away_for_its_supervisor(tmp_path):
    def refuse(name, content):
        raise Busy("the controller of a job must run", value="it has ended")

    with ActionService(Address("127.0.0.1", 0), refuse, most_bytes=1000) as service:
        client = ControllerClient(service.address)
        supervisor = Supervisor(JobFiles(tmp_path), "job", lambda kind, name, options: [])
        assert supervisor._look(client) is None
        client.close()


def test_a_controller_that_fails_before_it_has_a_log_begins_at_the_same_commit_again(tmp_path):
    """Without the commit it would train from the beginning, for a run whose log is not there."""
    files, started = JobFiles(tmp_path), []

    def command(kind, name, options):
        started.append(tuple(options))
        if len(started) == 3:
            files.make()
            files.log.write_bytes(b"")
        return [sys.executable, "-c", "raise SystemExit(6)"]

    quick = SupervisorSettings(look_secs=0.05, backoff=Backoff(first_secs=0.01, most_secs=0.01, jitter=0.0))
    with pytest.raises(StorageError, match="the controller of a job must start"):
        Supervisor(files, "job", command, settings=quick).run(Commit(3, 7, 30))
    assert started == [("--commit", "3,7,30")] * 3 + [()]


def run_role(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "headrace", "role", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE_SECS)


def test_servers_need_a_free_port_and_off_loopback_a_token(warehouse, tmp_path):
    run_dir = tmp_path / "run"
    launch(warehouse, run_dir, patient(), **OPTIONS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for kind in ("controller", "reader"):
            done = run_role(kind, str(run_dir), "--address", address)
            assert done.returncode == 2, done.stderr
            assert "the address of a service must be free" in done.stderr
            assert address in done.stderr
    JobFiles(run_dir).token.unlink()
    for kind in ("controller", "reader"):
        done = run_role(kind, str(run_dir), "--address", "0.0.0.0:0")
        assert done.returncode == 2, done.stderr
        assert "a service off loopback must have a token" in done.stderr


def test_a_long_request_is_refused_and_the_reader_goes_on():
    from pyarrow import flight

    from trainer.flight.client import Client

    def nothing(*_):
        raise AssertionError("no unit is read")

    with ReaderService(Address("127.0.0.1", 0), UnitReader(nothing, nothing, kept_bytes=1)) as service:
        client = Client(service.address)
        for content in (b"x" * (32 << 20), b"{}", b"", b"\xff" * 100):
            with pytest.raises(Exception, match=r"unit|request|message|JSON") as refused:
                client.call(
                    lambda one, options, content=content: list(one.do_action(flight.Action(UNIT, content), options)),
                    timeout_secs=30.0,
                )
            assert len(str(refused.value)) < 2000
        assert client.call(lambda one, options: list(one.do_action("status", options)), timeout_secs=30.0)
        client.close()
