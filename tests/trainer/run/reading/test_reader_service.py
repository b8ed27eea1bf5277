from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.support.examples import scaled
from tests.support.fake_readers import FakeReader, announce, send_whole
from tests.support.mutations import mutated
from tests.support.processes import PATIENCE_SECS
from tests.trainer.run.reading.test_unit_reader import DATA, LAYOUT, events_of, events_of_units, reader_of, unit
from trainer.errors import BadFeature, DamagedFrame
from trainer.run.reading.packed_units import PackedUnit, UnitLayout, unpack_unit
from trainer.run.reading.reader_link import ReaderLink
from trainer.run.reading.reader_service import ReaderService
from trainer.run.reading.unit_fetching import RemoteFetcher
from trainer.run.reading.unit_frames import MOST_GREETING_BYTES, MOST_STATUS_BYTES, UnitFrame, check_answer
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.reading.unit_requests import MOST_REQUEST_BYTES
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.error_documents import MOST_ERROR_BYTES, BadAnswer, RemoteError, Unreachable, from_bytes
from trainer.wire.frame_stream import FrameStream
from trainer.wire.framed_service import connect_stream
from trainer.wire.frames import FrameHeader, FrameOrder, WireProtocol

SECS = 30.0
#: Meant to run out.
_SHORT_SECS = 0.05
SESSION = 5


@pytest.fixture
def service():
    with ReaderService(LOOPBACK, reader_of()) as running:
        yield running


@contextmanager
def fetcher_of(address, **options):
    with closing(RemoteFetcher(str(address), **{"timeout_secs": SECS, **options})) as fetcher:
        yield fetcher


def fetched(address, request, **options):
    """The columns of a unit from a service, over a connection of its own."""
    with fetcher_of(address, **options) as fetcher:
        return unpacked(fetcher, request)


def unpacked(fetcher, request):
    return unpack_unit(fetcher.fetch(request, lambda size: True), UnitLayout.of(LAYOUT), request)


def status_of(address):
    with closing(ReaderLink(address, "", SECS)) as link:
        return json.loads(link.status(SECS))


def idle_status_of(address):
    """The status once no request is answered any more: an answer arrives before the reader counts it as ended."""
    until = time.monotonic() + SECS
    while (status := status_of(address))["active"] and time.monotonic() < until:
        time.sleep(0.01)
    return status


@contextmanager
def connected(address):
    """The frames of a client that writes them itself."""
    with closing(connect_stream(address, SECS)) as stream:
        yield FrameStream(stream, FrameOrder(WireProtocol.UNITS, SESSION))


def refusal(address, parts):
    """The error with which a service ends a connection with these bytes."""
    with connected(address) as frames:
        with suppress(OSError):
            frames.send(parts, SECS)
        frame = frames.receive_header(time.monotonic() + SECS)
        assert frame is not None
        assert frame.kind == UnitFrame.ERROR
        return from_bytes(bytes(frames.receive_new_body(frame)), str(address))


def asking(*frames):
    """The bytes of a greeting without a token, and of these frames."""
    order = FrameOrder(WireProtocol.UNITS, SESSION)
    parts = order.write(UnitFrame.GREETING)
    for kind, content in frames:
        parts += order.write(kind, [content])
    return parts


def test_a_unit_arrives_as_it_is_stored(service):
    found = fetched(service.address, unit(5, 60))
    assert events_of_units([found]) == events_of(DATA.tables["hour=00/1.parquet"].slice(5, 60))
    status = idle_status_of(service.address)
    assert (status["units"], status["rows"], status["active"], status["leaving"]) == (1, 60, 0, False)
    assert status["rows_per_sec"] > 0


def test_an_error_of_a_reader_is_raised_with_its_classes_and_the_reader_goes_on():
    is_bad = [True]

    def read(_solution, fragment):
        if is_bad.pop():
            raise BadFeature("a fragment must have a column for every input", where="fragment x", value={"a": 1})
        return DATA.tables[fragment.path]

    with ReaderService(LOOPBACK, reader_of(read)) as service, fetcher_of(service.address) as fetcher:
        with pytest.raises(RemoteError) as caught:
            unpacked(fetcher, unit(0, 5))
        error = caught.value
        assert error.kinds[:4] == ("BadFeature", "DataError", "HeadraceError", "Exception")
        assert (error.what, error.value) == ("a fragment must have a column for every input", "{'a': 1}")
        assert error.where == f"{service.address}: fragment x"
        is_bad.append(False)
        assert unpacked(fetcher, unit(0, 5)).rows == 5


