"""The tables of a model as a planner takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.planning.tables import FeatureLoad, TableFacts
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of


def tables_to_plan(features: Sequence[FeatureSpec], loads: Mapping[str, FeatureLoad]) -> tuple[TableFacts, ...]:
    """The tables of ``features``, in the order of their first use; ``loads``: what is known or assumed of each feature, by name."""
    return tuple(_facts(table, features, loads) for table in tables_of(features))


def _facts(table: TableSpec, features: Sequence[FeatureSpec], loads: Mapping[str, FeatureLoad]) -> TableFacts:
    slots = table.optimizer.slots
    row_slots = sum(slot.is_row_wise for slot in slots)
    rows = table.vocabulary_size
    return TableFacts(
        name=table.name,
        rows=rows,
        columns=table.dim,
        column_slots=len(slots) - row_slots,
        row_slots=row_slots,
        stack_key=repr((table.optimizer, table.quantization)),
        features=tuple(loads[one.name] for one in features if one.table == table),
    )
