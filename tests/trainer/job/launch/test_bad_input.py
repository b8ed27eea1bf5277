"""Bad input of a job of real processes: one clear error each, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import psutil
import pytest

from headrace.cli.training_jobs import role_command
from tests.support.fake_readers import FakeReader, announce, send_whole
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.jobs import RELEASE, launch, make_warehouse, run_job, settings, supervise
from tests.trainer.synthetic import config
from tests.warehouse.scenes import model
from trainer.errors import RunMismatch
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.control.membership import Membership, Refused
from trainer.job.control.messages import RoleReport
from trainer.job.host.host_messages import HostFrame, HostGreeting, Sender, write_greeting
from trainer.job.launch.run_comparison import run_differences
from trainer.job.launch.supervisor import Supervisor, SupervisorSettings
from trainer.run.preparation.preparation import prepare_run
from trainer.run.reading.unit_frames import UnitFrame
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.orders import Commit, Leave
from trainer.scheduling.transitions import JobState
from trainer.wire.flight.action_service import ActionService
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import from_bytes
from trainer.wire.frame_stream import FrameStream
from trainer.wire.framed_service import connect_stream
from trainer.wire.frames import FrameHeader, FrameOrder, WireProtocol
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
    """The files of a run; its lock names the last process that had it."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


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
def test_the_command_refuses_the_run_of_another_model(warehouse, calm, tmp_path):
    submit_model(warehouse, model("other", inputs=3))
    before, options = tree(calm), tmp_path / "options.json"
    options.write_text(json.dumps({"batch_rows": 64}), encoding="utf-8")
    line = [sys.executable, "-m", "headrace", "train", "other", "--home", warehouse.storage.home, "--run-dir", str(calm),
            "--hosts", "1", "--readers", "1", "--config", str(options)]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE_SECS)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "a run must continue with the table, label and inputs" in done.stderr
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


FULL = """
import resource, sys
from trainer.job.launch.checkpoint_publisher import CheckpointPublisher
real, refused = CheckpointPublisher.publish, []
def publish(self, order):
    # The kernel refuses the write of the manifest in the middle, as it does on a full disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if len(refused) < 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        return real(self, order)
    except Exception as error:
        refused.append(error)
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
CheckpointPublisher.publish = publish
from headrace.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_full_disk_while_a_commit_is_published_delays_it(warehouse, tmp_path, calm):
    job, restarts = launch(warehouse, tmp_path / "run", patient(), unit_rows=300, **OPTIONS), []

    def full(kind, name, options):
        arguments = role_command(str(tmp_path / "run"), kind, name, options)
        return [sys.executable, "-c", FULL, *arguments[3:]] if kind == "controller" else arguments

    supervisor = Supervisor(JobFiles(tmp_path / "run"), job.spec.job, full, settings=SupervisorSettings(look_secs=0.1),
                            on_status=lambda status: restarts.append((status.commit_epochs, status.restarts)))  # fmt: skip
    status = supervisor.run(job.newest)
    assert status.state is JobState.DONE
    assert (0, 2) in restarts, "both refusals gave the attempt up, and nothing was committed"
    assert run_differences(tmp_path / "run", calm) == ()


def once(status, role_kind, seen):
    """The address of a training job's role, the first time that it is known."""
    for one in status.members:
        if status.state is JobState.TRAINING and one.role.kind is role_kind and one.address and role_kind not in seen:
            seen.append(role_kind)
            return Address.parse(one.address)
    return None


