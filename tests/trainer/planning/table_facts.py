"""Tables to plan."""

from __future__ import annotations

from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.tables import FeatureLoad, TableFacts


def table(name="t", rows=1000, columns=64, *, valency=1.0, exponent=1.05, row_slots=0):
    """A table of one feature whose ids follow a power law; 0 is uniform."""
    frequencies = RowFrequencies.power_law(rows, exponent)
    column_slots = 0 if row_slots else 1
    return TableFacts(
        name, rows, columns, column_slots, row_slots, "adagrad", (FeatureLoad(name, valency, frequencies),)
    )
