"""Connections that fail, servers that start again, and servers that lie: nothing is lost, made twice, or believed."""

from __future__ import annotations

import itertools
import re
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from random import Random

import numpy as np
import pytest

from tests.support.cutting_proxy import cutting
from tests.support.examples import scaled
from tests.support.frames import SESSION, Frame, framed
from tests.support.mutations import mutated
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.support.processes import PATIENCE_SECS, free_port
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import AttemptOver, ServerLost
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.service import ServerService
from trainer.servers.tcp_link import LinkOptions, TcpLink, connect_to
from trainer.tables import CpuEngine
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Header, Kind, write_document
from trainer.tables.routes.servers.server_link import Request
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.connections import listen
from trainer.wire.flight.error_documents import RemoteError
from trainer.wire.frames import HEADER_BYTES
from transforms.errors import DataError

SEED = 3
#: How long a link waits where a test wants it to give up.
SHORT_SECS = 0.3


def link_to(address: Address, patience_secs: float = PATIENCE_SECS, **greeting):
    return connect_to(address, LinkOptions(Greeting(**greeting), patience_secs=patience_secs))


def random_cuts(seed: int, most: int):
    """Cut positions: mostly somewhere in the messages of a few steps, at times in the first bytes."""
    random, lock = Random(seed), threading.Lock()

    def next_cut() -> int:
        with lock:
            return random.randint(1, 300) if random.random() < 0.3 else random.randint(300, most)

    return next_cut


def cut_off_training(cuts: int, seed: int) -> None:
    """Train through proxies until connections were cut so often, and compare with an engine that was never disturbed."""
    with thread_servers(2) as servers, cutting(servers[0].address, random_cuts(seed, 40_000)) as one, \
            cutting(servers[1].address, random_cuts(seed + 1, 40_000)) as other:  # fmt: skip
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(one.address), link_to(other.address)])
        alone = CpuEngine(FEATURES, seed=SEED)
        steps = 0
        while one.cuts + other.cuts < cuts:
            assert train(engine, [steps]) == train(alone, [steps])
            steps += 1
        engine.finish()
        assert [server.rows.status().applied for server in servers] == [(steps,), (steps,)]
        assert [server.rows.status().updates for server in servers] == [steps, steps]
        assert sum(remote.link.reconnections for remote in engine.servers) >= cuts // 2
        direct = PsEngine(FEATURES, seed=SEED, servers=[server.connect() for server in servers])
        assert_same(direct.state(), alone.state())
        direct.close()
        engine.close()
        print(f"{cuts} cuts, {steps} steps, {[server.rows.status().repeated_updates for server in servers]} repeated")


@pytest.mark.slow
def test_training_through_connections_that_are_cut_off_changes_no_bit():
    cut_off_training(scaled(400), 0)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_training_through_thousands_of_cuts_changes_no_bit(seed):
    cut_off_training(2000, seed)


@pytest.mark.parametrize("kind", [Kind.FETCH, Kind.UPDATE])
def test_a_connection_cut_at_each_part_of_a_request_and_its_answer(kind):
    """Every position on a grid, with the positions around the ends of headers."""
    batch = random_batch(FEATURES, 1)
    with thread_servers(1) as (server,):
        alone = CpuEngine(FEATURES, seed=SEED)
        engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect()])
        engine.lookup(batch)
        sent = engine.servers[0].link.sent_bytes
        engine.lookup(batch) if kind == Kind.FETCH else engine.apply_gradients(batch, gradients_of(batch, engine.width, 0))  # fmt: skip
        engine.finish()
        if kind == Kind.UPDATE:
            alone.apply_gradients(batch, gradients_of(batch, engine.width, 0))
        length = engine.servers[0].link.sent_bytes - sent
        engine.close()
        answer_bytes = 20_000 if kind == Kind.FETCH else HEADER_BYTES
        grid = sorted({1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, length - 1, length, length + 1, length + HEADER_BYTES,
                       *range(7, length + answer_bytes, 1511)})  # fmt: skip
        for position in grid:
            with CutLater(server.address) as proxy:
                engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(proxy.address)])
                if kind == Kind.UPDATE:
                    engine.lookup(batch)
                proxy.cut_in(position)
                if kind == Kind.FETCH:
                    assert engine.lookup(batch).tobytes() == alone.lookup(batch).tobytes()
                else:
                    for one in (engine, alone):
                        one.apply_gradients(batch, gradients_of(batch, one.width, position))
                engine.finish()
                assert engine.lookup(batch).tobytes() == alone.lookup(batch).tobytes()
                engine.close()
        updates = len(grid) + 1 if kind == Kind.UPDATE else 0
        assert server.rows.status().applied == (updates,)


