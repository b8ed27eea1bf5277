from __future__ import annotations

import contextlib
import random
import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.control.controller_process import JOB, ControllerProcesses, FolderPublisher, job_settings
from tests.trainer.job.control.serving import serving
from tests.trainer.job.control.small_job import SmallJob
from tests.trainer.job.control.test_controller import until
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import ControllerAddress, JobFiles
from trainer.job.control.membership import Membership, Refused
from trainer.job.control.messages import Answer, RoleCall, RoleReport
from trainer.scheduling.events import DataRange, Role, RoleKind
from trainer.scheduling.job import PhaseSettings
from trainer.scheduling.orders import AskPosition, EndEpoch, Leave, Rejoin, StartEpoch, WritePart
from trainer.scheduling.transitions import JobState
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import DataError, InputError

HOST = Role(RoleKind.HOST, "h0")
READER = Role(RoleKind.READER, "r0")
ALONE = job_settings(initial=PhaseSettings(least_readers=0))
STOPS = (10, 20, 30, 40)


class Seen:
    """Keeps the answers that a member received."""

    def __init__(self) -> None:
        self.answers: list[tuple] = []
        self.rejoins = 0

    def orders(self, orders, peers) -> None:
        self.answers.append((orders, peers))

    def rejoined(self) -> None:
        self.rejoins += 1

    def has(self, kind) -> bool:
        return bool(self.last) and isinstance(self.last[0], kind)

    @property
    def last(self):
        return self.answers[-1][0] if self.answers else None


def member(client, role=HOST, seen=None, **options) -> Membership:
    seen = seen or Seen()
    options = {"release": "", "beat_secs": 0.1, "patience_secs": PATIENCE_SECS, **options}
    return Membership(client, role, on_orders=seen.orders, on_rejoin=seen.rejoined, **options)


def test_a_member_follows_a_job_to_its_end(tmp_path):
    seen = Seen()
    with serving(tmp_path, settings=ALONE) as found, member(found.client, seen=seen) as host:
        for attempt, stop in ((1, 10), (2, 20)):
            until(lambda attempt=attempt: seen.has(StartEpoch) and seen.last[0].attempt == attempt)
            host.drained(attempt, stop)
            until(lambda: seen.has(WritePart))
            host.part_written(attempt, f"part-{attempt}")
        until(lambda: seen.has(Leave))
        host.leave()
        found.join()
        assert (found.status.state, found.status.members) == (JobState.DONE, ())
        assert host.error is None


def test_orders_reach_a_member_at_once(tmp_path):
    """A heartbeat of a minute delays no order: it waits at the controller."""
    seen = Seen()
    with serving(tmp_path) as found, member(found.client, seen=seen, beat_secs=60.0) as host:
        time.sleep(0.2)
        assert seen.last == ()
        begun = time.monotonic()
        with member(found.client, READER):
            until(lambda: seen.last)
            host.drained(1, 10)
            until(lambda: seen.has(WritePart))
            assert time.monotonic() - begun < 50
            threading.Thread(target=host.leave).start()
            until(lambda: [one.role for one in found.client.status().members] == [READER])


def test_a_report_is_repeated_until_the_orders_do_not_need_it(tmp_path):
    class Deaf(ControllerClient):
        """A client whose positions are lost."""

        lost = 3
        sent = 0

        def send(self, call: RoleCall) -> Answer:
            if any(type(one).__name__ == "Position" for one in call.events):
                self.sent += 1
                if self.sent <= self.lost:
                    call = RoleCall(call.job, call.role, call.incarnation, call.report, (), call.known, call.wait_secs)
            return super().send(call)

    seen = Seen()
    with serving(tmp_path, settings=ALONE) as found:
        client = Deaf(found.service.address, job=JOB, token=found.files.read_token())
        with member(client, seen=seen) as host:
            until(lambda: seen.last)
            found.client.notice(3000.0)
            until(lambda: any(isinstance(one, AskPosition) for one in seen.last))
            host.position(1, 3)
            until(lambda: any(isinstance(one, EndEpoch) and one.stop_unit == 3 for one in seen.last))
            sent = client.sent
            assert sent >= 4
            time.sleep(0.4)
            assert client.sent == sent, "the orders do not need it any more"


