"""What a planner knows of embedding tables: their shapes, and what their features ask of them in a step. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from trainer.errors import ConfigError
from trainer.planning.feature_statistics import FeatureStatistics
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.row_sample import RowSample

#: The bytes of a value.
VALUE_BYTES = 4


@dataclass(frozen=True, slots=True)
class FeatureLoad:
    """What a feature asks of its table.

    Attributes:
        name: the feature.
        ids_per_event: its mean valency.
        frequencies: how often its rows occur among its ids.
        is_assumed: whether both are assumed, not measured.
        sample: of measured frequencies, the sampled rows; None where frequencies are assumed or stated.
    """

    name: str
    ids_per_event: float
    frequencies: RowFrequencies
    is_assumed: bool = False
    sample: RowSample | None = None

    @staticmethod
    def sampled(name: str, found: FeatureStatistics) -> FeatureLoad:
        """What a sample says of a feature."""
        return FeatureLoad(name, found.mean_valency, found.frequencies, sample=found.sample)

    @staticmethod
    def assumed(name: str, rows: int, known: Sequence[FeatureLoad], *, has_one_id: bool) -> FeatureLoad:
        """What is assumed of a feature without statistics.

        All rows are alike. An event has one id where the feature's type has one, else as many as ``known`` features have in the mean,
        and one without any of these.
        """
        ids = 1.0 if has_one_id or not known else math.fsum(one.ids_per_event for one in known) / len(known)
        return FeatureLoad(name, ids, RowFrequencies.power_law(rows, 0.0), is_assumed=True)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table to plan.

    Attributes:
        name, rows, columns: the table.
        column_slots: values that the optimizer keeps for each value of a row.
        row_slots: values that it keeps for a whole row; such a table cannot be cut into slices of columns.
        stack_key: tables with equal keys and equal padded widths can be stacked.
        features: those that are looked up in it.
    """

    name: str
    rows: int
    columns: int
    column_slots: int
    row_slots: int
    stack_key: str
    features: tuple[FeatureLoad, ...]

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1 or self.column_slots < 0 or self.row_slots < 0:
            raise ConfigError("a table to plan must have rows and columns", where=f"table {self.name}",
                              value=(self.rows, self.columns, self.column_slots, self.row_slots))  # fmt: skip
        for feature in self.features:
            if not 0 <= feature.ids_per_event < 1e9:
                raise ConfigError("ids_per_event must be a number >= 0", where=f"feature {feature.name}",
                                  value=feature.ids_per_event, allowed=">= 0")  # fmt: skip

    def slice_row_bytes(self, columns: int) -> int:
        """The bytes of so many columns of a row with their slots, and with those of the whole row."""
        return VALUE_BYTES * (columns * (1 + self.column_slots) + self.row_slots)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row with its slots."""
        return self.slice_row_bytes(self.columns)

    @property
    def table_bytes(self) -> int:
        """The bytes of all rows with their slots."""
        return self.rows * self.row_bytes

    @property
    def can_split_columns(self) -> bool:
        """Whether its optimizer treats the columns of a row independently."""
        return not self.row_slots

    @property
    def is_assumed(self) -> bool:
        """Whether the use of the table is not known."""
        return any(feature.is_assumed for feature in self.features)

    @property
    def ids_per_event(self) -> float:
        """The ids of all features in an event."""
        return sum(feature.ids_per_event for feature in self.features)

    def frequencies(self) -> RowFrequencies:
        """How often its rows occur among the ids of all its features."""
        if not self.features:
            return RowFrequencies(self.rows, (), ())

        def merge(held: tuple[RowFrequencies, float], feature: FeatureLoad) -> tuple[RowFrequencies, float]:
            merged = held[0].merged(feature.frequencies, held[1], feature.ids_per_event)
            return merged, held[1] + feature.ids_per_event

        first, *rest = self.features
        return reduce(merge, rest, (first.frequencies, first.ids_per_event))[0]
