from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading

import grpc
import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.conftest import ROOT
from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.support.processes import PATIENCE_SECS
from tests.trainer.run.reading.test_unit_reader import DATA, LAYOUT, events_of, events_of_units, reader_of, unit
from trainer.errors import BadFeature
from trainer.run.reading.packed_units import PackedUnit, UnitLayout, unpack_unit
from trainer.run.reading.reader_service import CHUNK_BYTES, STATUS, UNIT, ReaderService, fetch_unit
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.reading.unit_requests import MOST_REQUEST_BYTES
from trainer.wire.flight.action_service import FRAME_BYTES, ActionService
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.client import Client
from trainer.wire.flight.error_documents import BadAnswer, RemoteError, Unreachable
from trainer.wire.flight.sealed_actions import seal_request
from transforms.errors import HeadraceError

LOOPBACK = Address("127.0.0.1", 0)
SECS = 30.0


#: Meant to run out.
_SHORT_SECS = 0.05


@pytest.fixture
def service():
    with ReaderService(LOOPBACK, reader_of()) as running:
        yield running


def fetched(client, request, **options):
    """The columns of a unit from a service."""
    packed = fetch_unit(client, request, timeout_secs=SECS, **options)
    return unpack_unit(packed, UnitLayout.of(LAYOUT), request)


def call(client, name, content=b""):
    return client.act(name, content, list, timeout_secs=SECS)


def status_of(client):
    (found,) = call(client, STATUS)
    return json.loads(bytes(found))


def test_a_unit_arrives_as_it_is_stored(service):
    client = Client(service.address)
    found = fetched(client, unit(5, 60))
    assert events_of_units([found]) == events_of(DATA.tables["hour=00/1.parquet"].slice(5, 60))
    status = status_of(client)
    assert (status["units"], status["rows"], status["active"], status["leaving"]) == (1, 60, 0, False)
    assert status["rows_per_sec"] > 0


def test_an_error_of_a_reader_is_raised_with_its_classes():
    def read(_solution, fragment):
        raise BadFeature("a fragment must have a column for every input", where="fragment x", value={"a": 1})

    with ReaderService(LOOPBACK, reader_of(read)) as service, pytest.raises(RemoteError) as caught:
        fetched(Client(service.address), unit(0, 5))
    error = caught.value
    assert error.kinds[:4] == ("BadFeature", "DataError", "HeadraceError", "Exception")
    assert (error.what, error.value) == ("a fragment must have a column for every input", "{'a': 1}")
    assert error.where == f"{service.address}: fragment x"


@pytest.mark.medium
def test_a_malformed_request_is_refused(service):
    client = Client(service.address)
    for content in (b"", b"{}", os.urandom(100), b"[" * 5000):
        with pytest.raises(RemoteError, match="JSON object"):
            call(client, UNIT, content)
    for size in (MOST_REQUEST_BYTES + 1, 1 << 20, 32 << 20):
        with pytest.raises(HeadraceError, match="must be short") as caught:
            call(client, UNIT, b"x" * size)
        assert len(str(caught.value)) < 2000
    with pytest.raises(RemoteError, match="must be a known one"):
        call(client, "halt")
    assert fetched(client, unit(0, 5)).rows == 5
    assert status_of(client)["active"] == 0


def test_mutated_requests_are_answered_or_refused(service):
    """At the level of gRPC's messages, and of the bytes of its connection."""
    draw, good = random.Random(11), flight.Action(UNIT, seal_request(UNIT, unit(0, 5).to_bytes(), 5)).serialize()
    refusals = (
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )  # the latter of a message that says that it is longer
    tokens = (b"\xff" * 5, b"{}", b"-1", b'"rows":', b"9" * 40, b"[" * 100, b"\x0a", b"\x12")
    with grpc.insecure_channel(str(service.address)) as channel:
        do_action = channel.unary_stream("/arrow.flight.protocol.FlightService/DoAction")
        for _ in range(scaled(300)):
            stream = do_action(mutated(good, draw, tokens), timeout=PATIENCE_SECS)
            with contextlib.suppress(grpc.RpcError):
                list(stream)
            assert stream.code() in (grpc.StatusCode.OK, *refusals)
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
    for number in range(scaled(100)):
        content = mutated(begin, draw) if number % 2 else draw.randbytes(draw.randrange(500))
        with (
            contextlib.suppress(OSError),
            socket.create_connection((service.address.host, service.address.port)) as raw,
        ):
            raw.sendall(content)
    client = Client(service.address)
    assert fetched(client, unit(0, 5)).rows == 5
    assert status_of(client)["active"] == 0


def memory_bytes(process_id):
    return psutil.Process(process_id).memory_info().rss


@pytest.mark.medium
@pytest.mark.parametrize("token", ["secret", "wrong"])
def test_an_oversized_request_takes_no_memory_of_a_reader(token):
    command = [sys.executable, "-m", "tests.trainer.run.reading.reader_process", "0", "secret"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        try:
            address = Address.parse(running.stdout.readline().strip())
            fetched(Client(address, token="secret"), unit(0, 5))
            client, before, content = Client(address, token=token), memory_bytes(running.pid), b"x" * (128 << 20)
            options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=SECS)
            connection = flight.FlightClient(address.uri)
            with pytest.raises(HeadraceError, match="must be short" if token == "secret" else "must be"):
                call(client, UNIT, content)
            with pytest.raises(pa.ArrowException):  # of a method that the reader does not have
                connection.do_get(flight.Ticket(content), options)
            assert memory_bytes(running.pid) < before + (32 << 20)
            assert fetched(Client(address, token="secret"), unit(0, 5)).rows == 5
        finally:
            running.kill()


