"""A live server among bad clients: tokens, lengths, deadlines, mutated streams, memory and threads."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.support.examples import scaled
from tests.support.frames import Frame, framed
from tests.support.mutations import mutated
from tests.support.parameter_servers import ThreadServer
from tests.support.processes import PATIENCE_SECS
from tests.trainer.servers.requests import held, random_update
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ConfigError
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.server_status import ServerStatus, read_status
from trainer.servers.service import ServerService, ServiceLimits
from trainer.servers.session_roles import SessionRole
from trainer.tables import SGD, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.engine import RowValues
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import MOST_GREETING_BYTES, Header, Kind, read_header, write_document
from trainer.tables.routes.servers.server_link import Request
from trainer.wire.byte_streams import receive_into, send_parts
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.connections import listen
from trainer.wire.flight.error_documents import RemoteError
from trainer.wire.frames import HEADER_BYTES, WireProtocol, check_body, read_frame_header
from transforms.errors import DataError

SEED = 3


@contextmanager
def running(**settings):
    server = ThreadServer(**settings)
    try:
        yield server
    finally:
        server.close()


def request(kind: Kind, body: bytes = b"", **header) -> Frame:
    return Header(kind, len(body), **header), body


def announced(kind: Kind, body_bytes: int) -> Frame:
    """A request of which the header alone comes."""
    return Header(kind, body_bytes), b""


def greeting(**changes) -> Frame:
    return request(Kind.HELLO, write_document(Greeting().to_document() | changes))


def connected(server: ThreadServer, *sent: Frame) -> socket.socket:
    return connected_with(server, framed(sent))


def connected_with(server: ThreadServer, sent: bytes) -> socket.socket:
    stream = socket.create_connection((server.address.host, server.address.port), PATIENCE_SECS)
    stream.sendall(sent)
    return stream


def answer(stream: socket.socket) -> tuple[Header, bytes] | None:
    """The next frame; None at the end of the stream."""
    head = bytearray(HEADER_BYTES)
    try:
        if receive_into(stream, memoryview(head)) < len(head):
            return None
        frame = read_frame_header(head, WireProtocol.ROWS)
        header = read_header(frame, 1 << 26)
        body = bytearray(header.body_bytes)
        if receive_into(stream, memoryview(body)) < len(body):
            return None
    except ConnectionError:
        return None
    check_body(frame, [body])
    return header, bytes(body)


def refused(server: ThreadServer, sent: bytes) -> str:
    """What a server answers a client that it refuses, whose connection then ends."""
    with connected_with(server, sent) as stream:
        found = answer(stream)
        while found is not None and found[0].kind != Kind.ERROR:
            found = answer(stream)
        assert found is not None
        assert answer(stream) is None
        return json.loads(found[1])["what"]


def wait_until(happened) -> None:
    until = time.monotonic() + PATIENCE_SECS
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


def client_threads() -> int:
    return sum(one.name == "client" for one in threading.enumerate())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_client_with_the_token_is_answered_and_others_are_refused():
    with running(token="secret") as server:
        link = server.connect(Greeting("secret"))(False)
        link.send(Request(Kind.STATUS))
        assert link.receive().header.kind == Kind.DOCUMENT
        for wrong in ("", "secre", "secrets", "Secret", "é", "\ud800"):
            with pytest.raises(RemoteError, match="token must be that"):
                server.connect(Greeting(wrong))(False)
        link.send(Request(Kind.STATUS))
        link.receive()
        link.close()


def test_off_loopback_a_server_needs_a_token():
    listening = listen(Address("0.0.0.0", 0))
    with listening:
        with pytest.raises(ConfigError, match="must have a token"):
            ServerService(listening, RowServer(HeldRows(None)))
        ServerService(listening, RowServer(HeldRows(None)), token="secret").close()
        for token in ("two words", "é", "a\nb"):
            with pytest.raises(ConfigError, match="printable"):
                ServerService(listening, RowServer(HeldRows(None)), token=token)


def test_an_address_in_use_is_one_error():
    with listen(LOOPBACK) as listening:
        host, port = listening.getsockname()
        with pytest.raises(ConfigError, match="must be free"):
            listen(Address(host, port))
    with pytest.raises(ConfigError, match="must be free"):
        listen(Address("192.0.2.1", 0))


@pytest.mark.parametrize("name", ["most_bytes", "message_bytes", "patience_secs", "stall_secs"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_limits_are_above_zero(name, value):
    with pytest.raises(ConfigError, match=name):
        ServiceLimits(**{name: value})


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (framed([announced(Kind.HELLO, MOST_GREETING_BYTES + 1)]), "must be short"),
        (framed([announced(Kind.HELLO, 1 << 60)]), "must be short"),
        (framed([announced(Kind.HELLO, (1 << 64) - 1)]), "must be short"),
        (framed([request(Kind.STATUS)]), "must be its greeting"),
        (framed([request(Kind.UPDATE, b"x")]), "must be its greeting"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64), "as it was sent"),
        (framed([greeting(client=7)]), "client of the greeting must be"),
        (framed([greeting(more=1)]), "more of the greeting must be absent"),
        (framed([greeting(attempt=True)]), "attempt of the greeting must be"),
        (framed([request(Kind.HELLO, b"{")]), "JSON"),
        (framed([request(Kind.HELLO, b"[" * 4000)]), "JSON"),
        (framed([greeting(), announced(Kind.FETCH, 1 << 60)]), "must be short"),
        (framed([greeting(), announced(Kind.UPDATE, (1 << 64) - 1)]), "must be short"),
        (framed([greeting(), announced(Kind.OPEN, 9 << 20)]), "must be short"),
        (framed([greeting()]) + bytes(HEADER_BYTES), "as it was sent"),
        (framed([greeting()]) + framed([request(Kind.STATUS)]), "as it was sent"),
        (framed([greeting()]) + framed([request(Kind.STATUS)], first=2), "as it was sent"),
        (framed([greeting()]) + framed([request(Kind.STATUS)], first=1, session=8), "as it was sent"),
        (framed([greeting(), (Header(Kind.FETCH, 8), b"1234567")]) + b"\0" * 100, "as it was sent"),
    ],
)
def test_lengths_and_bytes_on_the_wire_are_not_trusted(sent, what):
    with running(limits=ServiceLimits(most_bytes=1 << 30)) as server:
        before = resident_bytes()
        assert what in refused(server, sent)
        assert resident_bytes() - before < 16 << 20
        assert read_status(server.address).tables == 0


@pytest.mark.parametrize("sent", [b"", framed([greeting()])[:10], framed([greeting()])[:-1]])
def test_a_slow_greeting_ends_the_connection(monkeypatch, sent):
    monkeypatch.setattr("trainer.wire.framed_service._GREETING_SECS", 0.2)
    with running() as server, connected_with(server, sent) as stream:
        assert ended_by(stream)


def ended_by(stream: socket.socket) -> bool:
    """Whether the stream ends, at most after an error."""
    found = answer(stream)
    return found is None or (found[0].kind == Kind.ERROR and answer(stream) is None)


def drip(stream: socket.socket, content: bytes, pause_secs: float) -> None:
    """Send a byte after the other until the connection ends."""
    with suppress(OSError):
        for k in range(len(content)):
            stream.sendall(content[k : k + 1])
            time.sleep(pause_secs)


def test_a_greeting_that_drips_ends_the_connection(monkeypatch):
    """Each byte comes in time, and all of them do not."""
    monkeypatch.setattr("trainer.wire.framed_service._GREETING_SECS", 0.3)
    with running() as server, connected(server) as stream, ThreadPoolExecutor(1) as pool:
        pool.submit(drip, stream, framed([greeting(token="x" * 3000)]), 0.1)
        assert ended_by(stream)


def test_a_request_that_drips_gives_its_memory_back(monkeypatch):
    """A message has one deadline, not one for each of its bytes."""
    limits = ServiceLimits(most_bytes=1000, message_bytes=1000, patience_secs=0.3)
    with running(limits=limits) as server, connected(server, greeting()) as stream, ThreadPoolExecutor(1) as pool:
        assert answer(stream)[0].kind == Kind.OPENED
        stream.sendall(framed([announced(Kind.UPDATE, 900)], first=1))
        pool.submit(drip, stream, bytes(900), 0.1)
        assert ended_by(stream)
        wait_until(lambda: server.service._budget.used_bytes == 0)
        read_status(server.address)


def test_an_answer_that_nobody_takes_ends_the_connection():
    """Rows of many megabytes fill the buffers of both ends."""
    features = [FeatureSpec("a", TableSpec("t", 100, 64, SGD(0.5)))]
    with running(limits=ServiceLimits(patience_secs=0.3)) as server:
        engine = PsEngine(features, seed=SEED, servers=[server.connect()])
        engine.close()
        rows = np.zeros(200_000, np.int32)
        body = b"".join(messages.write_numbers(messages.RowNumbers(rows, np.array([len(rows)]))))
        with connected(server, greeting(client=0), request(Kind.FETCH, body)) as stream:
            assert answer(stream)[0].kind == Kind.OPENED
            wait_until(lambda: client_threads() == 0)
        read_status(server.address)


def test_a_request_that_is_cut_off_harms_nothing():
    with running() as server:
        engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect(Greeting(clients=2))], staleness=None)
        alone = CpuEngine(FEATURES, seed=SEED)
        seen = train(engine, range(2))
        for body in (bytes(100_000), b""):
            with connected(server, greeting(client=1, clients=2), (Header(Kind.UPDATE, 200_000), body)):
                pass
        assert seen + train(engine, range(2, 4)) == train(alone, range(4))
        engine.finish()
        assert_same(engine.state(), alone.state())
        wait_until(lambda: server.service._budget.used_bytes == 0)  # in the threads of the clients
        engine.close()


def written_values() -> bytes:
    """Values of two rows of the first table."""
    numbers = messages.RowNumbers(np.array([3, 7]), np.array([2, 0, 0]))
    return b"".join(messages.write_values(numbers, RowValues(np.ones(8, np.float32), np.ones(8, np.float32))))


def good_streams() -> list[tuple[str, list[Frame]]]:
    """Whole sessions of frames after the greeting, each with its role: each kind of request in turn."""
    one = random_update(1)
    gradients = b"".join(messages.write_gradients(one.numbers, one.rates, [one.values]))
    numbers = b"".join(messages.write_numbers(one.numbers))
    of_part, snapshot = b"".join(messages.write_counts([0, 0, 30])), b"".join(messages.write_counts([1 << 20]))
    opened = request(Kind.OPEN, write_document(held(seed=3).to_document()))
    rows = b"".join(messages.write_load(0, messages.ChangedRows(np.arange(2), np.ones((2, 4), np.float32), np.ones((2, 4), np.float32))))  # fmt: skip
    rows_asked = b"".join(messages.write_rows(0, np.unique(one.numbers.rows[: one.numbers.counts[0]])))
    update = request(Kind.UPDATE, gradients, number=1, flags=1)
    return [
        ("trains", [opened, request(Kind.FETCH, numbers, flags=1), update]),
        ("saves", [request(Kind.BEGIN_SNAPSHOT, snapshot), request(Kind.READ_SNAPSHOT, of_part), request(Kind.END_SNAPSHOT)]),
        ("saves", [request(Kind.READ_ROWS, rows_asked)]),
        ("saves", [request(Kind.READ_STATE, of_part)]),
        ("loads", [opened, request(Kind.BEGIN_LOAD), request(Kind.LOAD_ROWS, rows, number=1), request(Kind.END_LOAD, number=2, floor=9)]),
        ("trains", [opened, request(Kind.READ_VALUES, numbers), request(Kind.WRITE_VALUES, written_values(), number=1)]),
        ("watches", [request(Kind.STATUS)]),
    ]  # fmt: skip


def thrown(random: Random, hello: Frame, frames: list[Frame]) -> bytes:
    """A session with changes: of bytes of the stream, or of the bodies, lengths and order of frames with right checksums."""
    if random.random() < 0.4:
        whole = framed([hello]), framed(frames, first=1)
        return (
            mutated(b"".join(whole), random, TOKENS)
            if random.random() < 0.3
            else whole[0] + mutated(whole[1], random, TOKENS)
        )
    changed = [changed_frame(random, one) for one in frames]
    if random.random() < 0.2:
        random.shuffle(changed)
    return framed([hello, *changed])


def changed_frame(random: Random, frame: Frame) -> Frame:
    header, body = frame
    body = mutated(body, random, TOKENS) if random.random() < 0.5 else body
    stated = len(body) if random.random() < 0.8 else random.choice((0, 1, len(body) + 1, 1 << 20, 1 << 60))
    numbers = random.choice((0, 1, 2, (1 << 62) - 1)), random.choice((0, 1, -1)), random.choice((0, 1, 2, 4, 1 << 20))
    if random.random() < 0.8:
        numbers = header.number, header.floor, header.flags
    kind = random.choice(tuple(Kind)) if random.random() < 0.1 else header.kind
    return Header(kind, stated, *numbers), body


TOKENS = [struct.pack("<Q", one) for one in (0, 1, 1 << 31, 1 << 32, 1 << 60, 1 << 62, (1 << 64) - 1)]


def throw(server: ThreadServer, content: bytes) -> None:
    """Send bytes, and read what comes until the connection ends."""
    with connected_with(server, b"") as stream, suppress(ConnectionError):
        stream.sendall(content)
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(1 << 16):
            continue


@pytest.mark.slow
def test_mutated_streams_leave_a_server_that_serves(caplog):
    """Thousands of sessions whose bytes were changed, beside a good client: no crash, memory and threads in bounds."""
    caplog.set_level("ERROR")
    with running(limits=ServiceLimits(most_bytes=1 << 20, message_bytes=4 << 20)) as server:
        whole = good_streams()
        for role, one in whole:
            throw(
                server, framed([greeting(client=1, clients=2, role=role), *one])
            )  # loops are compiled, tables are there
        server.rows._rows.open(held(), 0)
        before, good = resident_bytes(), 0
        for seed in range(scaled(3000)):
            random = Random(seed)
            role, one = random.choice(whole)
            throw(server, thrown(random, greeting(client=1, clients=2, role=role), one))
            if seed % 50 == 0:
                link = server.connect(Greeting(clients=2, role=SessionRole.WATCHES))(False)
                link.send(Request(Kind.STATUS))
                good += link.receive().header.kind == Kind.DOCUMENT
                link.close()
        assert good == -(-scaled(3000) // 50)
        wait_until(lambda: client_threads() == 0)
        assert resident_bytes() - before < 100 << 20
        assert server.service._budget.used_bytes == 0
        assert [one.getMessage() for one in caplog.records if one.exc_info] == []


def test_mutated_streams_beside_an_engine_change_none_of_its_bits():
    """Bad clients without the token, or that watch, or of an older attempt, while an engine trains."""
    with running(token="secret") as server, ThreadPoolExecutor(2) as pool:
        engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect(Greeting("secret", attempt=1))])
        alone = CpuEngine(FEATURES, seed=SEED)
        hellos = [greeting(), greeting(token="secret"), greeting(token="secret", role="watches")]

        def throw_many(first):
            for seed in range(first, first + scaled(200)):
                random = Random(seed)
                throw(server, thrown(random, random.choice(hellos), random.choice(good_streams())[1]))

        throwing = [pool.submit(throw_many, first) for first in (0, 100_000)]
        steps = 0
        while not all(one.done() for one in throwing) or steps < 10:
            assert train(engine, [steps]) == train(alone, [steps])
            steps += 1
        for one in throwing:
            one.result(timeout=PATIENCE_SECS)
        assert_same(engine.state(), alone.state())
        engine.close()


def test_updates_of_another_process_end_training_instead_of_changing_its_weights():
    """It takes the place of a client whose connection was cut, and the number of its next update."""
    with running() as server:
        engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect()])
        train(engine, range(2))
        engine.finish()
        other = PsEngine(FEATURES, seed=SEED, servers=[server.connect()])
        train(other, [5])
        other.finish()
        other.close()
        before = server.rows._rows.engine.state()
        engine.servers[0].link._frames.socket.shutdown(socket.SHUT_RDWR)
        train(engine, [2])
        with pytest.raises(RemoteError, match="the session and the bytes of the first time") as caught:
            engine.finish()
        assert caught.value.kinds[:2] == ("OtherUpdate", "InputError"), "a job is held by it"
        assert "run training again" in caught.value.next_step
        assert_same(server.rows._rows.engine.state(), before)
        engine.close()


def test_large_messages_of_many_clients_stay_within_the_budget():
    """A client waits in its stream until there is space, and none fails."""
    clients, most = 6, 300_000
    limits = ServiceLimits(most_bytes=1 << 20, message_bytes=most)
    features = [FeatureSpec("a", TableSpec("t", 2000, 16, SGD(0.5)))]
    with running(limits=limits) as server, ThreadPoolExecutor(clients) as pool:
        budget, used, is_done = server.service._budget, [0], threading.Event()

        def look():
            while not is_done.is_set():
                used.append(budget.used_bytes)
                time.sleep(1e-4)

        def run(k):
            engine = PsEngine(features, seed=SEED, servers=[server.connect(Greeting("", k, clients))], staleness=None, threads=1)  # fmt: skip
            ids = np.arange(2000, dtype=np.int64)  # an update of 136 KB
            for _ in range(10):
                batch = IdBatch(ids, np.arange(2001, dtype=np.int64)[None])
                engine.apply_gradients(batch, np.ones((2000, 16), np.float32))
            engine.finish()
            engine.close()

        looking = threading.Thread(target=look)
        looking.start()
        try:
            list(pool.map(run, range(clients)))
        finally:
            is_done.set()
            looking.join(PATIENCE_SECS)
        assert 136_000 <= max(used) <= most
        assert server.rows.status().updates == 10 * clients


def test_a_message_without_space_in_time_is_one_error():
    limits = ServiceLimits(most_bytes=1000, message_bytes=1000, patience_secs=0.2)
    with running(limits=limits) as server, server.service._budget.take(1000, 1.0):
        assert "below their limit" in refused(server, framed([greeting(), request(Kind.FETCH, bytes(8))]))


def test_connections_end_with_the_service():
    with running() as server:
        streams = [connected(server, greeting(client=k, clients=5)) for k in range(5)]
        for one in streams:
            assert answer(one)[0].kind == Kind.OPENED
        assert client_threads() == 5
        server.service.close()
        for one in streams:
            assert answer(one) is None
            one.close()
        wait_until(lambda: client_threads() == 0)


def test_no_request_runs_after_a_service_has_closed(monkeypatch):
    """Another service may take over the rows then: an update that still ran would change them beside it."""
    with running() as server:
        begun, ended, handle = threading.Event(), threading.Event(), server.rows.handle

        def slow(session, header, body):
            begun.set()
            time.sleep(0.5)
            reply = handle(session, header, body)
            ended.set()
            return reply

        monkeypatch.setattr(server.rows, "handle", slow)
        stream = connected(server, greeting(), request(Kind.STATUS))
        assert begun.wait(PATIENCE_SECS)
        server.service.close()
        assert ended.is_set()
        stream.close()


def test_threads_end_with_their_connections():
    with running() as server:
        for k in range(scaled(300)):
            stream = connected_with(server, framed([greeting()])[: k % 80 if k % 2 else None])
            stream.close()
        wait_until(lambda: client_threads() == 0)
        assert server.service._service._connections.open_count == 0
        assert server.rows._sessions == set()


def test_a_failed_client_thread_is_one_error(monkeypatch):
    """A defect of the server reaches the client as an error, and the server goes on."""
    with running() as server:
        monkeypatch.setattr(server.rows, "opened", lambda session: 1 / 0)
        assert "division" in refused(server, framed([greeting()]))
        monkeypatch.undo()
        read_status(server.address)


def test_many_parts_are_sent_and_received_in_pieces():
    one, other = socket.socketpair()
    parts = [bytes([k % 251]) * (k % 7) for k in range(5000)]
    with one, other, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_parts, one, parts)
        content = bytearray(sum(map(len, parts)))
        assert receive_into(other, memoryview(content)) == len(content)
        sending.result(timeout=PATIENCE_SECS)
    assert bytes(content) == b"".join(parts)


def test_a_deadline_holds_for_all_parts_together():
    one, other = socket.socketpair()
    with one, other:
        with pytest.raises(TimeoutError):
            send_parts(one, [bytes(1 << 20)] * 8, time.monotonic() + 0.1)
        with pytest.raises(TimeoutError):
            receive_into(one, memoryview(bytearray(1)), time.monotonic() + 0.1)
        with pytest.raises(TimeoutError):
            send_parts(one, [b"x"], time.monotonic() - 1.0)


def test_a_status_is_read_strictly():
    with running() as server:
        document = server.rows.status().to_document()
        assert read_status(server.address).to_document() == document
    counts = asdict(HashedCounts(1, 2, 3, 4, 5, 6, 7))
    hashed = document | {"hashed": {"a": counts}}
    assert ServerStatus.read(write_document(hashed)).hashed == {"a": HashedCounts(1, 2, 3, 4, 5, 6, 7)}
    for changes in (
        {"rows": -1},
        {"applied": [True]},
        {"staleness": []},
        {"staleness": {"many": 1}},
        {"staleness": {"1" * 30: 1}},
        {"staleness": {"1": -1}},
        {"wait_secs": "1"},
        {"wait_secs": None},
        {"more": 1},
        {"hashed": []},
        {"hashed": {"a": 1}},
        {"hashed": {"a": {"stored": 1}}},
        {"hashed": {"a": counts | {"more": 1}}},
        {"hashed": {"a": counts | {"evicted": -1}}},
        {"hashed": {"a": counts | {"evicted": True}}},
        {"hashed": {"a": counts | {"unplaced": 1 << 70}}},
        {"hashed": {str(k): counts for k in range(5000)}},
    ):
        with pytest.raises(DataError):
            ServerStatus.read(write_document(document | changes))
