from __future__ import annotations

import errno
import json
import os
import random
import stat
import threading
import time

import pytest
from pyarrow import flight

from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.control.controller_process import JOB, FolderPublisher, job_settings
from tests.trainer.job.control.serving import DATA, serving
from trainer.errors import ConfigError, DamagedLog, LeaseLost, RunMismatch
from trainer.job.control.controller_client import ControllerClient, is_away
from trainer.job.control.event_log import EventLog
from trainer.job.control.job_files import ControllerAddress, JobFiles
from trainer.job.control.messages import MOST_REQUEST_BYTES, Progress, RoleCall, RoleReport
from trainer.job.control.publishing import NotPublished
from trainer.run.progress.lock import run_lock
from trainer.scheduling.buffer_control import BufferSample
from trainer.scheduling.events import DataRange, Drained, Joined, PartWritten, Role, RoleKind
from trainer.scheduling.holds import ErrorDocument
from trainer.scheduling.job import PhaseSettings
from trainer.scheduling.orders import Commit, GiveUp, Leave, Refuse, Rejoin, StartEpoch, WritePart
from trainer.scheduling.transitions import JobState
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.client import Client, RemoteError, Unreachable
from transforms.errors import Busy, DataError, HeadraceError, InputError

HOST = Role(RoleKind.HOST, "h0")
READER = Role(RoleKind.READER, "r0")
ALONE = job_settings(initial=PhaseSettings(least_readers=0))


def call(client, role=HOST, *events, incarnation=1, report=None, known="", wait_secs=0.0):
    return client.send(RoleCall(JOB, role, incarnation, report, events, known, wait_secs))


def join(client, role=HOST, incarnation=1, release="", **options):
    event = Joined(0.0, role, incarnation, release, 1)
    return call(client, role, event, incarnation=incarnation, **options)


def raw(found, action, content):
    client = Client(found.service.address, token=found.files.read_token())
    return client.act(action, content, list, timeout_secs=30)


def until(check):
    end = time.monotonic() + PATIENCE_SECS
    while not check():
        assert time.monotonic() < end
        time.sleep(0.01)


def train_epoch(client, start):
    """Do what a host does for one epoch; the answer that has the next order."""
    answer = call(client, HOST, Drained(0.0, HOST, 1, start.attempt, start.stop_unit))
    assert [type(one) for one in answer.orders] == [WritePart]
    return call(client, HOST, PartWritten(0.0, HOST, 1, start.attempt, f"part-{start.attempt}"))


def test_a_job_of_one_host(tmp_path):
    publisher = FolderPublisher(tmp_path / "commits")
    with serving(tmp_path, settings=ALONE, publisher=publisher) as found:
        client = found.client
        assert client.status().state is JobState.STARTING
        (start,) = join(client).orders
        assert (start.attempt, start.stop_unit, start.data) == (1, 10, "plan")
        train_epoch(client, start)
        until(lambda: len(publisher.commits()) == 1)
        until(lambda: call(client).orders not in ((), (start,)))
        (start,) = call(client).orders
        assert (start.attempt, start.continues) == (2, 1)
        status = client.status()
        assert (status.commit_epochs, status.next_unit, status.planned_units) == (1, 10, 20)
        assert status.published_secs == pytest.approx(time.time(), abs=60)
        train_epoch(client, start)
        until(lambda: [type(one) for one in call(client).orders] == [Leave])
        found.join()  # without the host's Left the controller lingers
        assert found.status.state is JobState.DONE
    assert [one.commit.next_unit for one in publisher.commits()] == [10, 20]
    assert not found.files.address.exists()


def test_a_heartbeat_waits_for_other_orders(tmp_path):
    with serving(tmp_path) as found:
        client = found.client
        answer = join(client, HOST)
        assert answer.orders == ()
        begun = time.monotonic()
        same = call(client, known=answer.key, wait_secs=0.5)
        assert (same.orders, same.key) == ((), answer.key)
        assert time.monotonic() - begun >= 0.5
        threading.Timer(0.2, join, [client, READER]).start()
        begun = time.monotonic()
        (start,) = call(client, known=answer.key, wait_secs=60.0).orders
        assert isinstance(start, StartEpoch)
        assert time.monotonic() - begun < 50


