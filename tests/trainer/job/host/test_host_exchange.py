"""Arrays between hosts over real sockets."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import psutil
import pytest

from benchmarks.support.whole_vectors import summed
from tests.conftest import ROOT
from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.support.processes import PATIENCE_SECS
from trainer.errors import AttemptOver, ConfigError, HostLost
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host_exchange import HostExchange
from trainer.job.host.host_messages import HostFrame, HostGreeting, Sender, write_greeting, write_message
from trainer.job.host.mailbox import Mailbox
from trainer.job.host.sent_stream import StreamOptions
from trainer.job.launch.chaos.links import Links
from trainer.job.launch.chaos.wire_damage import DamageKind, DamagePoint, DamageSettings, Direction, random_damage
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.error_documents import from_bytes
from trainer.wire.frames import HEADER_BYTES, FrameHeader, WireProtocol, check_body, checksum_of, read_frame_header

LOOPBACK = Address("127.0.0.1", 0)
_CUT_EVERY_SECS = 0.05


class Hosts:
    """Services of several hosts in this process."""

    def __init__(self, count, token="", stall_secs=5.0, **options):
        self.boxes = [Mailbox(**options) for _ in range(count)]
        self.services = [ExchangeService(LOOPBACK, box, token=token, stall_secs=stall_secs) for box in self.boxes]
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
    results, errors = outcomes(hosts, work, **options)
    if errors:
        raise errors[0]
    return results


def outcomes(hosts, work, *, finishes=True, **options):
    """The results of ``work(exchange)`` on all hosts, by rank, and their errors; ``finishes``: as a host does before the end of its attempt."""
    results, errors = [None] * len(hosts.addresses), []

    def run(rank):
        exchange = hosts.exchange(rank, **options)
        try:
            results[rank] = work(exchange)
            if finishes:
                exchange.finish()
        except Exception as error:
            errors.append(error)
        finally:
            exchange.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, errors


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


def test_members_of_a_channel_exchange_by_their_places():
    """All hosts at once, in two groups on the same channel; senders keep their rank among all hosts."""
    hosts, groups = Hosts(4), ((0, 2), (3, 1))
    received = [None] * 4

    def work(rank):
        members = groups[rank % 2]
        exchange = hosts.exchange(rank, channel=6, members=members)
        assert (exchange.rank, exchange.hosts) == (members.index(rank), 2)
        found = exchange.all_to_all([[np.array([rank, to])] for to in members])
        received[rank] = [arrays[0].tolist() for arrays in found]
        exchange.finish()
        exchange.close()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hosts.close()
    assert received == [[[sender, rank] for sender in groups[rank % 2]] for rank in range(4)]


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

    with pytest.raises(HostLost, match=r"left before the end|must take"):
        together(three, work, finishes=False)


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


def described(*arrays, number=0, body=b"", flags=None, stated=None):
    """A message with this description; ``flags`` and ``stated``: what its header says of the description and the arrays."""
    content = json.dumps(arrays).encode()
    return MESSAGE, content + body, number, len(content) if flags is None else flags, stated


def greeted(body, number=0):
    return HostFrame.GREETING, body, number, 0, None


MESSAGE = HostFrame.MESSAGE


def framed(*frames, first=0, session=7):
    """The bytes of frames: each its kind, body, number, flags, and the length of the body that it states."""
    found = b""
    for sequence, (kind, body, number, flags, stated) in enumerate(frames, first):
        length = len(body) if stated is None else stated
        found += FrameHeader(WireProtocol.HOSTS, kind, length, checksum_of([body]), session, sequence, number, 0, flags).to_bytes() + body  # fmt: skip
    return found


def answers(content):
    """The frames that a service has sent."""
    at, found = 0, []
    while at < len(content):
        header = read_frame_header(content[at : at + HEADER_BYTES], WireProtocol.HOSTS)
        body = content[at + HEADER_BYTES : at + HEADER_BYTES + header.body_bytes]
        check_body(header, [body])
        at += HEADER_BYTES + header.body_bytes
        found.append((header, body))
    return found


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
    errors = [body for header, body in answers(bytes(answer)) if header.kind == HostFrame.ERROR]
    assert len(errors) <= 1, "there is one error"
    return from_bytes(errors[0], str(address)) if errors else None


def assert_goes_on(hosts):
    assert (
        together(hosts, lambda exchange: len(exchange.all_to_all([[np.zeros(1, np.float32)]] * 3)), attempt=9)
        == [3] * 3
    )


def hello(token="secret", origin=5):
    return greeted(write_greeting(HostGreeting(Sender(1, 1), token, origin)))


GREETING = hello()
SOUND = described(["float32", 2], body=bytes(8))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" + bytes(99), "as it was sent"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(99), "as it was sent"),
        (framed((HostFrame.GREETING, b"", 0, 0, 1 << 20)), "must be its greeting"),
        (framed(SOUND), "must be its greeting"),
        (framed(greeted(b"")), "JSON"),
        (framed(greeted(b"[]")), "must be a JSON object"),
        (framed(greeted(b"[" * 9000)), "JSON"),
        (framed(greeted(b'{"attempt": 1, "rank": 1}')), "name its sender"),
        (framed(greeted(b'{"attempt": -1, "rank": 0, "channel": 0, "origin": 5, "token": "secret"}')), "name its sender"),
        (framed(greeted(b'{"attempt": true, "rank": 0, "channel": 0, "origin": 5, "token": "secret"}')), "name its sender"),
        (framed(greeted(b'{"attempt": 1, "rank": 99999, "channel": 0, "origin": 5, "token": "secret"}')), "rank of a host"),
        (framed(greeted(b'{"attempt": 1, "rank": 1, "channel": 16, "origin": 5, "token": "secret"}')), "channel of a stream"),
        (framed(greeted(b'{"attempt": 1, "rank": 1, "channel": 0, "token": "secret"}')), "name its sender"),
        (framed(greeted(b'{"attempt": 1, "rank": 1, "channel": 0, "origin": 5, "token": "\xc3\xa9"}')), "token must be that of the job"),
        (framed(greeted(b'{"attempt": 1, "rank": 1, "channel": 0, "origin": 5, "token": "\\ud800"}')), "token must be that of the job"),
        (framed(hello("")), "token must be that of the job"),
        (framed(hello("secret1")), "token must be that of the job"),
        (framed(greeted(GREETING[1], number=1)), "continue after its last message"),
        (framed(GREETING, described(flags=1 << 20)), "description of a host must be short"),
        (framed(GREETING, described(flags=3)), "description of a host must be short"),
        (framed(GREETING, (MESSAGE, b"{}", 0, 2, None)), "list of its arrays"),
        (framed(GREETING, (MESSAGE, b"7", 0, 1, None)), "list of its arrays"),
        (framed(GREETING, (MESSAGE, b"{", 0, 1, None)), "JSON"),
        (framed(GREETING, described(*[["uint8", 1]] * 65)), "list of its arrays"),
        (framed(GREETING, described(["float32", 2], body=bytes(8), number=1)), "in order"),
        (framed(GREETING, SOUND, SOUND), "in order"),
        (framed(GREETING, described(["object", 2])), "type and a length"),
        (framed(GREETING, described([["float32"], 2])), "type and a length"),
        (framed(GREETING, described(["float32", -2])), "type and a length"),
        (framed(GREETING, described(["float32", 1.5])), "type and a length"),
        (framed(GREETING, described(["float32", 3], body=bytes(8))), "the length of its arrays"),
        (framed(GREETING, described(["int64", 2**62])), "the length of its arrays"),
        (framed(GREETING, described(["uint8", 1 << 31], stated=1 << 31)), "must be short"),
        (framed(GREETING, described(["uint8", 1 << 31], stated=(1 << 64) - 1)), "must be short"),
        (framed(GREETING, (HostFrame.ARRIVED, b"", 0, 0, None)), "must send messages"),
        (framed(GREETING) + framed(SOUND), "as it was sent"),
        (framed(GREETING) + framed(SOUND, first=2), "as it was sent"),
        (framed(GREETING) + framed(SOUND, first=1, session=8), "as it was sent"),
        (framed(GREETING) + framed(SOUND, first=1)[:-1] + b"\1", "as it was sent"),
    ],
)  # fmt: skip
def test_malformed_streams_are_refused_with_one_error_and_the_service_goes_on(three, content, match):
    refused = send(three.addresses[0], content)
    assert refused is not None
    assert re.search(match, refused.what), refused.what
    assert len(str(refused)) < 2000
    assert_goes_on(three)


@pytest.mark.parametrize("cut", [5, HEADER_BYTES, HEADER_BYTES + 3])
def test_a_stream_that_ends_within_a_frame_harms_nothing(three, cut):
    assert send(three.addresses[0], framed(GREETING)[:cut]) is None
    assert send(three.addresses[0], framed(GREETING) + framed(SOUND, first=1)[:cut]) is None
    assert_goes_on(three)


def test_a_stream_of_another_origin_is_refused(three):
    """Two processes of one name: the second one has other messages of the same numbers."""
    assert send(three.addresses[0], framed(GREETING, SOUND)) is None
    assert "one stream in an attempt" in send(three.addresses[0], framed(hello(origin=6), SOUND)).what
    assert_goes_on(three)


def test_a_stream_goes_on_over_another_connection_with_what_has_not_arrived(three):
    messages = [described(["int64", 1], body=np.array([k], np.int64).tobytes(), number=k) for k in range(4)]
    again = greeted(GREETING[1], number=1)
    assert send(three.addresses[0], framed(GREETING, *messages[:2])) is None
    assert send(three.addresses[0], framed(again, *messages[2:])) is None
    taken = [three.boxes[0].take(Sender(1, 1), PATIENCE_SECS) for _ in range(4)]
    assert [(one.number, int(one.arrays[0][0])) for one in taken] == [(k, k) for k in range(4)]
    assert "in order" in send(three.addresses[0], framed(again, messages[1])).what
    assert_goes_on(three)


def test_an_older_attempt_is_refused(three):
    three.boxes[0].begin(2)
    assert "newest" in send(three.addresses[0], framed(GREETING, SOUND)).what


def test_a_sender_that_is_refused_learns_why(three):
    three.token = "wrong"
    for size in (1, 1 << 25):
        exchange = three.exchange(0)
        with pytest.raises(HostLost, match="must take what is sent to it") as caught:
            exchange.all_to_all([[np.zeros(size, np.uint8)]] * 3)
        assert "token must be that of the job" in caught.value.value
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
            stream.sendall(framed(hello("")))
            body = bytes(600_000)
            for number in range(1000):
                stream.sendall(framed(described(["uint8", len(body)], body=body, number=number), first=1 + number))
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
    monkeypatch.setattr("trainer.wire.framed_service._GREETING_SECS", 0.3)
    began = time.monotonic()
    address = (three.addresses[0].host, three.addresses[0].port)
    with contextlib.suppress(ConnectionError), socket.create_connection(address, PATIENCE_SECS) as stream:
        for byte in framed(GREETING):  # each byte in time, but not the whole
            stream.sendall(bytes([byte]))
            time.sleep(0.05)
        while stream.recv(1 << 12):
            continue  # the error
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
    tokens = (b"\xff" * 8, b"\0" * 8, b'"rank"', b'["float32",2]', b"9" * 30, b"-1", b"{", b"[" * 50, b"HRFR")
    answered = 0
    for number in range(scaled(600)):
        content = draw.randbytes(draw.randrange(200))
        if number % 3:  # other bodies with right checksums
            content = framed(*(
                (kind, mutated(body, draw, tokens), *rest) if draw.random() < 0.7 else (kind, body, *rest)
                for kind, body, *rest in (GREETING, SOUND)
            ))  # fmt: skip
        elif number % 2:
            content = mutated(framed(GREETING, SOUND), draw, tokens)
        refused = send(three.addresses[0], content)
        answered += refused is not None
        three.boxes[0].begin(2), three.boxes[0].begin(1)
    assert answered > 100
    assert_goes_on(three)


SERVICE = """
import sys, threading
from trainer.wire.flight.addresses import Address
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.mailbox import Mailbox
from trainer.job.host.sent_stream import StreamOptions
from trainer.job.launch.chaos.links import Links
from trainer.job.launch.chaos.wire_damage import DamageKind, DamagePoint, DamageSettings, Direction, random_damage
with ExchangeService(Address("127.0.0.1", 0), Mailbox(most_bytes=1 << 24), token="secret") as service:
    print(service.address, flush=True)
    threading.Event().wait()
