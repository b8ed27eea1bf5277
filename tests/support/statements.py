"""The statements that code sends to a catalog, so that a test can hold their number and how a database goes about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import event

from warehouse.warehouse import Warehouse


@dataclass
class Asked:
    """Statements with their first parameters, in order; those that begin or end a transaction are left out."""

    statements: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.statements]

    def __len__(self) -> int:
        return len(self.statements)


@contextmanager
def asked(warehouse: Warehouse) -> Iterator[Asked]:
    """What is asked of the catalog during the block, by all threads."""
    found = Asked()

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if not statement.startswith("BEGIN"):
            several = many and isinstance(parameters, list)
            found.statements.append((statement, parameters[0] if several else parameters))

    engine = warehouse.catalog._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def plans(warehouse: Warehouse, found: Asked) -> Iterator[tuple[str, str]]:
    """Each statement that reads, and how the database goes about it."""
    with warehouse.catalog.read() as connection:
        explain = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
        if connection.dialect.name == "postgresql":
            # It rightly reads tables of a few pages as they stand. Now it does so only where no index would serve.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        for text, parameters in found.statements:
            if text.startswith(("SELECT", "WITH", "UPDATE", "DELETE")) and "pg_advisory" not in text:
                rows = connection.exec_driver_sql(f"{explain} {text}", parameters)
                yield text, "\n".join(str(row[-1]) for row in rows)
