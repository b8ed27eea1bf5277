"""What a process without the token sends to a service: thousands of mutations, each of which ends in one line of the log and little memory."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyarrow import flight

from tests.fuzz import mutations as documents
from tests.support.embedding_workers import ThreadWorker
from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.support.parameter_servers import ThreadServer
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.control.serving import serving
from tests.trainer.job.launch.test_notices import Taken, request
from tests.trainer.run.reading.test_unit_reader import reader_of, unit
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host_exchange import HostExchange
from trainer.job.host.host_messages import HostFrame
from trainer.job.host.mailbox import Mailbox
from trainer.job.launch.http_notice import HttpNotice
from trainer.job.launch.notices import watch_notices
from trainer.run.reading.reader_link import ReaderLink
from trainer.run.reading.reader_service import ReaderService
from trainer.run.reading.unit_frames import UnitFrame
from trainer.servers.client_updates import Greeting
from trainer.servers.server_status import read_status
from trainer.servers.session_roles import SessionRole
from trainer.tables.routes.servers.frames import Kind
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.client import Client
from trainer.wire.flight.connections import listen
from trainer.wire.frames import FrameOrder, WireProtocol

TOKEN = "the-token-of-this-test"
MOST_GROWN_BYTES = 64 << 20
#: A client that sends half a message is not waited for.
_SILENCE_SECS = 5.0
TOKENS = (
    b'"\\ud800"',
    b"\xed\xa0\x80",
    b"[" * 990,
    b'{"token":',
    b"9" * 400,
    b"NaN",
    b"\0",
    b"\xff" * 8,
    b"\r\n",
    b"\r\n\r\n",
    b"HRFR",
)


@dataclass
class Entrance:
    """A service with a token.

    Attributes:
        address: where it listens.
        draw: bytes of a client without the token.
        check: raises unless a client with the token is answered, and nothing was changed.
        most_calls: that damaged bytes may have: a call of Flight is one of several on its connection.
    """

    address: Address
    draw: Callable[[random.Random], bytes]
    check: Callable[[], None]
    most_calls: int = 1


def _document(draw: random.Random, whole: dict[str, object]) -> bytes:
    """The JSON text of a greeting without the token, most often damaged."""
    return json.dumps(whole).encode() if draw.random() < 0.1 else documents.mutated_text(whole, draw)[:4000]


def _server_bytes(draw: random.Random) -> bytes:
    role = draw.choice([one.value for one in SessionRole])
    body = _document(draw, {**Greeting("wrong").to_document(), "role": role})
    order = FrameOrder(WireProtocol.ROWS, 7)
    sent = b"".join(order.write(draw.choice([Kind.HELLO] * 9 + [Kind.STATUS]), [body]))
    further = b"".join(order.write(draw.choice(list(Kind)), [bytes(8)], number=1))
    return mutated(sent, draw, TOKENS) if draw.random() < 0.5 else sent + further


@contextmanager
def _server() -> Iterator[Entrance]:
    with closing(ThreadServer(token=TOKEN)) as server:

        def check() -> None:
            status = read_status(server.address, token=TOKEN, patience_secs=PATIENCE_SECS)
            assert (status.attempt, status.tables, status.updates) == (0, 0, 0)

        yield Entrance(server.address, _server_bytes, check)


@contextmanager
def _worker() -> Iterator[Entrance]:
    with closing(ThreadServer(token=TOKEN)) as server, closing(ThreadWorker([server.address], token=TOKEN)) as worker:
        yield Entrance(worker.address, _server_bytes, lambda: _assert_unused(worker.address))


def _assert_unused(worker: Address) -> None:
    status = read_status(worker, token=TOKEN, patience_secs=PATIENCE_SECS)
    assert (status.attempt, status.fetches, status.updates) == (0, 0, 0)


def _host_bytes(draw: random.Random) -> bytes:
    body = _document(draw, {"attempt": 1, "rank": 1, "channel": 0, "origin": 5, "token": "wrong"})
    sent = b"".join(FrameOrder(WireProtocol.HOSTS, 7).write(HostFrame.GREETING, [body]))
    return mutated(sent, draw, TOKENS) if draw.random() < 0.5 else sent


@contextmanager
def _host() -> Iterator[Entrance]:
    mailbox, other = Mailbox(), Mailbox()
    with (
        ExchangeService(LOOPBACK, mailbox, token=TOKEN) as service,
        ExchangeService(LOOPBACK, other, token=TOKEN) as of_other,
    ):
        addresses = [service.address, of_other.address]

        def check() -> None:
            made = [
                HostExchange(box, 1, rank, addresses, token=TOKEN, check=lambda: None)
                for rank, box in enumerate((mailbox, other))
            ]
            for rank, one in enumerate(made):
                one.send([[np.array([10 * rank + to])] for to in range(2)])
            assert [[int(arrays[0][0]) for arrays in one.receive()] for one in made] == [[0, 10], [1, 11]]
            for one in made:
                one.close()

        yield Entrance(service.address, _host_bytes, check)


class _Recorder:
    """Stands between a client and a service, and keeps what the client sends."""

    def __init__(self, service: Address) -> None:
        self._service, self.sent = service, bytearray()
        self._listening = listen(LOOPBACK)
        self.address = Address(*self._listening.getsockname()[:2])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        near, _ = self._listening.accept()
        far = socket.create_connection((self._service.host, self._service.port))
        threading.Thread(target=self._pass, args=(far, near, bytearray()), daemon=True).start()
        self._pass(near, far, self.sent)

    def _pass(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                kept += content
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listening.close()


def _flight_bytes(service: Address) -> Callable[[random.Random], bytes]:
    """What a client of Arrow with another token sends, damaged."""
    recorded = []
    for token in ("wrong", ""):
        with closing(_Recorder(service)) as recorder:
            client = Client(recorder.address, token=token)
            with pytest.raises(Exception, match="token must be that of the job"):
                client.call(
                    lambda one, options: list(one.do_action(flight.Action("status", b"x" * 300), options)),
                    timeout_secs=PATIENCE_SECS,
                )
            client.close()
            recorded.append(bytes(recorder.sent))
    return lambda draw: mutated(draw.choice(recorded), draw, TOKENS)


def _reader_bytes(draw: random.Random) -> bytes:
    order = FrameOrder(WireProtocol.UNITS, 7)
    token = draw.choice([b"wrong", b"", TOKEN.encode()[:-1], TOKEN.encode() + b"x", b"\xff" * 8, b"x" * 5000])
    sent = b"".join(order.write(draw.choice([UnitFrame.GREETING] * 9 + [UnitFrame.STATUS]), [token]))
    further = b"".join(order.write(draw.choice(list(UnitFrame)), [unit(0, 5).to_bytes()]))
    return mutated(sent, draw, TOKENS) if draw.random() < 0.5 else sent + further


@contextmanager
def _reader() -> Iterator[Entrance]:
    with ReaderService(LOOPBACK, reader_of(), token=TOKEN) as service:

        def check() -> None:
            with closing(ReaderLink(service.address, TOKEN, PATIENCE_SECS)) as link:
                assert json.loads(link.status(PATIENCE_SECS))["units"] == 0

        yield Entrance(service.address, _reader_bytes, check)


@contextmanager
def _controller(folder: Path) -> Iterator[Entrance]:
    with serving(folder) as found:

        def check() -> None:
            assert found.client.status().attempt == 0

        yield Entrance(found.service.address, _flight_bytes(found.service.address), check, 2)


_NOTICE = (
    b'POST /notice HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\nContent-Length: 17\r\n\r\n{"grace_secs": 5}'
)


@contextmanager
def _notice() -> Iterator[Entrance]:
    taken = Taken()
    source = HttpNotice(LOOPBACK, token=TOKEN)
    with watch_notices([source], taken):

        def check() -> None:
            assert taken.secs == []
            assert request(source.address, TOKEN) == 204
            taken.secs.clear()

        yield Entrance(source.address, lambda draw: mutated(_NOTICE, draw, TOKENS), check)


ENTRANCES = ["server", "worker", "host", "reader", "controller", "notice"]


def opened(name: str, folder: Path):
    makes = {
        "server": _server,
        "worker": _worker,
        "host": _host,
        "reader": _reader,
        "controller": partial(_controller, folder),
        "notice": _notice,
    }
    return makes[name]()


def throw(address: Address, content: bytes) -> None:
    """Send bytes, and read until the service ends the connection."""
    with suppress(OSError), socket.create_connection((address.host, address.port), PATIENCE_SECS) as stream:
        stream.settimeout(_SILENCE_SECS)
        stream.sendall(content)
        stream.shutdown(socket.SHUT_WR)
        while stream.recv(1 << 16):
            continue


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fuzz(entrance: Entrance, seeds: range, caplog: pytest.LogCaptureFixture) -> None:
    for seed in seeds[:20]:
        throw(entrance.address, entrance.draw(random.Random(seed)))
    gc.collect()
    threads, before = threading.active_count(), resident_bytes()
    written = 0
    for seed in seeds:
        caplog.clear()
        throw(entrance.address, entrance.draw(random.Random(seed)))
        lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert all(line.isprintable() and len(line) < 600 for line in lines), (seed, lines)
        assert not any(one.exc_info for one in caplog.records), (seed, caplog.text)
        written += len(lines)
    assert written <= entrance.most_calls * len(seeds)
    entrance.check()
    until = time.monotonic() + PATIENCE_SECS
    while threading.active_count() > threads + 8 and time.monotonic() < until:
        time.sleep(0.05)
    gc.collect()
    assert threading.active_count() <= threads + 8
    assert resident_bytes() - before < MOST_GROWN_BYTES


@pytest.mark.medium
@pytest.mark.parametrize("name", ENTRANCES)
def test_what_comes_without_the_token_ends_in_one_line(name, tmp_path, caplog, capfd):
    caplog.set_level(logging.INFO)
    with opened(name, tmp_path) as entrance:
        fuzz(entrance, range(scaled(1000)), caplog)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRANCES)
def test_thousands_of_messages_without_the_token_end_in_one_line_each(name, tmp_path, caplog, capfd):
    caplog.set_level(logging.INFO)
    with opened(name, tmp_path) as entrance:
        fuzz(entrance, range(10_000, 10_000 + scaled(10_000)), caplog)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["server", "worker", "host"])
def test_a_lone_surrogate_as_token_is_refused_in_one_line(name, tmp_path, caplog):
    with opened(name, tmp_path) as entrance:
        if name == "host":
            body = b'{"attempt":1,"rank":1,"channel":0,"origin":5,"token":"\\ud800"}'
            throw(entrance.address, b"".join(FrameOrder(WireProtocol.HOSTS, 7).write(HostFrame.GREETING, [body])))
        else:
            body = json.dumps(Greeting("\ud800").to_document()).encode()
            throw(entrance.address, b"".join(FrameOrder(WireProtocol.ROWS, 7).write(Kind.HELLO, [body])))
        entrance.check()
    (line,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "the token must be that of the" in line
    assert line.isprintable()


@pytest.mark.parametrize("name", ENTRANCES)
def test_many_half_messages_at_once_cost_bounded_memory(name, tmp_path):
    with opened(name, tmp_path) as entrance, ExitStack() as streams:
        before = resident_bytes()
        for seed in range(300):
            with suppress(ConnectionError):
                stream = streams.enter_context(
                    socket.create_connection((entrance.address.host, entrance.address.port), PATIENCE_SECS)
                )
                content = entrance.draw(random.Random(seed))
                stream.sendall(content[: max(len(content) // 2, 1)])
        assert resident_bytes() - before < MOST_GROWN_BYTES
    with opened(name, tmp_path / "again") as entrance:
        entrance.check()