class CutLater:
    """A proxy for one connection at a time, which is cut once, so many bytes after :meth:`cut_in` in both directions together."""

    def __init__(self, server: Address) -> None:
        self._server, self._left = server, None
        self._listening = listen(LOOPBACK)
        self.address = Address(*self._listening.getsockname()[:2])

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listening.close()

    def cut_in(self, position: int) -> None:
        self._left = position

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection((self._server.host, self._server.port))
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._hand_on, args=(one, other), daemon=True).start()

    def _hand_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while part := one.recv(1 << 16 if self._left is None else min(self._left, 1 << 16)):
                other.sendall(part)
                if self._left is not None:
                    self._left -= len(part)
                    if self._left <= 0:
                        self._left = None
                        break
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def served_at(address: Address, folder=None):
    listening = listen(address)
    return listening, ServerService(listening, RowServer(HeldRows(folder)))


@contextmanager
def restarting(folder):
    """A port, and what stops the service on it and starts another one, with the memory of ``folder``."""
    address, running = Address("127.0.0.1", free_port()), []

    def restart():
        for listening, service in running:
            listening.close()
            service.close()
        running[:] = [served_at(address, folder)]
        return running[0][1]

    restart()
    try:
        yield address, restart
    finally:
        for listening, service in running:
            listening.close()
            service.close()


def test_a_server_that_starts_again_with_its_rows_goes_on(tmp_path):
    with restarting(tmp_path) as (address, restart):
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(address)])
        alone = CpuEngine(FEATURES, seed=SEED)
        for seed in range(8):
            assert train(engine, [seed]) == train(alone, [seed])
            restart()
        assert_same(engine.state(), alone.state())
        assert engine.servers[0].link.reconnections >= 7
        engine.close()


def test_a_server_that_starts_again_without_its_rows_is_lost():
    """Going on would train on fresh rows."""
    with restarting(None) as (address, restart):
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(address)])
        train(engine, range(2))
        engine.finish()
        restart()
        with pytest.raises(ServerLost, match="lost its rows"):
            train(engine, [2])
        engine.close()


@pytest.mark.parametrize("has_memory", [True, False])
def test_an_attempt_goes_on_with_the_rows_of_the_one_before_or_not_at_all(tmp_path, has_memory):
    """Between two attempts nothing waits for the server: the next one must not take fresh rows for the trained ones."""
    with restarting(tmp_path if has_memory else None) as (address, restart):
        engine, alone = PsEngine(FEATURES, seed=SEED, servers=[link_to(address)]), CpuEngine(FEATURES, seed=SEED)
        assert train(engine, range(2)) == train(alone, range(2))
        engine.finish()
        restart()
        connects = [link_to(address, attempt=2)]
        if has_memory:
            engine.connect(connects, keeps_rows=True)
            assert train(engine, [2]) == train(alone, [2])
        else:
            with pytest.raises(ServerLost, match="lost its rows"):
                engine.connect(connects, keeps_rows=True)
            engine.connect(connects, keeps_rows=False)
            engine.load_state(alone.state())
            assert train(engine, [2]) == train(alone, [2])
        assert_same(engine.state(), alone.state())
        engine.close()


def test_a_snapshot_is_lost_with_the_rows_of_its_server():
    """It is read over another connection, which does not know what the server has held before."""
    with restarting(None) as (address, restart):
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(address)])
        train(engine, range(2))
        engine.finish()
        restart()
        with pytest.raises(ServerLost, match="opened first") as found:
            engine.begin_snapshot(most_bytes=1 << 20)
        assert str(address) in found.value.where
        engine.close()


