"""A live embedding worker among bad clients: tokens, requests out of order, limits, and mutated streams."""

from __future__ import annotations

from contextlib import contextmanager
from random import Random

import numpy as np
import pytest

from tests.support.embedding_workers import ThreadWorker, engine_through
from tests.support.examples import scaled
from tests.support.frames import Frame, framed
from tests.support.parameter_servers import thread_servers
from tests.trainer.servers.test_service import (
    client_threads,
    greeting,
    request,
    resident_bytes,
    throw,
    thrown,
    wait_until,
)
from tests.trainer.tables.routes.servers.random_batches import FEATURES, gradients_of, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ConfigError
from trainer.servers.client_updates import Greeting
from trainer.servers.embedding_worker import EmbeddingWorker
from trainer.servers.server_status import read_status
from trainer.servers.service import ServiceLimits
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, TcpLink
from trainer.tables import CpuEngine
from trainer.tables.routes.servers.frames import OPENED_MEMBERS, Header, Kind, read_document, write_document
from trainer.tables.routes.servers.server_link import Request
from trainer.tables.routes.workers import batch_messages as messages
from trainer.tables.routes.workers.table_documents import WorkerTables
from trainer.wire.flight.error_documents import RemoteError
from transforms.errors import DataError

SEED = 3
DOCUMENT = write_document(WorkerTables(FEATURES, SEED).to_document())


@contextmanager
def working(count: int = 1, **settings):
    """A worker, and its servers."""
    with thread_servers(count) as servers:
        worker = ThreadWorker([one.address for one in servers], **settings)
        try:
            yield worker, servers
        finally:
            worker.close()


def test_a_client_must_have_the_token():
    with working(token="secret") as (worker, _):
        for wrong in ("", "secrets"):
            with pytest.raises(RemoteError, match="token must be that"):
                TcpLink(worker.address, LinkOptions(Greeting(wrong)))
        assert read_status(worker.address, token="secret").fetches == 0


def test_snapshots_and_loads_are_asked_of_servers():
    worker = EmbeddingWorker(lambda greeting, check, named: [])
    for own in (Greeting(role=SessionRole.SAVES), Greeting(role=SessionRole.LOADS)):
        with pytest.raises(ConfigError, match="takes no snapshots"):
            worker.begin(own)


def batch_body(seed: int = 0) -> bytes:
    return messages.write_ids(random_batch(FEATURES, seed), encoded=False)


def update_body(batch: int, seed: int = 0, tables: int = 8) -> bytes:
    own = random_batch(FEATURES, seed)
    width = sum(one.width for one in FEATURES)
    values = messages.encode_values(gradients_of(own, width, seed).reshape(-1), 0)
    return b"".join(messages.write_gradients(batch, np.ones(tables, np.float32), values))


@pytest.mark.parametrize(
    ("is_open", "asked", "problem"),
    [
        (False, Request(Kind.FETCH, [batch_body()], number=1), "opened first"),
        (False, Request(Kind.FLUSH), "opened first"),
        (False, Request(Kind.OPEN, [b"{}"]), "its members"),
        (True, Request(Kind.UPDATE, [update_body(7)], number=1), "before its gradients"),
        (True, Request(Kind.UPDATE, [b"x"], number=1), "must name its batch"),
        (True, Request(Kind.FETCH, [batch_body()], number=1, flags=1), "flags"),
        (True, Request(Kind.FETCH, [batch_body()[:-1]], number=1), "as long as"),
        (True, Request(Kind.READ_STATE), "that its session may make"),
        (True, Request(Kind.BEGIN_LOAD), "that its session may make"),
        (True, Request(Kind.REACH_SERVERS, [b"{}"]), "that its session may make"),
    ],
)
def test_requests_out_of_order_are_refused(is_open, asked, problem):
    with working() as (worker, servers):
        link = TcpLink(worker.address, LinkOptions())
        if is_open:
            link.send(Request(Kind.OPEN, [DOCUMENT]))
            link.receive()
        link.send(asked)
        with pytest.raises(RemoteError, match=problem):
            link.receive()
        link.send(Request(Kind.STATUS))
        assert link.receive().header.kind == Kind.DOCUMENT
        assert servers[0].rows.status().updates == 0
        link.close()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"addresses":["a"],"token":"","is_encrypted":false}'])
def test_servers_that_cannot_be_named_are_one_error(body):
    with working() as (worker, _):
        link = TcpLink(worker.address, LinkOptions(Greeting(role=SessionRole.WATCHES)))
        link.send(Request(Kind.REACH_SERVERS, [body]))
        with pytest.raises(RemoteError):
            link.receive()
        link.close()