def test_errors_are_reported(tmp_path):
    with serving(tmp_path, settings=ALONE) as found, member(found.client) as host:
        until(lambda: found.client.status().state is JobState.TRAINING)
        host.fail(1, DataError("a label must be 0 or 1"))
        until(lambda: found.client.status().state is JobState.HELD)
        assert found.client.status().hold.reason == "DataError: a label must be 0 or 1"


def test_reports_of_heartbeats_reach_the_status(tmp_path):
    with serving(tmp_path) as found, member(found.client, READER, report=lambda: RoleReport("127.0.0.1:99")):
        until(lambda: found.client.status().members)
        assert found.client.status().members[0].address == "127.0.0.1:99"


def test_a_member_of_another_release_is_refused(tmp_path):
    with serving(tmp_path) as found:
        with pytest.raises(Refused, match="does not accept this process") as caught:
            member(found.client, release="0.9").start()
        assert "release" in caught.value.value


def test_a_process_that_was_replaced_ends(tmp_path):
    errors = []
    with serving(tmp_path) as found, member(found.client, incarnation=1, on_error=errors.append) as old:
        with member(found.client, incarnation=2):
            until(lambda: errors)
            with pytest.raises(Refused):
                old.wait(PATIENCE_SECS)
        assert errors == [old.error]


def test_a_member_that_was_lost_begins_with_nothing(tmp_path):
    seen = Seen()
    alone = job_settings(initial=PhaseSettings(least_readers=0), lost_secs=1.0)
    with serving(tmp_path, settings=alone) as found, member(found.client, seen=seen, incarnation=3) as host:
        until(lambda: seen.last)
        send, silent = found.client.send, threading.Event()
        found.client.send = lambda call: (silent.wait(PATIENCE_SECS), send(call))[1]
        until(lambda: found.client.status().members == ())
        found.client.send = send
        silent.set()
        until(lambda: seen.rejoins)
        until(lambda: found.client.status().state is JobState.TRAINING)
        assert (seen.rejoins, host.incarnation > 3) == (1, True)
        assert not any(isinstance(one, Rejoin) for orders, _ in seen.answers for one in orders)


def test_a_token_that_is_wrong_ends_a_start_at_once(tmp_path):
    files = JobFiles(tmp_path)
    files.make_token()
    with serving(tmp_path) as found, pytest.raises(InputError, match="token must be that of the job"):
        member(ControllerClient(found.service.address, job=JOB, token="wrong")).start()