def test_a_snapshot_that_one_server_does_not_begin_is_ended_on_the_others(monkeypatch):
    def lost(most_bytes):
        raise ServerLost("a server must answer")

    with thread_servers(2) as servers:
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(one.address) for one in servers])
        train(engine, range(2))
        with monkeypatch.context() as patch:
            patch.setattr(engine.servers[1], "begin_snapshot", lost)
            with pytest.raises(ServerLost):
                engine.begin_snapshot(most_bytes=1 << 20)
        engine.begin_snapshot(most_bytes=1 << 20)
        engine.end_snapshot()
        engine.close()


@pytest.mark.parametrize("ends", [AttemptOver, KeyboardInterrupt])
def test_an_attempt_that_is_over_leaves_no_answer_to_the_next_request(tmp_path, ends):
    """A wait for a server that is away ends with the attempt: then the snapshot is not ended, and the next one is whole."""
    over = threading.Event()

    def check() -> None:
        if over.is_set():
            raise ends("the attempt was given up")

    with restarting(tmp_path) as (address, restart):
        options = LinkOptions(Greeting(), patience_secs=PATIENCE_SECS, check=check)
        engine = PsEngine(FEATURES, seed=SEED, servers=[connect_to(address, options)])
        alone = CpuEngine(FEATURES, seed=SEED)
        assert train(engine, range(2)) == train(alone, range(2))
        snapshot = engine.begin_snapshot(most_bytes=1 << 20)
        restart()
        over.set()
        with pytest.raises(ends):
            list(snapshot.table(0))
        engine.end_snapshot()
        over.clear()
        assert_same(engine.state(), alone.state())
        engine.close()


def test_a_snapshot_is_read_while_the_next_attempt_trains(tmp_path):
    """The end of the attempt ends its requests for training alone, however long the server takes to answer."""
    over = threading.Event()

    def check() -> None:
        if over.is_set():
            raise AttemptOver("the attempt was given up")

    with restarting(tmp_path) as (address, restart):
        options = LinkOptions(Greeting(), patience_secs=PATIENCE_SECS, check=check)
        engine = PsEngine(FEATURES, seed=SEED, servers=[connect_to(address, options, lambda: None)])
        train(engine, range(2))
        snapshot = engine.begin_snapshot(most_bytes=1 << 20)
        over.set()
        restart()
        assert sum(len(found.rows) for t in range(len(engine.tables)) for found in snapshot.table(t)) == sum(
            snapshot.counts
        )
        with pytest.raises(AttemptOver):
            train(engine, [2])
        engine.close()


def test_rows_that_another_client_has_loaded_are_others(tmp_path):
    """A client that connects again afterwards must not go on with its numbers."""
    with restarting(tmp_path) as (address, restart):
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(address, client=0, clients=2)], staleness=None)
        train(engine, range(2))
        engine.finish()
        other = PsEngine(FEATURES, seed=SEED, servers=[link_to(address, client=1, clients=2)], staleness=None)
        other.load_state(CpuEngine(FEATURES, seed=SEED).state())
        other.close()
        restart()
        with pytest.raises(ServerLost, match="lost its rows"):
            train(engine, [2])
        engine.close()


def test_a_server_that_stays_away_is_lost():
    server = ThreadServer()
    engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect(patience_secs=SHORT_SECS)])
    server.close()
    with pytest.raises(ServerLost, match="must answer"):
        train(engine, [0])
    with pytest.raises(ServerLost):
        link_to(server.address, SHORT_SECS)(False)
    engine.close()


def test_a_server_that_is_silent_is_lost():
    with listen(LOOPBACK) as listening, pytest.raises(ServerLost, match="must answer"):
        link_to(Address(*listening.getsockname()[:2]), SHORT_SECS)(False)


def test_a_link_waits_longer_each_time_it_tries():
    waits, now = [], [0.0]

    def sleep(secs):
        waits.append(secs)
        now[0] += secs

    options = LinkOptions(patience_secs=5.0, clock=lambda: now[0], sleep=sleep)
    with pytest.raises(ServerLost):
        TcpLink(Address("127.0.0.1", free_port()), options)
    assert waits[0] == 0.01
    assert all(one <= other <= 2 * one for one, other in itertools.pairwise(waits))
    assert max(waits) == 0.5
    assert sum(waits) <= 5.0