def test_a_session_that_ends_or_opens_again_ends_its_connections_to_the_servers():
    wait_until(lambda: client_threads() == 0)  # those of the tests before
    with thread_servers(2) as servers:
        worker = EmbeddingWorker(lambda greeting, check, named: [one.connect(greeting) for one in servers])
        unopened = worker.begin(Greeting())
        assert read_document(b"".join(worker.opened(unopened).body), OPENED_MEMBERS)["generation"] == 0
        worker.end(unopened)
        assert client_threads() == 0
        session = worker.begin(Greeting())
        for _ in range(2):
            worker.handle(session, Header(Kind.OPEN), bytearray(DOCUMENT))
            wait_until(lambda: client_threads() == len(servers))
        assert read_document(b"".join(worker.opened(session).body), OPENED_MEMBERS)["generation"] > 0
        worker.end(session)
        wait_until(lambda: client_threads() == 0)


def test_the_ids_of_a_client_stay_within_their_limits():
    """The oldest batch makes place for a new one; more bytes than the limit are refused."""
    document, body = bytearray(DOCUMENT), bytearray(batch_body())
    with thread_servers(1) as servers:
        worker = EmbeddingWorker(
            lambda greeting, check, named: [servers[0].connect(greeting)], most_kept_bytes=3 * len(body)
        )
        session = worker.begin(Greeting())
        worker.handle(session, Header(Kind.OPEN), document)
        for number in range(5):
            worker.handle(session, Header(Kind.KEEP, number=number), body)
        for number, is_kept in ((2, False), (3, True), (4, True)):
            update = Header(Kind.UPDATE, number=1 if number == 3 else 2)
            content = bytearray(update_body(number, tables=len(FEATURES) - 1))
            if is_kept:
                worker.handle(session, update, content)
            else:
                with pytest.raises(DataError, match="before its gradients"):
                    worker.handle(session, update, content)
        small = EmbeddingWorker(lambda greeting, check, named: [servers[0].connect(greeting)], most_kept_bytes=100)
        other = small.begin(Greeting(attempt=1))
        small.handle(other, Header(Kind.OPEN), document)
        with pytest.raises(DataError, match="must fit in the worker's message memory"):
            small.handle(other, Header(Kind.KEEP), body)
        wide = EmbeddingWorker(lambda greeting, check, named: [servers[0].connect(greeting)], most_answer_bytes=100)
        last = wide.begin(Greeting(attempt=2))
        wide.handle(last, Header(Kind.OPEN), document)
        with pytest.raises(DataError, match="activations of a batch must fit in one answer"):
            wide.handle(last, Header(Kind.FETCH), body)
        for one, own in ((worker, session), (small, other), (wide, last)):
            one.end(own)


def good_streams() -> list[list[Frame]]:
    opened = request(Kind.OPEN, DOCUMENT)
    encoded = messages.write_ids(random_batch(FEATURES, 0), encoded=True)
    tables = len({one.table.name for one in FEATURES})
    return [
        [opened, request(Kind.FETCH, batch_body(), number=1), request(Kind.UPDATE, update_body(1, tables=tables), number=1)],
        [opened, request(Kind.KEEP, encoded, number=3, flags=messages.ENCODED_IDS), request(Kind.FLUSH), request(Kind.STATUS)],
    ]  # fmt: skip


@pytest.mark.slow
def test_mutated_streams_beside_an_engine_change_none_of_its_bits(caplog):
    """Bad clients of another place, or that watch; those of the same place would take the engine's session."""
    caplog.set_level("ERROR")
    limits = ServiceLimits(most_bytes=1 << 20, message_bytes=8 << 20)
    with working(limits=limits) as (worker, servers):
        own = Greeting(client=0, clients=2)
        engine = engine_through(FEATURES, servers, worker, seed=SEED, greeting=own, staleness=None)
        alone = CpuEngine(FEATURES, seed=SEED)
        hellos = [
            greeting(role="watches"),
            greeting(client=5, clients=9),
        ]  # the servers refuse other numbers of clients
        for one in good_streams():
            throw(worker, framed([hellos[0], *one]))
        assert train(engine, [1000]) == train(alone, [1000])  # compiles what was not
        before = resident_bytes()
        for seed in range(scaled(1000)):
            random = Random(seed)
            throw(worker, thrown(random, random.choice(hellos), random.choice(good_streams())))
            if seed % 20 == 0:
                step = seed // 20
                assert train(engine, [step]) == train(alone, [step])
        assert resident_bytes() - before < 200 << 20
        assert_same(engine.state(), alone.state())
        engine.close()
        wait_until(lambda: client_threads() == 0)
        assert worker.service._budget.used_bytes == 0
        assert [one.getMessage() for one in caplog.records if one.exc_info] == []