"""


@pytest.mark.medium
def test_oversized_messages_take_no_memory_of_a_host():
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        try:
            address = Address.parse(running.stdout.readline().strip())
            process = psutil.Process(running.pid)
            before, megabyte = process.memory_info().rss, bytes(1 << 20)
            for begin in (framed(GREETING, described(["uint8", 1 << 29], stated=1 << 29)), framed(hello("")),
                          framed((HostFrame.GREETING, b"", 0, 0, 1 << 30)), b"\xff" * 100):  # fmt: skip
                refused = send(address, begin, *[megabyte] * 256)
                # The system discards the error if bytes arrive after the service has ended the stream.
                assert refused is None or re.search("short|token|greet|as it was sent", refused.what)
                assert process.memory_info().rss < before + (32 << 20)
            assert running.poll() is None
        finally:
            running.kill()


def test_arrays_that_are_not_flat_are_no_message():
    with pytest.raises(ValueError, match="must be flat"):
        write_message([np.zeros((2, 2))], 1 << 20)


@pytest.fixture
def linked():
    """Three hosts whose connections go through links, and the links by rank of the receiver."""
    hosts = Hosts(3, token="secret", stall_secs=0.3)
    with Links() as links:
        each = [links.open(partial(_same, address)) for address in hosts.addresses]
        hosts.addresses = [link.address for link in each]
        yield hosts, links, each
    hosts.close()


def _same(address):
    return address


def exchanged(steps, sizes=(1, 700, 90_000)):
    """Work of many steps whose results depend on every byte and on the order of messages."""

    def work(exchange):
        draw, total = np.random.default_rng(exchange.rank), np.zeros(max(sizes))
        for step in range(steps):
            parts = [[draw.integers(-9, 9, sizes[step % len(sizes)]).astype(np.float32)] for _ in range(exchange.hosts)]
            for arrays in exchange.all_to_all(parts):
                total[: len(arrays[0])] = total[: len(arrays[0])] * 3 % 1009 + arrays[0]
        return total.tolist(), exchange.reconnections

    return work


@pytest.mark.medium
@pytest.mark.parametrize("kind", [*DamageKind, None])
def test_damaged_connections_change_no_bit_and_lose_no_message(linked, kind):
    """Each kind alone, and all together, in both directions of all connections."""
    hosts, links, each = linked
    steps = scaled(60)
    expected = [found for found, _ in together(hosts, exchanged(steps), attempt=1)]
    kinds = tuple(DamageKind) if kind is None else (kind,)
    for seed, link in enumerate(each):
        links.damage(link, random_damage(DamageSettings(seed, mean_bytes=1_000_000, delay_secs=0.01, kinds=kinds)))
    options = StreamOptions(lambda: None, stall_secs=0.3)
    results = together(hosts, exchanged(steps), attempt=2, options=options)
    assert [found for found, _ in results] == expected
    damages = sum(sum(link.damages.values()) for link in each)
    assert damages > 3
    if kind is not DamageKind.DELAY:
        assert sum(count for _, count in results) > 0


@pytest.mark.medium
@pytest.mark.parametrize("direction", list(Direction))
def test_a_flip_of_each_part_of_a_message_or_its_answer_is_mended(linked, direction):
    """A grid of positions: the greeting, headers, descriptions, arrays; one flip in the first connection to each host."""
    hosts, links, each = linked
    expected = [found for found, _ in together(hosts, exchanged(3, (40,)), attempt=1)]
    for attempt, position in enumerate(range(0, 900 if direction is Direction.REQUESTS else 270, 23), 2):
        for link in each:
            first = link.connections

            def draw(connection, to, first=first, position=position):
                is_first = connection == first and to is direction
                return iter([DamagePoint(position, DamageKind.FLIP, bit=position % 8)] if is_first else [])

            links.damage(link, draw)
        assert [found for found, _ in together(hosts, exchanged(3, (40,)), attempt=attempt)] == expected


@pytest.mark.slow
def test_connections_that_are_cut_are_made_again(linked):
    hosts, links, each = linked
    expected = [found for found, _ in together(hosts, exchanged(200), attempt=1)]
    is_over = threading.Event()

    def cut():
        for number in itertools.count():
            if is_over.wait(_CUT_EVERY_SECS):
                return
            links.cut(each[number % 3], is_reset=True)
            links.heal(each[number % 3])

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        results = together(hosts, exchanged(200), attempt=2)
    finally:
        is_over.set()
        cutting.join()
    assert [found for found, _ in results] == expected


def test_damage_without_end_is_one_error_with_both_ends(linked):
    hosts, links, each = linked

    def flip_all(connection, direction):
        return (DamagePoint(at, DamageKind.FLIP) for at in itertools.count(0, 50))

    for link in each:
        links.damage(link, flip_all)
    _, errors = outcomes(hosts, exchanged(3), patience_secs=1.0)
    assert errors
    assert all(isinstance(one, HostLost) for one in errors), "some wait for a host that has ended"
    found = next(one for one in errors if "deliver bytes as they were sent" in str(one))
    assert re.search(r"from rank \d, attempt 1, channel 0 on .* to rank \d, .* at 127.0.0.1:\d+", found.where)
    assert "damaged connections in 1 s" in str(found.value)


def test_a_stream_that_does_not_return_is_that_of_a_lost_host():
    now = [0.0]
    box = Mailbox(return_secs=5.0, clock=lambda: now[0])
    arrival = box.open(Sender(0, 1), 3)
    box.end(arrival, is_last=False)
    now[0] = 4.0
    assert box.take(Sender(0, 1), 0.0) is None
    again = box.open(Sender(0, 1), 3)
    box.end(arrival, is_last=False)  # the earlier one, late
    now[0] = 60.0
    assert box.take(Sender(0, 1), 0.0) is None
    box.end(again, is_last=False)
    now[0] = 66.0
    with pytest.raises(HostLost, match="left before the end"):
        box.take(Sender(0, 1), 0.0)
