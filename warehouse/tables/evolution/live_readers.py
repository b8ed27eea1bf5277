"""The columns that live models read, with the types that they declare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from transforms.analysis.target import Target, target_of
from transforms.graphs.graph import component_from_document, raw_columns
from transforms.types import ColumnType
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.tables.readable_types import LABEL_TYPES


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """A live model that reads a column as any of ``kinds``, of which its declaration has one, and a plain label several."""

    model: str
    column: str
    kinds: tuple[ColumnType, ...]


def column_readers(connection: Connection, table: str, columns: Collection[str]) -> tuple[ColumnReader, ...]:
    """The live models over a table that read any of ``columns``, by input or label; one entry per model and declared type."""
    if not columns:
        return ()
    of = schema.models
    live = connection.execute(select(of).where(of.c.live.is_(True), of.c.table_name == table).order_by(of.c.name)).all()
    found: list[ColumnReader] = []
    inputs = _inputs(connection, [row.id for row in live], columns)
    for row in live:
        target = target_of(row.label, row.label_component, row.task, row.classes)
        for name, kinds in (*_target_columns(target), *inputs[row.id]):
            if name in columns:
                found.append(ColumnReader(row.name, name, kinds))
    return tuple(dict.fromkeys(found))


_Read = tuple[str, tuple[ColumnType, ...]]


def _target_columns(target: Target) -> Iterator[_Read]:
    for _, one in target.each:
        if one.component is None:
            yield one.label, LABEL_TYPES
        else:
            yield from ((column.name, (column.type,)) for column in raw_columns(one.component))


def _inputs(connection: Connection, models: Collection[int], columns: Collection[str]) -> dict[int, list[_Read]]:
    """The columns among ``columns`` that the inputs of each model read."""
    of, inputs, components = schema.component_columns.c, schema.model_inputs.c, schema.components.c
    models_of: defaultdict[str, list[int]] = defaultdict(list)
    for names in chunks(sorted(columns)):
        query = select(inputs.model, inputs.fingerprint).join(
            schema.component_columns, of.fingerprint == inputs.fingerprint
        )
        wanted = (one_of(connection, of.column_name, names), one_of(connection, inputs.model, sorted(models)))
        for model, fingerprint in connection.execute(query.where(*wanted).distinct()):
            models_of[fingerprint].append(model)
    found: defaultdict[int, list[_Read]] = defaultdict(list)
    for fingerprints in chunks(sorted(models_of)):
        stored: Any = select(components.fingerprint, components.document)
        for fingerprint, document in connection.execute(
            stored.where(one_of(connection, components.fingerprint, fingerprints))
        ):
            read: list[_Read] = [(one.name, (one.type,)) for one in raw_columns(component_from_document(document))]
            for model in models_of[fingerprint]:
                found[model] += read
    return found
