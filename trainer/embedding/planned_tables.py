"""The tables of a model as a planner takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.embedding.spec import FeatureSpec, TableSpec, tables_of
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.tables import FeatureLoad, TableFacts


def tables_to_plan(
    features: Sequence[FeatureSpec], loads: Mapping[str, FeatureLoad], *, assumed_ids: float = 1.0
) -> tuple[TableFacts, ...]:
    """The tables of ``features``, in the order of their first use.

    Args:
        loads: statistics by name of a feature. One without them is assumed to have ``assumed_ids`` ids an event, of all rows alike.
    """
    return tuple(_facts(table, features, loads, assumed_ids) for table in tables_of(features))


def _facts(
    table: TableSpec, features: Sequence[FeatureSpec], loads: Mapping[str, FeatureLoad], assumed_ids: float
) -> TableFacts:
    slots = table.optimizer.slots
    row_slots = sum(slot.is_row_wise for slot in slots)
    rows = table.vocabulary_size
    alike = RowFrequencies.power_law(rows, 0.0)
    return TableFacts(
        name=table.name,
        rows=rows,
        columns=table.dim,
        column_slots=len(slots) - row_slots,
        row_slots=row_slots,
        stack_key=repr((table.optimizer, table.quantization)),
        features=tuple(
            loads.get(one.name) or FeatureLoad(one.name, assumed_ids, alike) for one in features if one.table == table
        ),
    )