def test_a_controller_that_is_away_for_too_long_is_one_error(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", free.getsockname()[1])
    for client in (ControllerClient(address, job=JOB), ControllerClient.of_run(JobFiles(tmp_path), job=JOB)):
        begun = time.monotonic()
        with pytest.raises(Unreachable):
            member(client, patience_secs=0.5).start()
        assert time.monotonic() - begun > 0.4
    errors = []
    with serving(tmp_path) as found:
        host = member(found.client, patience_secs=0.3, on_error=errors.append)
        host.start()
    until(lambda: errors)
    with pytest.raises(Unreachable):
        host.check()


def test_a_member_comes_back_to_a_controller_on_another_port(tmp_path):
    """The same process, with its memory: the attempt goes on. A stale address is not a reason to end."""
    seen = Seen()
    files = JobFiles(tmp_path)
    with serving(tmp_path, settings=ALONE) as first:
        host = member(ControllerClient.of_run(files, job=JOB), seen=seen)
        host.start()
        until(lambda: seen.last)
        (start,) = seen.last
    with serving(tmp_path / "other"):  # perhaps on the first one's port
        files.write_address(ControllerAddress(str(first.service.address), 1, 1))
        time.sleep(0.3)
    with serving(tmp_path, settings=ALONE) as second:
        count = len(seen.answers)
        until(lambda: len(seen.answers) > count)
        assert (seen.last, seen.rejoins) == ((start,), 0)
        assert second.client.status().attempt == 1
        host.close()


def test_a_port_that_another_job_took_is_not_the_end(tmp_path):
    seen = Seen()
    files = JobFiles(tmp_path / "one")
    with serving(tmp_path / "one", settings=ALONE) as first:
        host = member(ControllerClient.of_run(files, job=JOB), seen=seen)
        host.start()
    JobFiles(tmp_path / "two").make_token()
    with serving(tmp_path / "two", settings=ALONE) as other:
        files.write_address(ControllerAddress(str(other.service.address), 1, 1))
        time.sleep(0.5)
        assert other.client.status().members == ()
        host.check()
    assert first.error is None
    with serving(tmp_path / "one", settings=ALONE):
        count = len(seen.answers)
        until(lambda: len(seen.answers) > count)
    host.close()


class Faulty(ControllerClient):
    """A client whose messages are lost, repeated and delayed."""

    draw = random.Random(0)

    def send(self, call: RoleCall) -> Answer:
        kind = self.draw.random()
        if kind < 0.15:
            raise Unreachable("the message is lost")
        if kind < 0.3:
            super().send(call)
            raise Unreachable("the answer is lost")
        if kind < 0.45:
            super().send(call)
        if kind < 0.6:
            time.sleep(self.draw.uniform(0, 0.3))
        return super().send(call)


def run_job(tmp_path, make_client: Callable[[JobFiles], ControllerClient] | None, seed: int) -> list[int]:
    job = SmallJob(tmp_path, seed=seed, make_client=make_client)
    try:
        with serving(tmp_path, settings=job_settings(hosts=2), data=data(STOPS)) as found:
            found.join()
            assert found.status.state is JobState.DONE
    finally:
        job.close()
    return job.check(STOPS[-1], STOPS)


def data(stops):
    return DataRange("plan", stops[-1], stops)


@pytest.mark.medium
def test_lost_repeated_and_delayed_messages_only_delay(tmp_path):
    for seed in range(scaled(4)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        attempts = run_job(folder, lambda files: Faulty(files.find_controller, job=JOB, token=files.read_token()), seed)
        assert attempts == [1, 2, 3, 4], "no attempt was given up"


class Relay:
    """Forwards connections to a controller, and cuts them."""

    def __init__(self, find: Callable[[], Address]) -> None:
        self._find = find
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        found, self._open = self._open, []
        for one in found:
            _end(one)

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                address = self._find()
                far = socket.create_connection((address.host, address.port))
            except Exception:
                near.close()
                continue
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := one.recv(1 << 16):
                other.sendall(content)
        _end(one)
        _end(other)


def _end(one: socket.socket) -> None:
    """End a connection also for the thread that reads from it."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def test_cut_connections_only_delay(tmp_path):
    relay = Relay(JobFiles(tmp_path).find_controller)
    stopped = threading.Event()

    def cut() -> None:
        while not stopped.is_set():
            time.sleep(0.15)
            relay.cut()

    threading.Thread(target=cut, daemon=True).start()
    try:
        assert run_job(
            tmp_path, lambda files: ControllerClient(relay.address, job=JOB, token=files.read_token()), 5
        ) == [1, 2, 3, 4]
    finally:
        stopped.set()
        relay.close()


@pytest.mark.medium
def test_members_wait_for_a_killed_controller(tmp_path):
    job = SmallJob(tmp_path)
    publisher = FolderPublisher(tmp_path / "commits")
    try:
        with ControllerProcesses() as controllers:
            controllers.start(run_dir=str(tmp_path), stops=STOPS, settings={"hosts": 2})
            until(publisher.commits)
            controllers.kill()
            assert controllers.wait() == -signal.SIGKILL
            time.sleep(1.0)
            controllers.start(run_dir=str(tmp_path), stops=STOPS, settings={"hosts": 2})
            assert controllers.wait() == 0
    finally:
        job.close()
    assert job.check(40, STOPS) == [1, 2, 3, 4]
