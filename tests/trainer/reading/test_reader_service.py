from __future__ import annotations

import json
import os
import threading

import pytest
from pyarrow import flight

from tests.support.processes import PATIENCE_SECS
from tests.trainer.reading.test_unit_reader import DATA, LAYOUT, events_of, events_of_units, reader_of, unit
from trainer.errors import BadFeature
from trainer.flight.addresses import Address
from trainer.flight.client import Client
from trainer.flight.error_documents import RemoteError, Unreachable
from trainer.reading.packed_units import UnitLayout, unpack_unit
from trainer.reading.reader_service import STATUS, UNIT, ReaderService, fetch_unit
from transforms.errors import DataError

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


def status_of(client):
    (found,) = client.call(lambda c, options: list(c.do_action(STATUS, options)), timeout_secs=SECS)
    return json.loads(found.body.to_pybytes())


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


def test_a_malformed_request_is_refused(service):
    client = Client(service.address)
    for ticket in (b"", b"{}", os.urandom(100), b"[" * 5000, b"x" * (1 << 20)):
        action = flight.Action(UNIT, ticket)
        with pytest.raises(RemoteError, match="JSON object"):
            client.call(lambda c, options, action=action: list(c.do_action(action, options)), timeout_secs=SECS)
    with pytest.raises(RemoteError, match="must be a known one"):
        client.call(lambda c, options: list(c.do_action("halt", options)), timeout_secs=SECS)
    assert fetched(client, unit(0, 5)).rows == 5
    assert status_of(client)["active"] == 0


def test_a_message_above_the_limit_is_refused(service):
    client = Client(service.address, most_bytes=500)
    with pytest.raises(Unreachable) as caught:
        fetched(client, unit(0, 77))
    assert caught.value.allowed == "messages of at most 500 bytes"


def test_a_unit_that_is_not_admitted_is_not_received(service):
    client, sizes = Client(service.address), []
    assert fetch_unit(client, unit(0, 77), timeout_secs=SECS, admit=lambda size: sizes.append(size)) is None
    assert sizes[0] > 77
    assert service.leave(10), "the call ended, although its second message was not received"


@pytest.mark.parametrize(
    "messages", [[], [b"1234"], [(8).to_bytes(8, "little"), b"1234"], [(4).to_bytes(8, "little"), b"1234", b"x"]]
)
def test_an_answer_that_is_not_one_unit_is_refused(messages):
    class Wrong(ReaderService):
        def do_action(self, context, action):
            return iter(messages)

    with (
        Wrong(LOOPBACK, reader_of()) as service,
        pytest.raises(DataError, match=r"a whole unit|length that was announced"),
    ):
        fetched(Client(service.address), unit(0, 5))


def test_a_service_that_ended_is_unreachable(service):
    client = Client(service.address)
    fetched(client, unit(0, 5))
    service.shutdown()
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