def test_a_malformed_request_is_refused(service):
    for content in (b"", b"{}", os.urandom(100), b"[" * 5000):
        assert "JSON object" in refusal(service.address, asking((UnitFrame.UNIT, content))).what
    for size in (MOST_REQUEST_BYTES + 1, 1 << 20):
        assert "must be short" in refusal(service.address, asking((UnitFrame.UNIT, b"x" * size))).what
    assert "known one" in refusal(service.address, asking((9, b""))).what
    assert "greeting" in refusal(service.address, FrameOrder(WireProtocol.UNITS, SESSION).write(UnitFrame.STATUS)).what
    long = FrameOrder(WireProtocol.UNITS, SESSION).write(UnitFrame.GREETING, [b"x" * (MOST_GREETING_BYTES + 1)])
    assert "greeting" in refusal(service.address, long).what
    assert fetched(service.address, unit(0, 5)).rows == 5
    assert idle_status_of(service.address)["active"] == 0


def test_mutated_streams_are_answered_or_refused(service):
    """Each ends in time, with units of the request that was meant, or none."""
    draw, good = random.Random(11), b"".join(asking((UnitFrame.UNIT, unit(0, 5).to_bytes()), (UnitFrame.STATUS, b"")))
    tokens = (b"\xff" * 5, b"{}", b"-1", b'"rows":', b"9" * 40, b"[" * 100, b"HRFR")
    expected = fetched(service.address, unit(0, 5))
    for number in range(scaled(400)):
        content = mutated(good, draw, tokens) if number % 4 else draw.randbytes(draw.randrange(500))
        with connected(service.address) as frames, suppress(OSError):
            frames.socket.setblocking(True)
            frames.socket.sendall(content)
            frames.socket.shutdown(socket.SHUT_WR)
            frames.socket.setblocking(False)
            with suppress(DamagedFrame):  # of a session that was not meant
                while (frame := frames.receive_header(time.monotonic() + PATIENCE_SECS)) is not None:
                    body = frames.receive_new_body(frame)
                    if frame.kind == UnitFrame.UNIT:
                        found = unpack_unit(PackedUnit.of(bytes(body)), UnitLayout.of(LAYOUT), unit(0, 5))
                        assert events_of_units([found]) == events_of_units([expected])
    assert fetched(service.address, unit(0, 5)).rows == 5
    assert idle_status_of(service.address)["active"] == 0


@given(
    kind=st.integers(0, 6),
    body_bytes=st.one_of(st.integers(0, 1 << 20), st.integers(0, 2**64 - 1)),
    asked=st.sampled_from([UnitFrame.UNIT, UnitFrame.STATUS]),
)
def test_no_answer_is_accepted_above_its_limit(kind, body_bytes, asked):
    most = {UnitFrame.UNIT: 1 << 19, UnitFrame.STATUS: MOST_STATUS_BYTES}[asked]
    frame = FrameHeader(WireProtocol.UNITS, kind, body_bytes)
    limits = {asked: most, UnitFrame.ERROR: MOST_ERROR_BYTES}
    if body_bytes <= limits.get(kind, -1):
        assert check_answer(frame, asked, most, "reader") == (kind == asked)
    else:
        with pytest.raises(BadAnswer):
            check_answer(frame, asked, most, "reader")


def memory_bytes(process_id):
    return psutil.Process(process_id).memory_info().rss


@contextmanager
def reader_process(secs="0", token=""):
    command = [sys.executable, "-m", "tests.trainer.run.reading.reader_process", secs, token]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running, Address.parse(running.stdout.readline().strip())
        finally:
            running.kill()


@pytest.mark.medium
def test_an_oversized_request_takes_no_memory_of_a_reader():
    with reader_process(token="secret") as (running, address):
        fetched(address, unit(0, 5), token="secret")
        before, length = memory_bytes(running.pid), 128 << 20
        for token, rule in ((b"secret", "must be short"), (b"wrong", "the token must be")):
            order = FrameOrder(WireProtocol.UNITS, SESSION)
            parts = order.write(UnitFrame.GREETING, [token])
            long = FrameHeader(WireProtocol.UNITS, UnitFrame.UNIT, length, session=SESSION, sequence=1).to_bytes()
            assert rule in refusal(address, [*parts, long, b"x" * length]).what
        assert memory_bytes(running.pid) < before + (32 << 20)
        assert fetched(address, unit(0, 5), token="secret").rows == 5


