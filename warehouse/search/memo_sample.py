"""The values of a component in one ready memo."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import select

from transforms.types import ColumnType
from warehouse.catalog import schema
from warehouse.files.memo_file import read_memo_file
from warehouse.scheduling.task_states import MemoState
from warehouse.search.search import get_component
from warehouse.warehouse import Warehouse

#: The most bytes of the memo that is read.
MOST_BYTES = 16 << 20
#: Memos of which that with the most rows is read: the newest may be over a few late rows.
_NEWEST = 128


@dataclass(frozen=True)
class MemoSample:
    """The values of a component over one fragment.

    Attributes:
        fingerprint: The component.
        expression: Its expression.
        type: The type of its values.
        table: The table of the fragment; empty without a memo.
        partition: The partition of the fragment.
        values: A value an event, deleted ones included, in the Arrow layout of the type; None without a memo.
    """

    fingerprint: str
    expression: str
    type: ColumnType
    table: str = ""
    partition: str = ""
    values: pa.Array | None = None


def sample_memo(warehouse: Warehouse, fingerprint: str) -> MemoSample:
    """The memo with the most rows among the newest ones of at most :data:`MOST_BYTES` bytes.

    Raises :class:`~warehouse.errors.UnknownComponent`, and :class:`~warehouse.errors.MemoDamaged` for a damaged file.
    """
    found = get_component(warehouse, fingerprint)
    memos, files, fragments = schema.memos.c, schema.memo_files.c, schema.fragments.c
    query = (
        select(files.path, files.checksum, memos.rows, fragments.table_name, fragments.partition)
        .select_from(schema.memos)
        .join(schema.memo_files, files.id == memos.file)
        .join(schema.fragments, fragments.id == memos.fragment)
        .where(memos.fingerprint == found.fingerprint, memos.state == MemoState.READY, memos.size_bytes <= MOST_BYTES)
        .order_by(memos.changed_at.desc(), memos.memo_key)
        .limit(_NEWEST)
    )
    with warehouse.catalog.read() as connection:
        newest = connection.execute(query).all()
    row = max(newest, key=lambda one: one.rows, default=None)
    if row is None:
        return MemoSample(found.fingerprint, found.expression, found.type)
    columns = read_memo_file(warehouse.storage, row.path, [found.fingerprint], row.checksum)
    return MemoSample(
        found.fingerprint,
        found.expression,
        found.type,
        row.table_name,
        row.partition,
        columns[found.fingerprint],
    )
