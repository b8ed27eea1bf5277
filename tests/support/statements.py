"""The statements that code sends to a catalog, so that a test can hold their number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from warehouse.warehouse import Warehouse


@contextmanager
def counted(warehouse: Warehouse) -> Iterator[list[str]]:
    """The statements of the catalog during the block, of all threads, in order; those that begin or end a transaction are left out."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    engine = warehouse.catalog._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)