def test_hosts_are_sent_the_addresses_of_live_peers(tmp_path):
    with serving(tmp_path) as found:
        client = found.client
        join(client, READER, report=RoleReport("127.0.0.1:81"))
        first = join(client, HOST, report=RoleReport("127.0.0.1:80"))
        assert [(one.role, one.address) for one in first.peers] == [(HOST, "127.0.0.1:80"), (READER, "127.0.0.1:81")]
        assert call(client, READER).peers == ()
        moved = call(client, READER, report=RoleReport("127.0.0.1:82"))
        now = call(client, HOST)
        assert [one.address for one in now.peers] == ["127.0.0.1:80", "127.0.0.1:82"]
        assert now.key != first.key
        assert (now.lease, now.version) > (moved.lease, first.version)
        client.notice(5.0, READER)
        assert [one.role for one in call(client, HOST).peers] == [HOST]


def test_the_status_names_members_and_the_wanted_readers(tmp_path):
    with serving(tmp_path, settings=job_settings(initial=PhaseSettings(least_readers=1, most_readers=6))) as found:
        client = found.client
        join(client, READER, report=RoleReport("127.0.0.1:81"))
        join(client, HOST)
        sample = BufferSample(0.0, 0.0, 1000, 0.1, 10, 1000, 10.0, 0.01, 1000)
        call(client, HOST, report=RoleReport("127.0.0.1:80", sample, Progress(1, 7, 70, 3, 5.0, {"loss": 0.5})))
        until(lambda: client.status().wanted_readers == 6)
        status = client.status()
        host, reader = status.members
        assert (host.role, host.rank, host.progress.step, host.buffer.consumed_rows) == (HOST, 0, 7, 1000)
        assert (reader.role, reader.rank, reader.address, reader.is_leaving) == (READER, None, "127.0.0.1:81", False)
        assert (status.least_readers, status.most_readers, status.wanted_hosts) == (1, 6, 1)
        assert (status.job, status.lease, status.process_id) == (JOB, 1, os.getpid())
        assert status.live(RoleKind.HOST) == (host,)


def test_commands(tmp_path):
    with serving(tmp_path, settings=ALONE, data=None) as found:
        client = found.client
        with pytest.raises(RemoteError, match="possible in its state") as caught:
            client.release()
        assert not is_away(caught.value)
        join(client)
        client.plan_failed(ErrorDocument(("TypeError",), "wrong"))
        status = client.status()
        assert (status.state, status.hold.reason) == (JobState.HELD, "TypeError: wrong")
        assert call(client).orders == (Leave("the job is held"),)
        client.release()
        client.data(DATA)
        (start,) = join(client, incarnation=2).orders
        assert isinstance(start, StartEpoch)
        client.stop(now=True)
        assert isinstance(call(client, incarnation=2).orders[0], Leave)
        found.join()
        assert found.status.state is JobState.STOPPED


def test_a_role_of_another_release_is_refused(tmp_path):
    with serving(tmp_path) as found:
        (refuse,) = join(found.client, release="0.9").orders
        assert isinstance(refuse, Refuse)
        assert "must have release" in refuse.reason
        assert found.client.status().members == ()


def test_a_process_that_is_not_a_member_is_asked_to_join(tmp_path):
    with serving(tmp_path) as found:
        assert call(found.client, incarnation=5).orders == (Rejoin(1),)
        join(found.client, incarnation=7)
        assert isinstance(call(found.client, incarnation=5).orders[0], Refuse)


