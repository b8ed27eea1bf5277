"""What training has sampled of features."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.feature_statistics import read_document
from transforms.errors import NotFound

if TYPE_CHECKING:
    from headrace.screens.feature_statistics import FeatureRow, FeatureStatisticsScreen
    from warehouse.models.feature_statistics import FeatureUse, StoredStatistics
    from warehouse.warehouse import Warehouse


def statistics(warehouse: Warehouse, names: Collection[str] = (), model: str = "") -> FeatureStatisticsScreen:
    """The statistics of the features of these names, and of this model if one is named. Raises :class:`NotFound`."""
    from headrace.screens.feature_statistics import FeatureStatisticsScreen
    from warehouse.models.feature_statistics import all_uses, newest_statistics
    from warehouse.models.models import get_model

    with warehouse.catalog.read() as connection:
        if model:
            get_model(connection, model, None)
        uses, stored = all_uses(connection), newest_statistics(connection)
    now = warehouse.clock()
    asked = [use for use in uses if (not model or use.model == model) and (not names or use.name in names)]
    if missing := sorted(set(names) - {use.name for use in asked}):
        raise NotFound("a feature must be an input of a model", where=f"model {model}" if model else "the live models",
                       value=", ".join(missing), next_step="headrace model show MODEL lists its inputs")  # fmt: skip
    wanted = {use.fingerprint for use in asked} if model or names else {*stored}
    rows = [_row(stored[key], [use for use in uses if use.fingerprint == key], now) for key in wanted if key in stored]
    without = tuple(sorted({use.name for use in asked if use.fingerprint not in stored})) if model or names else ()
    return FeatureStatisticsScreen(tuple(sorted(rows, key=lambda row: (row.names, row.fingerprint))), without)


def _row(stored: StoredStatistics, uses: Collection[FeatureUse], now: float) -> FeatureRow:
    from headrace.screens.feature_statistics import TOP_ROWS, FeatureRow

    found = read_document(stored.document, stored.fingerprint)
    return FeatureRow(
        fingerprint=stored.fingerprint,
        names=tuple(sorted({use.name for use in uses})),
        models=tuple(sorted({use.model for use in uses})),
        rows=found.frequencies.rows,
        mean_ids=found.mean_valency,
        longest_bag=found.longest_bag,
        distinct_rows=found.mean_distinct_rows,
        batch_events=found.batch_events,
        top_share=found.frequencies.share_of_hottest(TOP_ROWS),
        imbalance=found.imbalance,
        events=found.events,
        age_secs=max(now - stored.recorded_at, 0.0),
        version=stored.version,
    )
