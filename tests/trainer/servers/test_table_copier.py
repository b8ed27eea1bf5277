"""Servers that take rows from other servers: what passes through training, and other servers that are wrong, hostile or away."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.support.examples import scaled
from tests.support.parameter_servers import ThreadServer, sources_of, thread_servers
from tests.trainer.servers.requests import held
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from tests.trainer.tables.table_states import assert_same
from trainer.errors import ConfigError, ServerLost
from trainer.servers.client_updates import Greeting
from trainer.servers.direct_link import DirectLink
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads import table_copier
from trainer.servers.loads.copy_orders import CopyOrder
from trainer.servers.loads.live_server import LivePart, LiveServer
from trainer.servers.loads.named_links import NamedLinks
from trainer.servers.loads.owned_rows import OwnedRows
from trainer.servers.moves.table_copy import TableCopy
from trainer.servers.row_server import RowServer
from trainer.servers.session_roles import SessionRole
from trainer.tables import SGD, FeatureSpec, TableSpec
from trainer.tables.engine import RowValues
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.remote_tables import RemoteTables
from trainer.tables.routes.servers.row_messages import RowSpread
from trainer.tables.routes.servers.server_link import Answer, Request
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.wire.flight.error_documents import RemoteError
from transforms.errors import HeadraceError

SEED = 3
TABLE = TableSpec("large", 20_000, 16, SGD(0.1), "sum")
LARGE = (FeatureSpec("large", TABLE),)


def engine_on(servers, features=FEATURES, attempt=1, **options) -> PsEngine:
    connects = [one.connect(Greeting(attempt=attempt)) for one in servers]
    return PsEngine(features, seed=SEED, servers=connects, threads=1, **options)


def copied(source: PsEngine, target: PsEngine) -> None:
    copy = TableCopy(source, target, sources_of(source))
    copy.begin()
    copy.copy_all()
    copy.copy_whole()
    copy.end()
    copy.close()


@pytest.mark.parametrize("is_hashed", [False, True])
def test_no_row_passes_through_training(is_hashed):
    """A million values are copied; training sends some orders."""
    limits = {"large": TableLimits(TABLE.vocabulary_size)} if is_hashed else None
    with thread_servers(5) as servers:
        source, target = engine_on(servers[:2], LARGE, hashed=limits), engine_on(servers[2:], LARGE, 2, hashed=limits)
        train(source, range(30), LARGE, events=500)
        before = [one.wire_bytes + one.saving_bytes for one in (*source.servers, *target.servers)]
        copied(source, target)
        used_bytes = sum(one.wire_bytes + one.saving_bytes for one in (*source.servers, *target.servers)) - sum(before)
        state, found = source.state()["large"], target.state()["large"]
        assert (found.rows.tobytes(), found.weights.tobytes()) == (state.rows.tobytes(), state.weights.tobytes())
        assert used_bytes < 20_000 < state.weights.nbytes / 10
        for one in (source, target):
            one.close()


def test_servers_read_their_share_alone():
    """Of two servers three others take a third each: the rows of a table cross the network once."""
    with thread_servers(5) as servers:
        source, target = engine_on(servers[:2], LARGE), engine_on(servers[2:], LARGE, 2)
        train(source, range(30), LARGE, events=500)
        copied(source, target)
        rows = len(source.state()["large"].rows)
        given = [one.rows.status().rows for one in servers[2:]]
        assert sum(given) == TABLE.vocabulary_size
        assert rows > 5000
        for k, one in enumerate(servers[2:]):
            with closing(live(one, 2)) as server:
                found = server.read_now(0, RowSpread(0, given[k]))
                assert set((found.rows % 3).tolist()) == {k}
        for one in (source, target):
            one.close()


def live(server: ThreadServer, attempt: int) -> LiveServer:
    return LiveServer(server.connect(Greeting(attempt=attempt, role=SessionRole.COPIES))(False))


def order_of(source: PsEngine, target: PsEngine) -> CopyOrder:
    parts = source.parts.parts
    gives = tuple(tuple(p for p, one in enumerate(parts) if one.gives(k)) for k in range(source.parts.cores))
    rows = tuple(one.row_count(0) for one in target.parts.parts)
    return CopyOrder(sources_of(source), gives, rows, 0, len(target.servers))


def test_a_source_that_does_not_answer_is_an_error_of_the_copy():
    with closing(ThreadServer(links=NamedLinks(patience_secs=0.2))) as server:
        gone = ThreadServer()
        source, target = engine_on([gone]), engine_on([server])
        gone.close()
        target.servers[0].begin_load()
        with pytest.raises(ServerLost, match="must answer"):
            target.servers[0].ask_loading(Kind.COPY_TABLES, order_of(source, target).to_document())
        for one in (source, target):
            one.close()


def test_sources_with_other_tables_are_refused():
    other = [replace(one, table=replace(one.table, optimizer=SGD(0.1))) for one in FEATURES]
    with thread_servers(4) as servers:
        source, target = engine_on(servers[:1]), engine_on(servers[1:2])
        changed, large = engine_on(servers[2:3], other), engine_on(servers[3:], LARGE)
        cases = {
            "same tables": replace(order_of(changed, target), sources=sources_of(changed)),
            "all columns": replace(order_of(changed, target), sources=sources_of(large)),
            "into the tables": replace(order_of(source, target), rows=(1,)),
            "at most": replace(order_of(source, target), rows=(1 << 50, *order_of(source, target).rows[1:])),
        }
        for match, order in cases.items():
            target.servers[0].begin_load()
            with pytest.raises(RemoteError, match=match) as caught:
                target.servers[0].ask_loading(Kind.COPY_TABLES, order.to_document())
            assert ConfigError.__name__ in caught.value.kinds
        for one in (source, target, changed, large):
            one.close()


def test_rows_of_no_order_are_refused():
    with thread_servers(1) as servers:
        target = engine_on(servers)
        target.servers[0].begin_load()
        with pytest.raises(ServerLost, match="order to copy"):
            target.servers[0].copy_rows(0, np.arange(2))
        target.servers[0].begin_load()
        with pytest.raises(ServerLost, match="order to copy"):
            target.servers[0].ask_loading(Kind.COPY_TABLES, None)
        target.close()


def test_a_copy_goes_on_without_its_order(monkeypatch):
    """Each request takes a window; the order, which names all parts of all servers, is sent once."""
    monkeypatch.setattr(table_copier, "_REQUEST_SECS", 0.0)
    with thread_servers(3) as servers:
        source, target = engine_on(servers[:1]), engine_on(servers[1:])
        train(source, range(5))
        asked, ask = list[bool](), RemoteTables.ask_loading
        monkeypatch.setattr(RemoteTables, "ask_loading", lambda self, kind, document: (asked.append(document is not None), ask(self, kind, document))[1])  # fmt: skip
        copied(source, target)
        assert_same(target.state(), source.state())
        assert sum(asked) == 2 < len(asked)
        for one in (source, target):
            one.close()


def test_a_repeated_request_of_a_copy_is_made_once():
    """An answer that was lost: what was done is said again."""
    with thread_servers(2) as servers:
        source, target = engine_on(servers[:1]), engine_on(servers[1:])
        train(source, range(5))
        (remote,) = target.servers
        remote.begin_load()
        document = order_of(source, target).to_document()
        first = remote.ask_loading(Kind.COPY_TABLES, document)
        remote._loads -= 1
        assert remote.ask_loading(Kind.COPY_TABLES, document) == first
        rows = source.state()[source.parts.tables[0].name].rows[:3]
        assert remote.copy_rows(0, rows) == len(rows)
        remote._loads -= 1
        assert remote.copy_rows(0, rows) == len(rows)
        remote.end_load()
        for one in (source, target):
            one.close()


class DamagedLink:
    """A link to a server in this process, some of whose answers are changed."""

    def __init__(self, server: RowServer, draw: Random) -> None:
        self._link, self._draw, self.is_damaged = DirectLink(server), draw, False
        self._link._session = server.begin(Greeting(role=SessionRole.COPIES))

    def send(self, request: Request) -> None:
        self._link.send(request)

    def receive(self) -> Answer:
        answer, draw = self._link.receive(), self._draw
        body = bytearray(answer.body)
        if draw.random() < 0.5 and body:
            for _ in range(draw.randint(1, 3)):
                at = draw.randrange(len(body))
                change = draw.choice(("flip", "cut", "add", "number"))
                if change == "flip":
                    body[at] ^= 1 << draw.randrange(8)
                elif change == "cut":
                    del body[at:]
                    break
                elif change == "add":
                    body[at:at] = draw.randbytes(draw.randint(1, 9))
                else:
                    body[at : at + 8] = draw.choice((-1, 0, 1 << 62, 5)).to_bytes(8, "little", signed=True)
        self.is_damaged |= bytes(body) != bytes(answer.body)
        return Answer(answer.header, bytes(body))

    def close(self) -> None:
        self._link.close()


def test_damaged_answers_are_read_or_refused_with_one_error():
    """Rows outside of a table, values that are not finite, and bytes that are no answer are refused; memory is taken for none of them."""
    server = RowServer(HeldRows(None))
    server._rows.open(held(), 0)
    for p, one in enumerate(server._rows.engine.tables):
        rows = np.arange(0, one.vocabulary_size, 2)
        server._rows.engine.write_values(
            rows, np.array([len(rows) * (k == p) for k in range(3)]), values_of(server, p, len(rows)), are_changed=True
        )
    draw, refused, own = Random(5), 0, OwnedRows(2, 0, 10)
    for _ in range(scaled(3000)):
        link = DamagedLink(server, draw)
        try:
            found = LiveServer(link)
            p = draw.randrange(len(found.held.tables))
            rows = found.read_now(p, RowSpread(0, 9, 2, draw.randrange(2)))
            assert len(rows.rows) == len(rows.weights) == len(rows.slots)
            assert np.isfinite(rows.weights).all()
            assert (rows.rows[1:] > rows.rows[:-1]).all()
            LivePart(found, p).owned(own)
        except HeadraceError:
            refused += 1
            continue
        except (json.JSONDecodeError, ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
            raise AssertionError(f"not one of ours: {error!r}") from error
    assert refused


def values_of(server: RowServer, p: int, rows: int):
    return RowValues(
        np.ones(rows * int(server._rows.dims[p]), np.float32),
        np.ones(rows * int(server._rows.slot_dims[p]), np.float32),
    )