def test_the_messages_of_another_job_are_refused(tmp_path):
    with serving(tmp_path) as found:
        other = ControllerClient(found.service.address, job="other", token=found.files.read_token())
        for act in (other.status, other.release, lambda: other.send(RoleCall("other", HOST, 1))):
            with pytest.raises(RemoteError, match="name the controller's job") as caught:
                act()
            assert caught.value.kinds[0] == "RunMismatch"


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_token_is_required_also_where_none_was_made_before(tmp_path, token):
    files = JobFiles(tmp_path)
    with serving(tmp_path) as found:
        right = files.read_token()
        assert files.make_token() == right == files.read_token()
        assert stat.S_IMODE(os.stat(files.token).st_mode) == 0o600
        assert ControllerClient.of_run(files, job=JOB).status().job == JOB
        with pytest.raises(InputError, match="token must be that of the job"):
            ControllerClient(found.service.address, job=JOB, token=token).status()


def test_a_token_that_other_users_may_read_is_replaced(tmp_path):
    files = JobFiles(tmp_path)
    known = files.make_token()
    files.token.chmod(0o644)
    assert files.make_token() != known
    files.token.chmod(0o660)
    files.put_token(given := files.read_token())
    assert stat.S_IMODE(os.stat(files.token).st_mode) == 0o600
    assert files.read_token() == given


def test_a_port_in_use_is_named(tmp_path):
    with (
        serving(tmp_path / "one") as found,
        pytest.raises(ConfigError, match="must be free"),
        serving(tmp_path / "two", address=found.service.address),
    ):
        pass


def test_a_second_controller_is_refused(tmp_path):
    with serving(tmp_path) as found:
        with pytest.raises(Busy, match="in use by another process") as caught, serving(tmp_path):
            pass
        assert str(os.getpid()) in str(caught.value.value)
        assert found.client.status().lease == 1
    with run_lock(tmp_path), pytest.raises(Busy), serving(tmp_path):  # a training in one process
        pass
    with serving(tmp_path) as found:
        assert found.client.status().lease == 2


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_controller_that_lost_its_lock_stops_and_publishes_nothing(tmp_path, change):
    publisher = FolderPublisher(tmp_path / "commits")
    with serving(tmp_path, settings=ALONE, publisher=publisher) as first:
        (start,) = join(first.client).orders
        (tmp_path / "lock").unlink()
        if change == "replaced":
            with serving(tmp_path, settings=ALONE, publisher=publisher) as second:
                assert second.client.status().lease == 2
                with pytest.raises((RemoteError, Unreachable)) as caught:
                    train_epoch(first.client, start)
                assert is_away(caught.value)
                first.join()
                assert JobFiles(tmp_path).read_address().lease == 2
                assert call(second.client, HOST).orders == (start,)
        first.join()
        assert isinstance(first.error, LeaseLost)
    assert publisher.commits() == []


def test_a_lease_that_is_lost_while_a_commit_waits_publishes_nothing(tmp_path):
    """The lease is checked directly before each attempt to publish."""

    class Failing(FolderPublisher):
        tries = 0

        def publish(self, order):
            self.tries += 1
            if self.tries == 1:
                raise ConnectionError("reset")
            super().publish(order)

    publisher = Failing(tmp_path / "commits")
    with serving(tmp_path, settings=ALONE, publisher=publisher, tick_secs=1000.0) as found:
        (start,) = join(found.client).orders
        train_epoch(found.client, start)
        until(lambda: publisher.tries)
        (tmp_path / "lock").unlink()
        found.join()
    assert isinstance(found.error, LeaseLost)
    assert (publisher.tries, publisher.commits()) == (1, [])


def test_a_publication_is_repeated_until_its_outcome_is_certain(tmp_path):
    class Failing(FolderPublisher):
        tries = 0

        def publish(self, order):
            super().publish(order)
            self.tries += 1
            if self.tries == 1:
                raise OSError(errno.ENOSPC, "No space left on device")

    publisher = Failing(tmp_path / "commits")
    with serving(tmp_path, settings=ALONE, publisher=publisher) as found:
        (start,) = join(found.client).orders
        train_epoch(found.client, start)
        until(lambda: "published again" in found.client.status().problem)
        assert "No space left" in found.client.status().problem
        until(lambda: found.client.status().commit_epochs == 1)
        assert found.client.status().problem == ""
        assert publisher.tries == 2