@pytest.mark.slow
def test_oversized_messages_change_nothing_in_a_running_job(warehouse, tmp_path, calm):
    job = launch(warehouse, tmp_path / "run", patient(), unit_rows=300, **OPTIONS)
    token, seen, refused, grown = JobFiles(tmp_path / "run").read_token(), [], {}, {}
    sent_bytes = {RoleKind.READER: 1 << 28, RoleKind.HOST: 1 << 31}

    def flood_reader(address):
        order, length = FrameOrder(WireProtocol.UNITS, 5), sent_bytes[RoleKind.READER]
        long = FrameHeader(WireProtocol.UNITS, UnitFrame.UNIT, length, session=5, sequence=1).to_bytes()
        with contextlib.closing(connect_stream(address, PATIENCE_SECS)) as stream:
            frames = FrameStream(stream, order)
            with contextlib.suppress(OSError):
                frames.send([*order.write(UnitFrame.GREETING, [token.encode()]), long, bytes(length)], PATIENCE_SECS)
            frame = frames.receive_header()
            refused[RoleKind.READER] = from_bytes(bytes(frames.receive_new_body(frame)), str(address))

    def flood_host(address):
        with socket.create_connection((address.host, address.port), PATIENCE_SECS) as stream:
            order = FrameOrder(WireProtocol.HOSTS, 5)
            greeting = write_greeting(HostGreeting(Sender(10**6, 1), token, 5))
            described = json.dumps([["uint8", sent_bytes[RoleKind.HOST]]]).encode()
            with contextlib.suppress(ConnectionError):
                for part in order.write(HostFrame.GREETING, [greeting]):
                    stream.sendall(part)
                stream.sendall(
                    FrameHeader(WireProtocol.HOSTS, HostFrame.MESSAGE, len(described) + sent_bytes[RoleKind.HOST], session=5,
                                sequence=1, flags=len(described)).to_bytes()
                )  # fmt: skip
            frames = FrameStream(stream, FrameOrder(WireProtocol.HOSTS, 5))
            while (frame := frames.receive_header()) is not None and frame.kind != HostFrame.ERROR:
                continue
            refused[RoleKind.HOST] = from_bytes(bytes(frames.receive_new_body(frame)), str(address))

    def on_status(status):
        for kind, flood, name in ((RoleKind.READER, flood_reader, "r0"), (RoleKind.HOST, flood_host, "h0")):
            address = once(status, kind, seen)
            if address is not None:
                process = psutil.Process(supervisor.running()[name].process.pid)
                before = process.memory_info().rss
                flood(address)
                grown[kind] = process.memory_info().rss - before

    supervisor = supervise(tmp_path / "run", job, on_status=on_status)
    status = supervisor.run(job.newest)
    assert (status.state, status.restarts) == (JobState.DONE, 0)
    assert {kind: "must be short" in str(error) for kind, error in refused.items()} == dict.fromkeys(seen, True)
    assert len(seen) == 2
    # Both work meanwhile, and the host has just begun: TensorFlow takes more than 200 MB in its first steps.
    assert all(grown[kind] < sent_bytes[kind] // 2 for kind in seen), grown
    assert run_differences(tmp_path / "run", calm) == ()


BAD_ANSWERS = {
    "truncated": announce(100_000, bytes(50_000)),
    "random": send_whole(os.urandom(1000)),
    "endless": announce(1 << 20, bytes(1 << 20), is_endless=True),
    "oversized": announce(1 << 50),
}


class BadReader:
    """A reader of a job that answers each request for a unit with the same bytes."""

    def __init__(self, files, job, name):
        self._service = FakeReader(BAD_ANSWERS[name])
        self._client = ControllerClient.of_run(files, job=job)
        self._membership = Membership(
            self._client,
            Role(RoleKind.READER, name),
            release=RELEASE,
            on_orders=self._on_orders,
            report=lambda: RoleReport(str(self._service.address)),
        )
        self._membership.start()

    @property
    def asked(self):
        return self._service.asked

    def _on_orders(self, orders, peers):
        if any(isinstance(order, Leave) for order in orders):
            threading.Thread(target=self._membership.leave, daemon=True).start()

    def close(self):
        self._membership.close()
        self._client.close()
        self._service.close()


@pytest.mark.slow
def test_a_host_refuses_the_units_of_bad_readers_and_asks_another_one(warehouse, tmp_path, calm):
    options = settings(epoch_secs=0.5, most_restarts=1000, most_reader_failures=1000, most_readers=8)
    job, bad = launch(warehouse, tmp_path / "run", options, unit_rows=300, **OPTIONS), {}
    files = JobFiles(tmp_path / "run")

    def on_status(status):
        if not bad:
            bad.update({name: BadReader(files, job.spec.job, name) for name in BAD_ANSWERS})

    try:
        status = supervise(tmp_path / "run", job, on_status=on_status).run(job.newest)
    finally:
        for one in bad.values():
            one.close()
    assert status.state is JobState.DONE
    assert any(one.asked for one in bad.values())
    assert run_differences(tmp_path / "run", calm) == ()


def test_a_controller_that_is_ending_is_away_for_its_supervisor(tmp_path):
    def refuse(name, content):
        raise Busy("the controller of the job is not running", value="it has ended")

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
    with pytest.raises(StorageError, match="the controller of the job did not start"):
        Supervisor(files, "job", command, settings=quick).run(Commit(3, 7, 30))
    assert started == [("--commit", "3,7,30")] * 3 + [()]


def run_role(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "headrace", "role", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE_SECS)


@pytest.mark.slow
def test_services_need_a_free_port_and_their_jobs_token(warehouse, tmp_path):
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
        for address in ("127.0.0.1:0", "0.0.0.0:0"):
            done = run_role(kind, str(run_dir), "--address", address)
            assert done.returncode == 4, done.stderr
            assert "a job must have its token" in done.stderr
