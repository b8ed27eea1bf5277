"""A file of tables to plan, for tables that no model of the warehouse has yet. Pure; it is checked when it is read.

A JSON object whose member ``tables`` lists objects with ``name``, ``rows``, ``dim``, ``pooling_factor`` (the mean ids of an event; 1 if it is
absent), ``column_slots`` and ``row_slots`` (values of the optimizer for each value and for each row; 1 and 0), and ``skew`` (the exponent of the
power law of its ids).
"""

from __future__ import annotations

import json

from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.tables import FeatureLoad, TableFacts

_MOST_ROWS = 1 << 40
_MOST_COLUMNS = 1 << 16
_MOST_SLOTS = 8
_MOST_IDS = 1e6
_MOST_SKEW = 8.0
_NEXT = "docs/embedding-plans.md describes the file"


def read_tables(data: bytes, where: str, *, skew: float) -> tuple[TableFacts, ...]:
    """The tables of a file; ``skew``: the exponent where a table has none. Raises :class:`ConfigError` for a file of another form."""
    try:
        value = json.loads(data.decode("utf-8"))
        return tuple(_table(item, skew) for item in DocumentField(value, where).at("tables").items())
    except TornCheckpoint as error:
        raise ConfigError(
            error.what, where=error.where, value=error.value, allowed=error.allowed, next_step=_NEXT
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "a file of tables must be JSON in UTF-8", where=where, value=str(error)[:120], next_step=_NEXT
        ) from error


def _table(field: DocumentField, skew: float) -> TableFacts:
    members = field.members()
    name, rows = field.at("name").text(), field.at("rows").count(most=_MOST_ROWS)
    ids = _number(members, "pooling_factor", 1.0, _MOST_IDS)
    exponent = _number(members, "skew", skew, _MOST_SKEW)
    column_slots, row_slots = (
        members[slot].count(most=_MOST_SLOTS) if slot in members else default
        for slot, default in (("column_slots", 1), ("row_slots", 0))
    )
    if not name or not rows:
        raise TornCheckpoint("a table must have a name and rows", where=field.place, value=(name, rows))
    load = FeatureLoad(name, ids, RowFrequencies.power_law(rows, exponent))
    return TableFacts(name, rows, field.at("dim").count(most=_MOST_COLUMNS), column_slots, row_slots,
                      f"{column_slots} and {row_slots} slots", (load,))  # fmt: skip


def _number(members: dict[str, DocumentField], name: str, default: float, most: float) -> float:
    if name not in members:
        return default
    found = members[name].number()
    if not 0 <= found <= most:
        raise TornCheckpoint(
            f"{name} must be a number in its range", where=members[name].place, value=found, allowed=f"0 to {most:g}"
        )
    return found