@pytest.mark.parametrize("error", [DataError("a part is damaged"), NotPublished("no")])
def test_a_commit_that_is_certainly_not_published_is_given_up(tmp_path, error):
    class Failing:
        def publish(self, order):
            raise error

    with serving(tmp_path, settings=ALONE, publisher=Failing()) as found:
        (start,) = join(found.client).orders
        train_epoch(found.client, start)
        expected = JobState.HELD if isinstance(error, DataError) else JobState.TRAINING
        until(lambda: found.client.status().state is expected)
        status = found.client.status()
        assert (status.commit_epochs, status.pending_attempt) == (0, None)


def test_a_disk_that_is_full_delays_only(tmp_path):
    """Heartbeats go on, an event that needs the log is refused, and its sender repeats it."""
    full = [False]

    def sync(descriptor):
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)

    def make_log(*args):
        return EventLog(*args, sync=sync)

    publisher = FolderPublisher(tmp_path / "commits")
    with serving(tmp_path, settings=ALONE, publisher=publisher, make_log=make_log) as found:
        client = found.client
        (start,) = join(client).orders
        full[0] = True
        with pytest.raises(RemoteError, match="written to the log") as caught:
            call(client, HOST, Drained(0.0, HOST, 1, start.attempt, start.stop_unit))
        assert is_away(caught.value)
        time.sleep(0.5)
        assert call(client).orders == (start,)
        assert "No space left on device" in client.status().problem
        full[0] = False
        train_epoch(client, start)
        until(lambda: publisher.commits())
        # A publication whose outcome cannot be logged is repeated by the controller itself.
        until(lambda: call(client).orders not in ((), (start,)))
        (start,) = call(client).orders
        call(client, HOST, Drained(0.0, HOST, 1, start.attempt, start.stop_unit))
        publish = publisher.publish
        publisher.publish = lambda order: (full.__setitem__(0, True), publish(order))
        call(client, HOST, PartWritten(0.0, HOST, 1, start.attempt, "part"))
        until(lambda: len(publisher.commits()) == 2)
        time.sleep(0.3)
        assert client.status().commit_epochs == 1
        full[0] = False
        until(lambda: isinstance(call(client).orders[0], Leave))


def test_a_clock_that_jumps_makes_no_role_lost(tmp_path):
    jumped, draw = [0.0], random.Random(1)

    def clock():
        return time.monotonic() + jumped[0]

    with serving(tmp_path, settings=ALONE, clock=clock) as found:
        (start,) = join(found.client).orders
        for _ in range(20):
            jumped[0] += draw.choice([-1e6, -100.0, 50.0, 1e6])
            time.sleep(0.02)
            assert call(found.client).orders == (start,)
        status = found.client.status()
        assert (status.state, status.attempt, status.restarts) == (JobState.TRAINING, 1, 0)


def test_a_role_without_heartbeats_is_lost(tmp_path):
    alone = job_settings(initial=PhaseSettings(least_readers=0), lost_secs=1.0)
    with serving(tmp_path, settings=alone) as found:
        join(found.client)
        until(lambda: found.client.status().state in (JobState.RESTARTING, JobState.STARTING))
        assert found.client.status().members == ()
        assert call(found.client).orders == (Rejoin(2),)


def test_documents_are_served_by_digest(tmp_path):
    with serving(tmp_path) as found:
        for content in (b"", b"{}", os.urandom(3_000_000)):
            digest = found.files.put_document(content)
            assert found.files.put_document(content) == digest
            assert found.client.document(digest) == content
        with pytest.raises(RemoteError) as caught:
            found.client.document("0" * 64)
        assert caught.value.kinds[0] == "NotFound"
        for name in ("../token", "0" * 63, "G" * 64, ""):
            with pytest.raises(DataError, match="named by its SHA-256"):
                found.client.document(name)
            with pytest.raises(RemoteError, match="named by its SHA-256"):
                raw(found, "document", json.dumps({"job": JOB, "sha256": name}).encode())
        (found.files.documents / digest).write_bytes(b"other")
        with pytest.raises(RemoteError, match="bytes of its digest"):
            found.client.document(digest)