def test_a_unit_that_is_not_admitted_is_not_received(service):
    client, sizes = Client(service.address), []
    assert fetch_unit(client, unit(0, 77), timeout_secs=SECS, admit=lambda size: sizes.append(size)) is None
    assert sizes[0] > 77
    assert service.leave(10), "the call ended, although its second message was not received"


class Large(UnitReader):
    """A reader whose unit is longer than all buffers of a connection."""

    content = np.random.default_rng(0).integers(0, 256, 40_000_001, np.uint8)

    def pack(self, request):
        return self.content, request.rows


def test_a_large_unit_is_sent_in_chunks_or_not_at_all():
    with ReaderService(LOOPBACK, Large(None, None, kept_bytes=0)) as service:
        client = Client(service.address, most_bytes=CHUNK_BYTES + FRAME_BYTES)
        found = fetch_unit(client, unit(0, 5), timeout_secs=PATIENCE_SECS)
        assert np.array_equal(found.content, Large.content)
        assert fetch_unit(client, unit(0, 5), timeout_secs=PATIENCE_SECS, admit=lambda size: False) is None
        with pytest.raises(BadAnswer, match="announce the length") as caught:
            fetch_unit(client, unit(0, 5), timeout_secs=PATIENCE_SECS, most_bytes=1 << 20)
        assert caught.value.value == 40_000_001
        assert service.leave(10), "both calls ended, although most of the unit was not received"


FOUR, EIGHT = (4).to_bytes(8, "little"), (8).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([], "announce the length"),
        ([b"1234"], "announce the length"),
        ([EIGHT + b"\0"], "announce the length"),
        ([b"\xff" * 8], "announce the length"),
        ([((1 << 30) + 1).to_bytes(8, "little")], "announce the length"),
        ([EIGHT], "a whole unit"),
        ([EIGHT, b"1234"], "a whole unit"),
        ([FOUR, b"1234", b"x"], "length that was announced"),
        ([FOUR, b"12345"], "length that was announced"),
        ([FOUR, b"", b"1234"], "length that was announced"),
    ],
)
def test_an_answer_that_is_not_one_unit_is_refused(messages, match):
    with (
        ActionService(LOOPBACK, lambda name, content: iter(messages), most_bytes=MOST_REQUEST_BYTES) as service,
        pytest.raises(BadAnswer, match=match),
    ):
        fetch_unit(Client(service.address), unit(0, 5), timeout_secs=SECS)


def test_a_reader_that_sends_without_end_is_refused_at_the_announced_length():
    sent = []

    def endless(name, content):
        yield (3 << 20).to_bytes(8, "little")
        while True:
            sent.append(1)
            yield bytes(CHUNK_BYTES)

    with ActionService(LOOPBACK, endless, most_bytes=MOST_REQUEST_BYTES) as service:
        with pytest.raises(BadAnswer, match="length that was announced"):
            fetch_unit(Client(service.address), unit(0, 5), timeout_secs=SECS)
        assert len(sent) < 50


def test_a_message_that_is_too_long_is_refused_and_in_memory_once_at_most():
    """The fetcher has a process of its own, in which nothing else takes memory. gRPC holds a message until it has refused it."""

    def one_message(name, content):
        yield EIGHT
        yield bytes(64 << 20)

    with ActionService(LOOPBACK, one_message, most_bytes=MOST_REQUEST_BYTES) as service:
        command = [sys.executable, "-m", "tests.trainer.run.reading.fetcher_process", str(service.address)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECS)
    assert ended.returncode == 0, ended.stderr
    allowed, taken_bytes = ended.stdout.splitlines()
    assert allowed == f"messages of at most {CHUNK_BYTES + FRAME_BYTES:,} bytes"
    assert int(taken_bytes) < 120 << 20


def test_a_unit_of_random_bytes_is_refused(service):
    client, draw, layout = Client(service.address), random.Random(3), UnitLayout.of(LAYOUT)
    good = fetch_unit(client, unit(0, 77), timeout_secs=SECS).content.tobytes()
    contents = [bytes(8), good[:-8], good + bytes(8), *(draw.randbytes(draw.randrange(2000)) for _ in range(50))]
    for content in contents:
        with pytest.raises(BadAnswer, match="a unit must"):
            unpack_unit(PackedUnit.of(content), layout, unit(0, 77))


def test_a_service_that_ended_is_unreachable(service):
    client = Client(service.address)
    fetched(client, unit(0, 5))
    service.close()
    with pytest.raises(Unreachable):
        fetched(client, unit(0, 5))


def test_a_reader_that_leaves_finishes_its_units_and_refuses_others():
    begun, go_on = threading.Event(), threading.Event()

    def read(_solution, fragment):
        begun.set()
        go_on.wait(PATIENCE_SECS)
        return DATA.tables[fragment.path]

    with ReaderService(LOOPBACK, reader_of(read)) as service:
        client, found = Client(service.address), []
        thread = threading.Thread(target=lambda: found.append(fetched(client, unit(0, 5))))
        thread.start()
        assert begun.wait(PATIENCE_SECS)
        assert not service.leave(0.05)
        with pytest.raises(RemoteError, match="must not be leaving") as caught:
            fetched(client, unit(5, 5))
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
        client = Client(service.address)
        keys = [f"hour=0{hour}#{k}" for hour in range(2) for k in range(2)] * 2
        threads = [threading.Thread(target=fetched, args=(client, unit(0, 5, key=key))) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECS)
    assert most[0] == 2
