"""Writes the joined columns of a submitted model to the catalog."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from transforms.joins.definition import JoinDefinition
from warehouse.catalog import schema
from warehouse.catalog.catalog import insert_absent
from warehouse.models.joined_columns import forget_failure
from warehouse.models.joined_types import values_type


def write_joined_columns(
    connection: Connection, table: str, definitions: Mapping[str, JoinDefinition], now: float
) -> None:
    """Write the joined columns of a model that is submitted; one that failed is computed again."""
    insert_absent(connection, schema.joined_columns, (
        {"table_name": table, "column_name": name, "other_table": one.table, "document": one.to_document(),
         "arrow_type": str(values_type(one)), "created_at": now}
        for name, one in definitions.items()
    ))  # fmt: skip
    for name in definitions:
        forget_failure(connection, table, name)