BAD = [
    ("nonsense", b"", "one that a controller offers"),
    ("role", b"", "valid document"),
    ("role", b"\xff\xfe", "valid document"),
    ("role", b"[" * 100_000, "valid document"),
    ("role", b"{}", "valid document"),
    ("status", b"{}", "valid document"),
    ("status", b'{"job":1}', "valid document"),
    ("stop", b'{"job":"small","now":1}', "must be true or false"),
    ("stop", b'{"job":"small"}', "valid document"),
    ("notice", b'{"job":"small","grace_secs":-1,"role":null}', "seconds"),
    ("notice", b'{"job":"small","grace_secs":1e999,"role":null}', "valid document"),
    ("notice", b'{"job":"small","grace_secs":1,"role":{"kind":"host","name":"/"}}', "name of a role"),
    ("data", b'{"job":"small","data":{"name":"p","stop_unit":5,"stops":[1,2]}}', "valid document"),
    ("data", b'{"job":"small","data":null}', "valid document"),
    ("plan_failed", b'{"job":"small","error":{}}', "valid document"),
    ("document", b'{"job":"small","sha256":7}', "valid document"),
    ("role", b" " * (MOST_REQUEST_BYTES + 1), "must be short"),
]


def test_malformed_messages_are_refused_with_one_error_each(tmp_path):
    with serving(tmp_path) as found:
        for action, content, text in BAD:
            with pytest.raises(RemoteError) as caught:
                raw(found, action, content)
            assert text in caught.value.what, (action, content[:80])
            assert not is_away(caught.value)
        client = Client(found.service.address)
        for work in (
            lambda c, o: c.do_get(flight.Ticket(b"x"), o),
            lambda c, o: list(c.list_flights(options=o)),
            lambda c, o: c.get_flight_info(flight.FlightDescriptor.for_path("x"), o),
        ):
            with pytest.raises(HeadraceError):
                client.call(work, timeout_secs=10)
        assert found.client.status().state is JobState.STARTING
    with pytest.raises(DataError, match="must be short"):
        ControllerClient(Address("127.0.0.1", 1), job=JOB).data(DataRange("x" * MOST_REQUEST_BYTES, 0, ()))