def test_a_link_does_not_connect_to_itself(monkeypatch):
    """A port of the system's range that nothing listens on may be given to the socket that connects to it."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]

    def connect_to_itself(address, timeout):
        stream = socket.socket()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stream.bind(address)
        stream.settimeout(timeout)
        stream.connect(address)
        return stream

    monkeypatch.setattr(socket, "create_connection", connect_to_itself)
    with pytest.raises(ServerLost, match="must answer"):
        link_to(Address("127.0.0.1", port), SHORT_SECS)(False)


def test_an_engine_reads_its_rows_although_a_connection_is_cut_off():
    cuts = iter([None, 5000, None, None])
    with thread_servers(1) as (server,), cutting(server.address, lambda: next(cuts)) as proxy:
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(proxy.address)])
        alone = CpuEngine(FEATURES, seed=SEED)
        train(engine, range(4))
        train(alone, range(4))
        assert_same(engine.state(), alone.state())
        assert train(engine, [4]) == train(alone, [4])
        engine.close()


@contextmanager
def lying_server(answers, *, ends: bool = True):
    """Answers each connection with given bytes, whatever it is asked, and ends it, or waits for the client to end it."""
    with listen(LOOPBACK) as listening:

        def serve():
            with suppress(OSError):  # the socket is closed
                while True:
                    stream, _ = listening.accept()
                    with stream, suppress(OSError):  # the client has left
                        stream.sendall(next(answers))
                        if ends:
                            stream.shutdown(socket.SHUT_WR)
                        while stream.recv(1 << 16):
                            continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address(*listening.getsockname()[:2])


def frame(kind: Kind, body: bytes = b"", number: int = 0) -> Frame:
    return Header(kind, len(body), number), body


def link_to_liar(address: Address, patience_secs: float = PATIENCE_SECS) -> TcpLink:
    """A link whose connections have the session of the frames that a lying server sends."""
    options = LinkOptions(patience_secs=patience_secs, stall_secs=patience_secs / 8, draw_session=lambda: SESSION)
    return TcpLink(address, options)


OPENED = frame(Kind.OPENED, write_document({"generation": 7, "applied": 0, "digest": "x"}))


@pytest.mark.parametrize(
    "answer", [framed([OPENED])[:-1], b""], ids=["a byte of the answer is lost", "all of it is lost"]
)
def test_a_greeting_that_the_network_swallows_is_sent_again(answer):
    """A byte that never comes looks like a server that thinks: the patience must have room for further greetings."""
    answers = iter([answer, framed([OPENED])])
    options = LinkOptions(patience_secs=6.0, stall_secs=0.5, draw_session=lambda: SESSION)
    with lying_server(answers, ends=False) as address:
        began_secs = time.monotonic()
        link = TcpLink(address, options)
        assert time.monotonic() - began_secs < 5.9
        link.close()


def test_damage_that_is_seen_late_is_not_the_end():
    """Each damaged connection takes as long as a stall to be seen; three of them take longer than the patience."""
    waits, now = [], [0.0]

    def sleep(secs):
        waits.append(secs)
        now[0] += secs + 5.0

    options = LinkOptions(
        patience_secs=6.0, stall_secs=5.0, draw_session=lambda: SESSION, clock=lambda: now[0], sleep=sleep
    )
    damage = [framed([OPENED], first=1)] * 3
    with lying_server(iter([*damage, framed([OPENED])])) as address:
        TcpLink(address, options).close()
    assert len(waits) == 3


@pytest.mark.parametrize(
    "answer",
    [
        (Header(Kind.OPENED, 1 << 60), b""),
        (Header(Kind.OPENED, (1 << 64) - 1), b""),
        frame(Kind.OPENED, b"{}"),
        frame(Kind.OPENED, b"[" * 5000),
        frame(Kind.OPENED, write_document({"generation": -1, "applied": 0, "digest": "x"})),
        frame(Kind.OPENED, write_document({"generation": 1, "applied": True, "digest": "x"})),
        frame(Kind.OPENED, write_document({"generation": 1, "applied": 1, "digest": 7})),
        frame(Kind.ERROR, b"{}"),
        frame(Kind.ERROR, b"\xff" * 100),
        frame(Kind.ERROR, bytes(1 << 16)),
    ],
)
def test_a_greeting_that_is_answered_with_another_document_is_one_error(answer):
    with lying_server(itertools.repeat(framed([answer]))) as address, pytest.raises(DataError):
        link_to_liar(address)


@pytest.mark.parametrize(
    "answer",
    [
        bytes(HEADER_BYTES),
        b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64),
        framed([OPENED], first=1),
        framed([OPENED], session=SESSION + 1),
        framed([(Header(Kind.OPENED, 80), bytes(80))])[:-1] + b"x",
    ],
    ids=["zeros", "text", "number", "session", "body"],
)
def test_damage_that_never_ends_is_one_error_with_both_ends(answer):
    waits, now = [], [0.0]

    def sleep(secs):
        waits.append(secs)
        now[0] += secs

    options = LinkOptions(
        Greeting("", 1, 2),
        patience_secs=2.0,
        stall_secs=0.1,
        draw_session=lambda: SESSION,
        clock=lambda: now[0],
        sleep=sleep,
    )
    with lying_server(itertools.repeat(answer)) as address:
        with pytest.raises(ServerLost, match="deliver bytes as they were sent") as found:
            TcpLink(address, options)
        assert str(address) in found.value.where
        assert "client 1 on " in found.value.where
        assert "its " in str(found.value.value)
        assert re.search(r"connections in [12](\.\d+)? s", str(found.value.value))
    assert 5 < len(waits) < 20


@pytest.mark.parametrize(
    "answer",
    [
        frame(Kind.ROWS, bytes(40), 1),
        frame(Kind.ROWS, bytes(39)),
        frame(Kind.ROWS),
        frame(Kind.DONE, bytes(40)),
        frame(Kind.OPENED, bytes(40)),
        (Header(Kind.ROWS, 1 << 60), b""),
        (Header(Kind.ROWS, 1 << 40), b""),
    ],
)
def test_a_fetch_that_is_answered_with_other_bytes_is_one_error(answer):
    space = np.zeros(10, np.float32)
    with lying_server(itertools.repeat(framed([OPENED, answer]))) as address:
        link = link_to_liar(address)
        link.send(Request(Kind.FETCH, [], [space]))
        with pytest.raises(DataError):
            link.receive()
        link.close()


def test_the_right_bytes_are_received_where_they_are_wanted():
    rows, rooms = np.arange(10, dtype=np.float32), [np.zeros(4, np.float32), np.zeros(0, np.float32), np.zeros(6, np.float32)]  # fmt: skip
    with lying_server(itertools.repeat(framed([OPENED, frame(Kind.ROWS, rows.tobytes())]))) as address:
        link = link_to_liar(address)
        link.send(Request(Kind.FETCH, [], rooms))
        assert link.receive().header.kind == Kind.ROWS
        assert np.concatenate(rooms).tolist() == rows.tolist()
        assert link.waiting == 0
        link.close()


@pytest.mark.slow
def test_mutated_answers_are_one_error_or_an_answer():
    """The link of an engine reads bytes that a server has not sent so."""
    counts = struct.pack("<3q", 1, 2, 3)
    whole = framed([OPENED, frame(Kind.COUNTS, counts, 5), frame(Kind.ERROR, b'{"kinds":["X"],"what":"w","where":"","value":"","allowed":"","next_step":""}')])  # fmt: skip
    random = Random(0)
    tokens = [struct.pack("<Q", 1 << 60), struct.pack("<Q", 1 << 27)]
    streams = (mutated(whole, random, tokens) if k % 10 else whole for k in itertools.count())
    read = refused = 0
    with lying_server(streams) as address:
        for _ in range(scaled(1000)):
            link = None
            try:
                link = link_to_liar(address, 0.05)
                link.send(Request(Kind.BEGIN_SNAPSHOT, number=5))
                link.receive()
                read += 1
            except (DataError, RemoteError, ServerLost):
                refused += 1
            finally:
                if link is not None:
                    link.close()
    assert read
    assert refused


def test_errors_of_the_server_are_raised_by_the_next_call():
    with thread_servers(1) as (server,):
        engine = PsEngine(FEATURES, seed=SEED, servers=[server.connect()])
        train(engine, [0])
        newer = server.connect(Greeting(attempt=1))(False)
        with pytest.raises(RemoteError, match="newer session") as raised:
            train(engine, [1, 2])
        assert raised.value.kinds[0] == "AttemptOver"
        newer.close()
        engine.close()
