"""Arrays between hosts over real sockets."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks.support.whole_vectors import summed
from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.support.processes import PATIENCE_SECS
from trainer.errors import AttemptOver, ConfigError, HostLost
from trainer.flight.addresses import Address
from trainer.flight.error_documents import from_bytes
from trainer.host.exchange_service import ExchangeService
from trainer.host.host_exchange import HostExchange
from trainer.host.host_messages import LENGTH, MAGIC, Sender, write_greeting, write_message
from trainer.host.mailbox import Mailbox

LOOPBACK = Address("127.0.0.1", 0)


class Hosts:
    """Services of several hosts in this process."""

    def __init__(self, count, token="", **options):
        self.boxes = [Mailbox(**options) for _ in range(count)]
        self.services = [ExchangeService(LOOPBACK, box, token=token) for box in self.boxes]
        self.addresses = [service.address for service in self.services]
        self.token = token

    def exchange(self, rank, attempt=1, check=lambda: None, **options):
        return HostExchange(self.boxes[rank], attempt, rank, self.addresses, token=self.token, check=check, **options)

    def close(self):
        for service in self.services:
            service.close()


@pytest.fixture
def three():
    hosts = Hosts(3, token="secret")
    yield hosts
    hosts.close()


def together(hosts, work, **options):
    """The results of ``work(exchange)`` on all hosts, by rank."""
    results, errors = [None] * len(hosts.addresses), []

    def run(rank):
        exchange = hosts.exchange(rank, **options)
        try:
            results[rank] = work(exchange)
        except Exception as error:
            errors.append(error)
        finally:
            exchange.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def test_arrays_come_from_every_host_in_many_rounds(three):
    def work(exchange):
        found = []
        for step in range(20):
            parts = [
                [np.full(step * (to + 1), 100 * exchange.rank + to, np.float32), np.array([step], np.int64)]
                for to in range(3)
            ]
            found.append([[array.tolist() for array in arrays] for arrays in exchange.all_to_all(parts)])
        return found

    for rank, rounds in enumerate(together(three, work)):
        for step, received in enumerate(rounds):
            assert received == [[[100.0 * r + rank] * step * (rank + 1), [step]] for r in range(3)]


def test_a_later_attempt_begins_anew(three):
    vector = np.arange(5, dtype=np.float32)
    for attempt in (1, 2, 5):
        results = together(three, lambda exchange: summed(exchange, vector).tolist(), attempt=attempt)
        assert results == [(3 * vector).tolist()] * 3


def test_channels_do_not_wait_for_each_other(three):
    """A call on one channel ends while another host has sent nothing on a second one."""
    second = [three.exchange(rank, channel=1) for rank in range(3)]
    waiting = [threading.Thread(target=one.all_to_all, args=([[np.full(2, 7.0, np.float32)]] * 3,)) for one in second]
    for thread in waiting[:2]:
        thread.start()
    found = together(three, lambda exchange: exchange.all_to_all([[np.array([exchange.rank], np.int64)]] * 3))
    assert [[int(arrays[0][0]) for arrays in one] for one in found] == [[0, 1, 2]] * 3
    assert all(thread.is_alive() for thread in waiting[:2])
    waiting[2].start()
    for thread in waiting:
        thread.join(PATIENCE_SECS)
    for one in second:
        one.close()


def test_a_host_sends_ahead_of_what_it_receives(three):
    """Sending and receiving run in two threads; messages come in the order of the calls."""
    calls = 40

    def work(exchange):
        rng = np.random.default_rng(exchange.rank)

        def send():
            for number in range(calls):
                exchange.send([[np.full(int(rng.integers(1, 70_000)), number, np.float32)] for _ in range(3)])

        sending = threading.Thread(target=send)
        sending.start()
        found = [[float(arrays[0][0]) for arrays in exchange.receive()] for _ in range(calls)]
        sending.join(PATIENCE_SECS)
        return found

    assert together(three, work) == [[[float(number)] * 3 for number in range(calls)]] * 3


@pytest.mark.parametrize("call", ["send", "receive"])
def test_closing_a_channel_ends_the_call_of_another_thread(three, call):
    exchange, raised = three.exchange(0), []

    def wait():
        try:
            while True:
                exchange.receive() if call == "receive" else exchange.send([[np.zeros(1 << 24, np.uint8)]] * 3)
        except AttemptOver as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    exchange.close()
    thread.join(PATIENCE_SECS)
    assert not thread.is_alive()
    assert "channel must be open" in str(raised[0])


def test_a_lost_host_ends_the_exchange_of_the_others(three):
    def work(exchange):
        if exchange.rank == 2:
            exchange.all_to_all([[np.zeros(1, np.float32)]] * 3)
            exchange.close()
            return "gone"
        for _ in range(2):
            exchange.all_to_all([[np.zeros(1, np.float32)]] * 3)
        return "stayed"

    with pytest.raises(HostLost, match=r"must stay|must take"):
        together(three, work)


def test_an_attempt_that_is_given_up_waits_for_no_host(three):
    over = threading.Event()

    def check():
        if over.is_set():
            raise AttemptOver("the attempt was given up")

    exchange = three.exchange(0, check=check)
    threading.Timer(0.2, over.set).start()
    with pytest.raises(AttemptOver):
        exchange.all_to_all([[np.zeros(1, np.float32)]] * 3)
    exchange.close()


def test_a_silent_host_is_lost_after_a_time(three):
    exchange = three.exchange(0, patience_secs=0.2)
    with pytest.raises(HostLost, match="must answer"):
        exchange.all_to_all([[np.zeros(1, np.float32)]] * 3)
    exchange.close()


def test_large_messages_of_many_sizes_arrive(three):
    """More than the buffers of a socket hold, so hosts send and receive at once."""

    def work(exchange):
        rng = np.random.default_rng(exchange.rank)
        for size in (0, 1, 7, 65_537, 3_000_000, 1 << 23):
            own = rng.integers(0, 255, size, np.uint8)
            parts = exchange.all_to_all([[own, np.array([exchange.rank], np.int64)]] * 3)
            for rank, (found, sender) in enumerate(parts):
                assert (len(found), int(sender[0])) == (size, rank)
                assert rank != exchange.rank or np.array_equal(found, own)
            sums = [int(one.sum()) for one, _ in parts]
            seen = exchange.all_to_all([[np.array(sums, np.int64)]] * 3)
            assert all(arrays[0].tolist() == sums for arrays in seen)
        return "done"

    assert together(three, work) == ["done"] * 3


def described(number, *arrays):
    content = json.dumps({"number": number, "arrays": arrays}).encode()
    return LENGTH.pack(len(content)) + content


def with_length(content):
    return LENGTH.pack(len(content)) + content


def send(address, *parts, ends=True):
    """What a service answers to bytes: the error of its document, or None for an end without one."""
    with socket.create_connection((address.host, address.port), PATIENCE_SECS) as stream:
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            for part in parts:
                stream.sendall(part)
            if ends:
                stream.shutdown(socket.SHUT_WR)
        answer = bytearray()
        with contextlib.suppress(ConnectionError):
            while found := stream.recv(1 << 16):
                answer += found
    if not answer:
        return None
    (length,) = LENGTH.unpack(answer[: LENGTH.size])
    assert len(answer) == LENGTH.size + length, "there is one error"
    return from_bytes(bytes(answer[LENGTH.size :]), str(address))


def assert_goes_on(hosts):
    assert (
        together(hosts, lambda exchange: len(exchange.all_to_all([[np.zeros(1, np.float32)]] * 3)), attempt=9)
        == [3] * 3
    )


GREETING = bytes(write_greeting(Sender(1, 1), "secret"))
SOUND = described(0, ["float32", 2]) + bytes(8)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "of this release"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "of this release"),
        (MAGIC + b"\xff\xff\xff\xff", "description of a host must be short"),
        (MAGIC + with_length(b""), "JSON"),
        (MAGIC + with_length(b"[]"), "by an object"),
        (MAGIC + with_length(b"[" * 9000), "JSON"),
        (MAGIC + with_length(b'{"attempt": 1, "rank": 1}'), "name its sender"),
        (MAGIC + with_length(b'{"attempt": -1, "rank": 0, "channel": 0, "token": "secret"}'), "name its sender"),
        (MAGIC + with_length(b'{"attempt": true, "rank": 0, "channel": 0, "token": "secret"}'), "name its sender"),
        (MAGIC + with_length(b'{"attempt": 1, "rank": 99999, "channel": 0, "token": "secret"}'), "rank of a host"),
        (MAGIC + with_length(b'{"attempt": 1, "rank": 1, "channel": 16, "token": "secret"}'), "channel of a stream"),
        (MAGIC + with_length(b'{"attempt": 1, "rank": 1, "token": "secret"}'), "name its sender"),
        (MAGIC + with_length(b'{"attempt": 1, "rank": 1, "channel": 0, "token": "\xc3\xa9"}'), "token must be that of the job"),
        (bytes(write_greeting(Sender(1, 1), "")), "token must be that of the job"),
        (bytes(write_greeting(Sender(1, 1), "secret1")), "token must be that of the job"),
        (GREETING[:-3], "must be whole"),
        (GREETING + b"\x10", "must be whole"),
        (GREETING + SOUND[:20], "must be whole"),
        (GREETING + SOUND[:-1], "must be whole"),
        (GREETING + LENGTH.pack(1 << 20), "description of a host must be short"),
        (GREETING + with_length(b"{}"), "number and arrays"),
        (GREETING + with_length(b'{"number": 0, "arrays": 7}'), "number and arrays"),
        (GREETING + described(0, *[["uint8", 1]] * 65), "number and arrays"),
        (GREETING + described(1, ["float32", 2]), "in order"),
        (GREETING + SOUND + SOUND, "in order"),
        (GREETING + described(0, ["object", 2]), "type and a length"),
        (GREETING + described(0, [["float32"], 2]), "type and a length"),
        (GREETING + described(0, ["float32", -2]), "type and a length"),
        (GREETING + described(0, ["float32", 1.5]), "type and a length"),
        (GREETING + described(0, ["float32", 1 << 29]), "must be short"),
        (GREETING + described(0, ["int64", 2**62]), "must be short"),
        (GREETING + described(0, ["uint8", 1 << 30], ["uint8", 1]), "must be short"),
    ],
)  # fmt: skip
def test_malformed_streams_are_refused_with_one_error_and_the_service_goes_on(three, content, match):
    refused = send(three.addresses[0], content)
    assert refused is not None
    assert re.search(match, refused.what), refused.what
    assert len(str(refused)) < 2000
    assert_goes_on(three)


def test_a_second_stream_of_a_sender_is_refused(three):
    assert send(three.addresses[0], GREETING, SOUND) is None
    assert "one stream in an attempt" in send(three.addresses[0], GREETING, SOUND).what
    assert_goes_on(three)


def test_a_sender_that_is_refused_learns_why(three):
    exchange = three.exchange(0)
    exchange._token = "wrong"
    for size in (1, 1 << 25):
        with pytest.raises(HostLost, match="must take what is sent to it") as caught:
            exchange.all_to_all([[np.zeros(size, np.uint8)]] * 3)
        assert "token must be that of the job" in caught.value.value
        exchange.close()
        exchange = three.exchange(0)
        exchange._token = "wrong"
    exchange.close()


def test_a_message_above_the_limit_is_refused_by_its_sender():
    hosts = Hosts(2, most_bytes=1000)
    exchange = hosts.exchange(0)
    with pytest.raises(ConfigError, match="between hosts must be short") as caught:
        exchange.all_to_all([[np.zeros(1001, np.uint8)]] * 2)
    assert (caught.value.value, caught.value.allowed) == ("1,008 bytes", "at most 1,000 bytes")
    exchange.close()
    hosts.close()


def test_what_waits_for_a_slow_host_is_bounded():
    """A sender that is ahead waits in its stream once its messages fill the limit."""
    hosts = Hosts(1, most_bytes=1 << 20)
    hosts.boxes[0].begin(1)
    sent = []

    def flood():
        with (
            contextlib.suppress(OSError),
            socket.create_connection((hosts.addresses[0].host, hosts.addresses[0].port)) as stream,
        ):
            stream.sendall(bytes(write_greeting(Sender(1, 1), "")))
            for number in range(1000):
                for part in write_message(number, [np.zeros(600_000, np.uint8)], 1 << 20):
                    stream.sendall(part)
                sent.append(number)

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    seen = -1
    while seen != len(sent):
        seen = len(sent)
        time.sleep(0.3)
    assert 1 <= seen < 60, "one message is received, and some are in the buffers of the sockets"
    assert len(hosts.boxes[0]._messages[Sender(1, 1)]) == 1
    assert hosts.boxes[0].take(Sender(1, 1), PATIENCE_SECS).number == 0
    assert hosts.boxes[0].take(Sender(1, 1), PATIENCE_SECS).number == 1
    hosts.close()
    thread.join(PATIENCE_SECS)
    assert not thread.is_alive()


def test_a_connection_without_a_greeting_is_ended_after_a_time(three, monkeypatch):
    monkeypatch.setattr("trainer.host.exchange_service._GREETING_SECS", 0.3)
    began = time.monotonic()
    address = (three.addresses[0].host, three.addresses[0].port)
    with contextlib.suppress(ConnectionError), socket.create_connection(address, PATIENCE_SECS) as stream:
        for byte in GREETING:  # each byte in time, but not the whole
            stream.sendall(bytes([byte]))
            time.sleep(0.05)
        assert stream.recv(1) == b""
    assert time.monotonic() - began < 10
    assert_goes_on(three)


def test_an_attempt_that_is_given_up_ends_a_send(three):
    """The other host takes nothing: its service listens and never reads."""
    over = threading.Event()

    def check():
        if over.is_set():
            raise AttemptOver("the attempt was given up")

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        box = Mailbox()
        addresses = [Address("127.0.0.1", 1), Address("127.0.0.1", deaf.getsockname()[1])]
        exchange = HostExchange(box, 1, 0, addresses, check=check)
        threading.Timer(0.3, over.set).start()
        with pytest.raises(AttemptOver):
            exchange.all_to_all([[np.zeros(1 << 26, np.uint8)]] * 2)
        exchange.close()


def test_mutated_streams_never_crash_the_service(three):
    draw = random.Random(7)
    tokens = (b"\xff" * 8, b"\0" * 8, b'"rank"', b'["float32",2]', b"9" * 30, b"-1", b"{", b"[" * 50, MAGIC)
    sound, answered = GREETING + SOUND, 0
    for number in range(scaled(600)):
        content = mutated(sound, draw, tokens) if number % 10 else draw.randbytes(draw.randrange(200))
        refused = send(three.addresses[0], content)
        answered += refused is not None
        three.boxes[0].begin(2), three.boxes[0].begin(1)
    assert answered > 100
    assert_goes_on(three)


SERVICE = """
import sys, threading
from trainer.flight.addresses import Address
from trainer.host.exchange_service import ExchangeService
from trainer.host.mailbox import Mailbox
with ExchangeService(Address("127.0.0.1", 0), Mailbox(most_bytes=1 << 24), token="secret") as service:
    print(service.address, flush=True)
    threading.Event().wait()
"""


def test_oversized_messages_take_no_memory_of_a_host():
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True) as running:
        try:
            address = Address.parse(running.stdout.readline().strip())
            process = psutil.Process(running.pid)
            before, megabyte = process.memory_info().rss, bytes(1 << 20)
            for begin in (GREETING + described(0, ["uint8", 1 << 29]), bytes(write_greeting(Sender(1, 1), "")),
                          MAGIC + b"\xff\xff\xff\x7f", b"\xff" * 100):  # fmt: skip
                refused = send(address, begin, *[megabyte] * 256)
                # The system discards the error if bytes arrive after the service has ended the stream.
                assert refused is None or re.search("short|token|release", refused.what)
                assert process.memory_info().rss < before + (32 << 20)
            assert running.poll() is None
        finally:
            running.kill()


def test_arrays_that_are_not_flat_are_no_message():
    with pytest.raises(ValueError, match="must be flat"):
        write_message(0, [np.zeros((2, 2))], 1 << 20)