def test_a_wrong_token_is_refused():
    with ReaderService(LOOPBACK, reader_of(), token="secret") as service:
        for token in ("", "secre", "secrets"):
            with pytest.raises(RemoteError, match="token must be that of the job") as caught:
                fetched(service.address, unit(0, 5), token=token)
            assert "InputError" in caught.value.kinds
        assert fetched(service.address, unit(0, 5), token="secret").rows == 5


def test_a_unit_that_is_not_admitted_is_not_received(service):
    sizes = []
    with fetcher_of(service.address) as fetcher:
        assert fetcher.fetch(unit(0, 77), sizes.append) is None
        assert sizes[0] > 77
        assert service.leave(10), "the call ended, although its unit was not received"


class Large(UnitReader):
    """A reader whose unit is longer than all buffers of a connection."""

    content = np.random.default_rng(0).integers(0, 256, 40_000_001, np.uint8)

    def pack(self, request):
        return self.content, request.rows


def test_a_large_unit_is_received_whole_or_not_at_all():
    with ReaderService(LOOPBACK, Large(None, None, kept_bytes=0)) as service, fetcher_of(service.address) as fetcher:
        found = fetcher.fetch(unit(0, 5), lambda size: True)
        assert np.array_equal(found.content, Large.content)
        assert fetcher.fetch(unit(0, 5), lambda size: False) is None
        with (
            pytest.raises(BadAnswer, match="short enough") as caught,
            fetcher_of(service.address, most_bytes=1 << 20) as small,
        ):
            small.fetch(unit(0, 5), lambda size: True)
        assert caught.value.value == 40_000_001
        assert service.leave(10), "both calls ended, although most of the unit was not received"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (announce(1 << 63), BadAnswer),
        (announce((1 << 30) + 1), BadAnswer),
        (announce(8), Unreachable),
        (announce(8, b"1234"), Unreachable),
        (announce(4, b"1234"), DamagedFrame),
        (announce(3 << 20, bytes(1 << 20), is_endless=True), DamagedFrame),
        (lambda frames: False, Unreachable),
    ],
)
def test_an_answer_that_is_not_one_unit_is_refused(answer, error):
    with FakeReader(answer) as reader, pytest.raises(error):
        fetched(reader.address, unit(0, 5))


def test_a_unit_of_another_kind_is_refused():
    def answer(frames):
        frames.send_frame(UnitFrame.STATUS, [b"{}"], SECS)
        return True

    with FakeReader(answer) as reader, pytest.raises(BadAnswer, match="what it is asked"):
        fetched(reader.address, unit(0, 5))


def test_an_oversized_unit_takes_no_memory(service):
    before = memory_bytes(os.getpid())
    with FakeReader(announce(1 << 29)) as reader, pytest.raises(BadAnswer, match="short enough"):
        fetched(reader.address, unit(0, 5), most_bytes=1 << 28)
    assert memory_bytes(os.getpid()) < before + (64 << 20)


def test_a_unit_of_random_bytes_is_refused(service):
    draw, layout = random.Random(3), UnitLayout.of(LAYOUT)
    with fetcher_of(service.address) as fetcher:
        good = fetcher.fetch(unit(0, 77), lambda size: True).content.tobytes()
    contents = [bytes(8), good[:-8], good + bytes(8), *(draw.randbytes(draw.randrange(2000)) for _ in range(50))]
    for content in contents:
        with FakeReader(send_whole(content)) as reader, fetcher_of(reader.address) as fetcher:
            found = fetcher.fetch(unit(0, 77), lambda size: True)
        with pytest.raises(BadAnswer, match="a unit must"):
            unpack_unit(found, layout, unit(0, 77))


