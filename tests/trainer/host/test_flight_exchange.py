"""Arrays between hosts over real Flight services."""

from __future__ import annotations

import json
import threading

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.support.examples import scaled
from trainer.embedding.exchange import summed
from trainer.errors import AttemptOver, HostLost
from trainer.flight.addresses import Address
from trainer.flight.client import Client, RemoteError
from trainer.host.flight_exchange import ExchangeService, FlightExchange, Mailbox
from transforms.errors import DataError, InputError

LOOPBACK = Address("127.0.0.1", 0)


class Hosts:
    """Services of several hosts in this process."""

    def __init__(self, count, token=""):
        self.boxes = [Mailbox() for _ in range(count)]
        self.services = [ExchangeService(LOOPBACK, box, token=token) for box in self.boxes]
        self.addresses = [service.address for service in self.services]
        self.token = token

    def exchange(self, rank, attempt=1, check=lambda: None, **options):
        return FlightExchange(self.boxes[rank], attempt, rank, self.addresses, token=self.token, check=check, **options)

    def close(self):
        for service in self.services:
            service.shutdown()


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


def put(hosts, command, described, column, schema=None):
    client = Client(hosts.addresses[0], token=hosts.token)
    batch = pa.RecordBatch.from_arrays(
        [column], schema=schema or pa.schema([pa.field("bytes", pa.uint8(), nullable=False)])
    )

    def send(connection, options):
        writer, _ = connection.do_put(flight.FlightDescriptor.for_command(command), batch.schema, options)
        writer.write_with_metadata(batch, described)
        writer.close()

    try:
        client.call(send, timeout_secs=10)
    finally:
        client.close()


SENDER = json.dumps({"attempt": 1, "rank": 1}).encode()
SOUND = json.dumps({"number": 0, "arrays": [["float32", 2]]}).encode()
BYTES = pa.array(range(8), pa.uint8())


@pytest.mark.parametrize(
    ("command", "described", "column", "match"),
    [
        (b"", SOUND, BYTES, "JSON"),
        (b"[]", SOUND, BYTES, "object"),
        (b'{"attempt": -1, "rank": 0}', SOUND, BYTES, "name its sender"),
        (b'{"attempt": 1, "rank": 99999}', SOUND, BYTES, "rank of a host"),
        (SENDER, b"{}", BYTES, "number and arrays"),
        (SENDER, b'{"number": 1, "arrays": [["float32", 2]]}', BYTES, "in order"),
        (SENDER, b'{"number": 0, "arrays": [["object", 2]]}', BYTES, "type and a length"),
        (SENDER, b'{"number": 0, "arrays": [["float32", -2]]}', BYTES, "type and a length"),
        (SENDER, b'{"number": 0, "arrays": [["float32", 3]]}', BYTES, "fit its bytes"),
        (SENDER, b'{"number": 0, "arrays": [["int64", 4611686018427387904]]}', BYTES, "fit its bytes"),
        (SENDER, b'{"number": 0, "arrays": [["float32", 1]]}', pa.array(range(16), pa.uint8()), "fill its bytes"),
    ],
)  # fmt: skip
def test_malformed_messages_are_refused_and_the_service_goes_on(three, command, described, column, match):
    with pytest.raises(RemoteError, match=match):
        put(three, command, described, column)
    assert (
        together(three, lambda exchange: len(exchange.all_to_all([[np.zeros(1, np.float32)]] * 3)), attempt=9)
        == [3] * 3
    )


def test_other_columns_and_tokens_are_refused(three):
    schema = pa.schema([pa.field("bytes", pa.float32())])
    with pytest.raises(RemoteError, match="one column of bytes"):
        put(three, SENDER, SOUND, pa.array([1.0], pa.float32()), schema)
    three.token = "wrong"
    with pytest.raises(InputError, match="token"):
        put(three, SENDER, SOUND, BYTES)
    three.token = "secret"


def test_mutated_descriptions_never_crash_the_service(three):
    rng = np.random.default_rng(5)
    for _ in range(scaled(60)):
        described = bytearray(SOUND)
        for _ in range(rng.integers(1, 4)):
            described[rng.integers(len(described))] = rng.integers(32, 127)
        try:
            put(three, SENDER, bytes(described), BYTES)
        except (RemoteError, DataError):
            continue
        finally:
            three.boxes[0].begin(2), three.boxes[0].begin(1)
    assert (
        together(three, lambda exchange: len(exchange.all_to_all([[np.zeros(1, np.float32)]] * 3)), attempt=9)
        == [3] * 3
    )
