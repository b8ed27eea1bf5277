"""Screen of ``headrace stats features``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import count_text, percent_text, secs_text

#: The share of so many rows is shown.
TOP_ROWS = 100


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """The statistics of a component.

    Attributes:
        names: all names that live models give it.
        models: the live models that have it as an input.
        rows: those of its table.
        mean_ids, longest_bag: the ids of an event.
        distinct_rows: of a batch of ``batch_events``, in the mean.
        top_share: the share of the ids that the :data:`TOP_ROWS` most frequent rows have.
        imbalance: the most ids of a class of rows over the mean.
        events: that were sampled, aged.
        age_secs: since the last sample.
        version: counts the samples.
    """

    fingerprint: str
    names: tuple[str, ...]
    models: tuple[str, ...]
    rows: int
    mean_ids: float
    longest_bag: int
    distinct_rows: float
    batch_events: float
    top_share: float
    imbalance: float
    events: float
    age_secs: float
    version: int


@dataclass(frozen=True, slots=True, repr=False)
class FeatureStatisticsScreen(Shown):
    """The statistics of features in the catalog, by name; ``without``: features that have none."""

    features: tuple[FeatureRow, ...]
    without: tuple[str, ...] = ()

    def render(self) -> RenderableType:
        """One line a component, and the meaning of the columns."""
        none = f"without statistics: {', '.join(self.without)}" if self.without else ""
        if not self.features:
            return none or "no statistics of features are recorded; next: headrace train MODEL"
        lines = (
            (", ".join(one.names) or one.fingerprint[:12], count_text(one.rows), f"{one.mean_ids:.4g}",
             count_text(one.longest_bag), f"{one.distinct_rows:,.4g}", f"{one.batch_events:,.0f}", percent_text(one.top_share),
             f"{one.imbalance:.2f}", f"{one.events:,.0f}", secs_text(one.age_secs), str(one.version), ", ".join(one.models))
            for one in self.features
        )  # fmt: skip
        titles = ("feature", "rows>", "ids an event>", "most>", "distinct a batch>", "of events>", f"top {TOP_ROWS}>",
                  "imbalance>", "sampled>", "age>", "version>", "models*")  # fmt: skip
        meaning = (
            f"top {TOP_ROWS}: the share of the ids that the {TOP_ROWS} most frequent rows have",
            "imbalance: the most ids of one of 64 classes of rows over their mean",
            "sampled: events; the weight of an old sample halves every 10 million",
            "version: the commits of training that have added to the sample",
        )
        return Group(grid(titles, lines), *meaning, *((none,) if none else ()))
