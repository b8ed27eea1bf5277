"""The first and the last time of each fragment, read once for each content of a column of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_absent, one_of
from warehouse.joins.views import TimedFragment
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.raw import read_raw
from warehouse.warehouse import Warehouse

_MICROS = pa.timestamp("us")


def timed_fragments(
    warehouse: Warehouse, fragments: Sequence[PlacedFragment], column: str
) -> tuple[TimedFragment, ...]:
    """Fragments with the range of their times in ``column``; that of a column that was not seen before is read and kept."""
    digests = [placed.fragment.digests[column] for placed in fragments]
    known = _known(warehouse, digests)
    fresh: dict[str, tuple[int | None, int | None]] = {}
    for placed, digest in zip(fragments, digests, strict=True):
        if digest not in known and digest not in fresh:
            fresh[digest] = _range(read_raw(warehouse.storage, placed.fragment, [column]).column(column))
    if fresh:
        rows = [
            {"digest": digest, "first_micros": first, "last_micros": last} for digest, (first, last) in fresh.items()
        ]
        warehouse.catalog.run(lambda connection: insert_absent(connection, schema.time_ranges, rows), idempotent=True)
    found = {**known, **fresh}
    return tuple(TimedFragment(placed, *found[digest]) for placed, digest in zip(fragments, digests, strict=True))


def as_times(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times in microseconds, without a zone; a finer time is rounded down, and one too early or late for microseconds is null."""
    plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
    if pa.types.is_timestamp(plain.type) and plain.type.tz is not None:
        plain = plain.cast(pa.timestamp(plain.type.unit))
    if pa.types.is_date(plain.type):
        plain = plain.cast(pa.timestamp("ms" if pa.types.is_date64(plain.type) else "s"))
    if plain.type == _MICROS:
        return plain
    if plain.type.unit == "ns":
        counted = plain.cast(pa.int64())
        return pc.floor(pc.divide(counted, 1000)).cast(pa.int64()).cast(_MICROS)
    scale = 10**6 if plain.type.unit == "s" else 10**3
    counted, most = plain.cast(pa.int64()), (2**63 - 1) // scale
    fits = pc.and_(pc.less_equal(counted, most), pc.greater_equal(counted, -most))
    return pc.multiply(pc.if_else(fits, counted, None), scale).cast(_MICROS)


def _range(values: pa.ChunkedArray) -> tuple[int | None, int | None]:
    found: Mapping[str, int | None] = pc.min_max(as_times(values).cast(pa.int64())).as_py()
    return found["min"], found["max"]


def _known(warehouse: Warehouse, digests: Iterable[str]) -> dict[str, tuple[int | None, int | None]]:
    of = schema.time_ranges.c
    found: dict[str, tuple[int | None, int | None]] = {}
    with warehouse.catalog.read() as connection:
        for chunk in chunks(sorted(set(digests))):
            query = select(of.digest, of.first_micros, of.last_micros).where(one_of(connection, of.digest, chunk))
            found.update((digest, (first, last)) for digest, first, last in connection.execute(query))
    return found
