"""Tables and requests of tests of servers, without sockets."""

from __future__ import annotations

import numpy as np

from trainer.servers.row_server import Reply, RowServer, Session
from trainer.tables import SGD, Adagrad, Adam, TableSpec
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Header, Kind, write_document
from trainer.tables.routes.servers.row_messages import RowGradients, RowNumbers
from trainer.tables.routes.servers.table_documents import HeldTables, held_tables
from trainer.tables.stores.dense.dense_store import DenseStore

TABLES = (
    TableSpec("one", 30, 4, Adagrad(0.1, 0.25), "sum"),
    TableSpec("two", 50, 3, Adam(0.1), "sum"),
    TableSpec("three", 9, 1, SGD(0.5), "sum"),
)
SEED = 3
RATES = np.array([0.1, 0.1, 0.5], np.float32)
DIMS = np.array([one.dim for one in TABLES], np.int64)


def held(seed: int = SEED) -> HeldTables:
    return held_tables([(one, TableOrigin(one.name)) for one in TABLES], seed)


def engine_alone() -> DenseStore:
    """An engine of the same tables in this process."""
    return DenseStore(TABLES, seed=SEED, threads=1)


def random_update(seed: int) -> RowGradients:
    """Rows, some of them more than once, and their gradients."""
    draw = np.random.default_rng(seed)
    counts = draw.integers(0, 9, len(TABLES))
    rows = [draw.integers(0, one.vocabulary_size, count) for one, count in zip(TABLES, counts, strict=True)]
    values = draw.normal(size=int((counts * DIMS).sum())).astype(np.float32)
    return RowGradients(RowNumbers(np.concatenate(rows).astype(np.int64), counts), RATES, values)


def apply_to(engine: DenseStore, updates: list[RowGradients]) -> None:
    """These updates as one."""
    asked = [(one.numbers.rows, one.numbers.counts) for one in updates]
    engine.update_rows(asked, [one.values for one in updates], RATES)


def all_rows() -> RowNumbers:
    sizes = [one.vocabulary_size for one in TABLES]
    return RowNumbers(np.concatenate([np.arange(size) for size in sizes]), np.array(sizes, np.int64))


def body_of(parts) -> bytearray:
    return bytearray(b"".join(parts))


def ask(server: RowServer, session: Session, kind: Kind, parts=(), **header) -> Reply:
    body = body_of(parts)
    return server.handle(session, Header(kind, len(body), **header), body)


def open_tables(server: RowServer, session: Session, seed: int = SEED) -> Reply:
    return ask(server, session, Kind.OPEN, [write_document(held(seed).to_document())])


def update(server: RowServer, session: Session, number: int, seed: int) -> Reply:
    one = random_update(seed)
    parts = messages.write_gradients(one.numbers, one.rates, [one.values])
    return ask(server, session, Kind.UPDATE, parts, number=number, flags=messages.LONG_ROWS)


def fetch(server: RowServer, session: Session, numbers: RowNumbers | None = None, *, floor: int = -1) -> bytes:
    numbers = numbers or all_rows()
    reply = ask(server, session, Kind.FETCH, messages.write_numbers(numbers), floor=floor, flags=messages.flags_of(numbers.rows))  # fmt: skip
    assert reply.kind == Kind.ROWS
    return b"".join(reply.body)


def expected_rows(engine: DenseStore) -> bytes:
    numbers = all_rows()
    return engine.read_rows(numbers.rows, numbers.counts).tobytes()