def test_a_damaged_header_of_an_answer_is_asked_for_again():
    """Over other connections, a few times; the unit is admitted once."""
    good, admitted = bytes(range(64)), []

    def answer(frames):
        if reader.asked <= 2:
            frames.send([b"HRFR" + bytes(200)], SECS)
            return False
        return send_whole(good)(frames)

    with FakeReader(answer) as reader, fetcher_of(reader.address) as fetcher:
        found = fetcher.fetch(unit(0, 5), lambda size: not admitted.append(size))
        assert found.content.tobytes() == good
        assert (reader.asked, admitted) == (3, [64])
    with FakeReader(lambda frames: frames.send([bytes(200)], SECS)) as reader, pytest.raises(DamagedFrame):
        fetched(reader.address, unit(0, 5))
    assert reader.asked == 4


def test_a_service_that_ended_is_unreachable_and_one_in_its_place_is_asked(service):
    with fetcher_of(service.address) as fetcher:
        unpacked(fetcher, unit(0, 5))
        service.close()
        with pytest.raises(Unreachable):
            unpacked(fetcher, unit(0, 5))
        with pytest.raises(Unreachable):
            fetcher.probe()
        with ReaderService(service.address, reader_of()) as first:
            assert unpacked(fetcher, unit(0, 5)).rows == 5
            first.close()
        with ReaderService(service.address, reader_of()):
            assert unpacked(fetcher, unit(0, 5)).rows == 5, "the connection to the earlier one had ended"


@pytest.mark.medium
def test_a_reader_that_is_killed_while_it_is_asked_is_unreachable():
    with reader_process("60") as (running, address), fetcher_of(address) as fetcher:
        failed = []

        def fetch():
            with pytest.raises(Unreachable) as caught:
                unpacked(fetcher, unit(0, 5))
            failed.append(caught.value)

        thread = threading.Thread(target=fetch)
        thread.start()
        while not status_of(address)["active"]:
            time.sleep(0.01)
        running.kill()
        thread.join(PATIENCE_SECS)
        assert len(failed) == 1


def test_a_fetcher_that_is_closed_ends_its_calls():
    go_on = threading.Event()

    def read(_solution, fragment):
        go_on.wait(PATIENCE_SECS)
        return DATA.tables[fragment.path]

    with ReaderService(LOOPBACK, reader_of(read)) as service, fetcher_of(service.address) as fetcher:
        failed = []

        def fetch():
            with pytest.raises(Unreachable):
                unpacked(fetcher, unit(0, 5))
            failed.append(1)

        thread = threading.Thread(target=fetch)
        thread.start()
        while not service.status()["active"]:
            time.sleep(0.001)
        fetcher.close()
        thread.join(PATIENCE_SECS)
        assert failed == [1]
        with pytest.raises(Unreachable):
            fetcher.probe()
        go_on.set()


def test_a_reader_that_does_not_answer_in_time_is_unreachable():
    with (
        FakeReader(lambda frames: bool(time.sleep(0.3)) or True) as reader,
        pytest.raises(Unreachable, match="timed out"),
    ):
        fetched(reader.address, unit(0, 5), timeout_secs=_SHORT_SECS)
    assert reader.asked == 1


def test_a_reader_that_leaves_finishes_its_units_and_refuses_others():
    begun, go_on = threading.Event(), threading.Event()

    def read(_solution, fragment):
        begun.set()
        go_on.wait(PATIENCE_SECS)
        return DATA.tables[fragment.path]

    with ReaderService(LOOPBACK, reader_of(read)) as service:
        found = []
        thread = threading.Thread(target=lambda: found.append(fetched(service.address, unit(0, 5))))
        thread.start()
        assert begun.wait(PATIENCE_SECS)
        assert not service.leave(0.05)
        with pytest.raises(RemoteError, match="must not be leaving") as caught:
            fetched(service.address, unit(5, 5))
        assert "Unreachable" in caught.value.kinds
        go_on.set()
        assert service.leave(10)
        thread.join(PATIENCE_SECS)
        assert found[0].rows == 5


def test_only_some_units_are_read_at_once():
    running, most, lock = [0], [0], threading.Lock()
    meet = threading.Event()

    def read(_solution, fragment):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        meet.wait(_SHORT_SECS)
        with lock:
            running[0] -= 1
        return DATA.tables[fragment.path]

    with ReaderService(LOOPBACK, reader_of(read, kept_bytes=0), most_units=2) as service:
        keys = [f"hour=0{hour}#{k}" for hour in range(2) for k in range(2)] * 2
        threads = [threading.Thread(target=fetched, args=(service.address, unit(0, 5, key=key))) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECS)
    assert most[0] == 2
