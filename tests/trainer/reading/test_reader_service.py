from __future__ import annotations

import json
import os

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.trainer.reading.test_unit_reader import DATA, reader_of, unit
from trainer.errors import BadFeature
from trainer.flight.addresses import Address
from trainer.flight.client import Client
from trainer.flight.error_documents import RemoteError, Unreachable
from trainer.reading.reader_service import STATUS, ReaderService, fetch_unit
from transforms.errors import DataError

LOOPBACK = Address("127.0.0.1", 0)
SECS = 30.0


@pytest.fixture
def service():
    with ReaderService(LOOPBACK, reader_of()) as running:
        yield running


def test_a_unit_arrives_as_it_is_stored(service):
    client = Client(service.address)
    found = fetch_unit(client, unit(5, 60), timeout_secs=SECS)
    assert found.equals(DATA.tables["hour=00/1.parquet"].slice(5, 60))
    (status,) = client.call(lambda c, options: list(c.do_action(STATUS, options)), timeout_secs=SECS)
    counts = json.loads(status.body.to_pybytes())
    assert (counts["units"], counts["rows"]) == (1, 60)


def test_an_error_of_a_reader_is_raised_with_its_classes():
    def read(_solution, fragment):
        raise BadFeature("a fragment must have a column for every input", where="fragment x", value={"a": 1})

    with ReaderService(LOOPBACK, reader_of(read)) as service, pytest.raises(RemoteError) as caught:
        fetch_unit(Client(service.address), unit(0, 5), timeout_secs=SECS)
    error = caught.value
    assert error.kinds[:4] == ("BadFeature", "DataError", "HeadraceError", "Exception")
    assert (error.what, error.value) == ("a fragment must have a column for every input", "{'a': 1}")
    assert error.where == f"{service.address}: fragment x"


def test_a_malformed_ticket_is_refused(service):
    client = Client(service.address)
    for ticket in (b"", b"{}", os.urandom(100), b"[" * 5000, b"x" * (1 << 20)):
        with pytest.raises(RemoteError, match="JSON object"):
            client.call(lambda c, options, ticket=ticket: c.do_get(flight.Ticket(ticket), options), timeout_secs=SECS)
    with pytest.raises(RemoteError, match="must be a known one"):
        client.call(lambda c, options: list(c.do_action("halt", options)), timeout_secs=SECS)
    assert fetch_unit(client, unit(0, 5), timeout_secs=SECS).num_rows == 5


def test_a_message_above_the_limit_is_refused(service):
    client = Client(service.address, most_bytes=1000)
    with pytest.raises(Unreachable) as caught:
        fetch_unit(client, unit(0, 77), timeout_secs=SECS)
    assert caught.value.allowed == "messages of at most 1,000 bytes"


def test_more_events_than_were_asked_for_are_refused():
    class Generous(ReaderService):
        def _unit(self, ticket):
            return pa.table({"x": range(100)})

    with Generous(LOOPBACK, reader_of()) as service, pytest.raises(DataError, match="more events than were asked"):
        fetch_unit(Client(service.address), unit(0, 5), timeout_secs=SECS)


def test_a_service_that_ended_is_unreachable(service):
    client = Client(service.address)
    fetch_unit(client, unit(0, 5), timeout_secs=SECS)
    service.shutdown()
    with pytest.raises(Unreachable):
        fetch_unit(client, unit(0, 5), timeout_secs=SECS)
