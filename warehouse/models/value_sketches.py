"""Sketches of the values of components over fragments, in the catalog, so that each is made once for all models.

The catalog keeps them as bytes: their form is that of the code that makes and checks them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_absent, one_of
from warehouse.warehouse import Warehouse

#: Sketches that were not read for so long are removed when new ones are recorded.
KEPT_SECS: Final = 90 * 86_400.0


@dataclass(frozen=True, slots=True)
class ValueSketch:
    """The sketch of a component over a fragment.

    Attributes:
        key: the identity of the values: of the component, of the columns that it reads, and of the deleted events.
        fingerprint: the component's, or what stands for a label.
        content: the sketch.
    """

    key: str
    fingerprint: str
    content: bytes


def known_sketches(warehouse: Warehouse, keys: Collection[str]) -> Mapping[str, bytes]:
    """The sketches of these keys that are in the catalog."""
    of = schema.value_sketches.c
    found: dict[str, bytes] = {}
    with warehouse.catalog.read() as connection:
        for chunk in chunks(sorted(set(keys))):
            rows = connection.execute(select(of.key, of.content).where(one_of(connection, of.key, chunk)))
            found |= {row.key: row.content for row in rows}
    return found


def record_sketches(warehouse: Warehouse, sketches: Collection[ValueSketch]) -> None:
    """Keep sketches; those that are known stay, and old ones go."""
    now = warehouse.clock()
    rows = [
        {"key": one.key, "fingerprint": one.fingerprint, "content": one.content, "recorded_at": now} for one in sketches
    ]
    kept = schema.value_sketches

    def record(connection: Connection) -> None:
        insert_absent(connection, kept, rows)
        connection.execute(delete(kept).where(kept.c.recorded_at < now - KEPT_SECS))

    warehouse.catalog.run(record, idempotent=True)
