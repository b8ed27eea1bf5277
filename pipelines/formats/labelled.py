"""Combine clicks and their negatives into the rows of one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.formats.clicks import Clicks, Past
from pipelines.formats.negatives import draw_negatives
from pipelines.formats.options import FormatOptions
from transforms.arrays import Bools, Ints
from transforms.columns.arrow_types import arrow_type
from transforms.types import Dense, DType, Ragged


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows in time order, each click before its negatives: the position of the click, the item, the label.

    ``counts``: rows by kind, for the report.
    """

    event: Ints
    item: Ints
    clicked: Ints
    counts: dict[str, int]

    def of_event(self, values: pa.Array) -> pa.Array:
        """A column that negatives share with their click, from one value per click."""
        return values.take(pa.array(self.event))


def label_rows(clicks: Clicks, options: FormatOptions) -> LabelledRows:
    """Every click with its negatives; clicks on cold items are left out unless ``options.keep_cold``."""
    negatives = draw_negatives(clicks, options.negatives_per_positive, options.window_hours, options.seed)
    position = np.arange(len(clicks))
    recent = clicks.clicks_in_hours_before(position, clicks.item, options.window_hours)
    warm = np.ones(len(clicks), np.bool_) if options.keep_cold else recent > 0
    drawn = warm[negatives.event]
    event = np.concatenate([position[warm], negatives.event[drawn]])
    item = np.concatenate([clicks.item[warm], negatives.item[drawn]])
    clicked = np.concatenate([np.ones(int(warm.sum()), np.int64), np.zeros(int(drawn.sum()), np.int64)])
    order = np.argsort(event, kind="stable")
    counts = {
        "clicks": len(clicks),
        "positives": int(warm.sum()),
        "negatives": int(drawn.sum()),
        "cold_clicks": int((~warm).sum()),
        "negatives_not_drawn": negatives.not_drawn,
    }
    return LabelledRows(event[order], item[order], clicked[order], counts)


def int_column(values: Ints) -> pa.Array:
    """An int64 column."""
    return pa.array(values, pa.int64())


def float_column(values: Any, valid: Bools) -> pa.Array:
    """A float32 column; null where ``valid`` is False."""
    return pa.array(values.astype(np.float32), pa.float32(), mask=~valid)


def time_column(time_us: Ints) -> pa.Array:
    """A timestamp column of UTC microseconds."""
    return pa.array(time_us, pa.int64()).cast(arrow_type(Dense(DType.TIMESTAMP)))


def history_column(past: Past, item_ids: Ints, most: int) -> pa.Array:
    """For each click, the ids that its user clicked earlier, newest first: ``list<int64>``. ``item_ids``: one per click."""
    offsets, positions = past.latest(most)
    ids = pa.array(item_ids[positions], pa.int64())
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), ids, type=arrow_type(Ragged(DType.INT64)))


def last_column(past: Past, values: pa.Array) -> pa.Array:
    """For each click, the value at its user's latest earlier click; null where there is none."""
    return values.take(pa.array(past.last, pa.int64(), mask=past.last < 0))