def test_a_job_has_a_limit_of_roles(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.job.control.controller._MOST_ROLES", 3)
    with serving(tmp_path) as found:
        for number in range(3):
            join(found.client, Role(RoleKind.READER, f"r{number}"))
        with pytest.raises(RemoteError, match="few roles"):
            join(found.client, Role(RoleKind.READER, "r3"))
        assert join(found.client, READER, incarnation=9).orders == ()


def test_a_damaged_log_and_one_of_another_job_are_refused(tmp_path):
    with serving(tmp_path):
        pass
    log = JobFiles(tmp_path).log
    content = log.read_bytes()
    log.write_bytes(content[:-20] + b"x" + content[-19:])
    with pytest.raises(DamagedLog), serving(tmp_path):
        pass
    log.write_bytes(content)
    with pytest.raises(RunMismatch, match="same release"), serving(tmp_path, settings=job_settings(release="2.0")):
        pass
    assert log.read_bytes() == content, "nothing was changed"
    log.unlink()
    with serving(tmp_path) as found:
        assert found.client.status().state is JobState.STARTING


def test_another_number_of_hosts_continues_at_the_commit(tmp_path):
    with serving(tmp_path, settings=ALONE) as found:
        (start,) = join(found.client).orders
        train_epoch(found.client, start)
        until(lambda: found.client.status().commit_epochs == 1)
    two = job_settings(hosts=2, initial=PhaseSettings(least_readers=0))
    with serving(tmp_path, settings=two) as found:
        status = found.client.status()
        assert (status.state, status.commit_epochs, status.next_unit) == (JobState.STARTING, 1, 10)
        join(found.client, incarnation=2)
        join(found.client, Role(RoleKind.HOST, "h1"))
        (start,) = call(found.client, incarnation=2).orders
        assert (start.hosts, start.first_unit, start.continues, start.commit.epochs) == (("h0", "h1"), 10, None, 1)
        assert start.attempt == 3


def test_a_given_up_attempt_is_told_to_its_host(tmp_path):
    with serving(tmp_path, settings=job_settings(hosts=2, initial=PhaseSettings(least_readers=0))) as found:
        join(found.client)
        (start,) = join(found.client, Role(RoleKind.HOST, "h1")).orders
        answer = call(found.client)
        # h1 ends; h0 waits at the controller and is answered at once.
        join(found.client, Role(RoleKind.HOST, "h1"), incarnation=2)
        now = call(found.client, known=answer.key, wait_secs=60.0)
        assert now.orders == (GiveUp(start.attempt),)


def test_an_address_file_is_checked(tmp_path):
    files = JobFiles(tmp_path)
    with pytest.raises(Unreachable, match="is not running"):
        files.find_controller()
    files.make()
    files.write_address(ControllerAddress("127.0.0.1:80", 5, 2))
    assert files.find_controller() == Address("127.0.0.1", 80)
    files.remove_address(1)
    assert files.read_address().lease == 2
    for content in (b"", b"[]", b'{"address": "x", "process_id": 1, "lease": 1}', b"[" * 9999, b"\xff"):
        files.address.write_bytes(content)
        with pytest.raises(DataError, match="address file"):
            files.find_controller()


def test_a_job_goes_on_with_another_release_at_its_newest_commit(tmp_path):
    """Whatever the log of the earlier one says that this one does not know; attempts go on after its attempts, and its processes are refused."""
    with serving(tmp_path, settings=ALONE) as found:
        (start,) = join(found.client).orders
        train_epoch(found.client, start)
        until(lambda: found.client.status().commit_epochs == 1)
    log = JobFiles(tmp_path).log
    log.write_bytes(log.read_bytes().replace(b"headrace.events/1", b"headrace.events/0") + b"7 2 3 of another form\n")
    later = job_settings(initial=PhaseSettings(least_readers=0), release="2.0")
    with serving(tmp_path, settings=later, newest=Commit(1, start.attempt, 10)) as found:
        status = found.client.status()
        assert (status.state, status.commit_epochs, status.next_unit) == (JobState.STARTING, 1, 10)
        (refused,) = join(found.client, incarnation=2).orders
        assert "must have release" in refused.reason
        (again,) = join(found.client, incarnation=3, release="2.0").orders
        assert again.attempt > start.attempt
        assert (again.first_unit, again.continues, again.commit.epochs) == (10, None, 1)
    with serving(tmp_path, settings=later) as found:
        assert found.client.status().release == "2.0"


def test_a_hold_of_another_release_is_kept_until_a_person_releases_it(tmp_path):
    """Whatever its other settings are; what cannot be read holds nothing."""
    with serving(tmp_path, settings=ALONE, data=None) as found:
        found.client.plan_failed(ErrorDocument(("TypeError",), "wrong"))
        held = found.client.status().hold
        assert held.reason == "TypeError: wrong"
    log = JobFiles(tmp_path).log
    kept = log.read_bytes()
    later = job_settings(initial=PhaseSettings(least_readers=0), release="2.0", hosts=2)
    with serving(tmp_path, settings=later, newest=Commit()) as found:
        status = found.client.status()
        assert (status.state, status.hold, status.release) == (JobState.HELD, held, "2.0")
        found.client.release()
        until(lambda: found.client.status().state is JobState.STARTING)
    with serving(tmp_path, settings=later, newest=Commit()) as found:
        assert found.client.status().hold is None
    log.write_bytes(kept.replace(b"headrace.events/1", b"headrace.events/0"))
    with serving(tmp_path, settings=later, newest=Commit()) as found:
        assert found.client.status().state is JobState.STARTING
