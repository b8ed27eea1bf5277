"""``headrace stats``: what training has sampled."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.feature_statistics import read_document
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from transforms.errors import NotFound

if TYPE_CHECKING:
    from headrace.screens.feature_statistics import FeatureRow
    from warehouse.models.feature_statistics import FeatureUse, StoredStatistics

app = typer.Typer(
    help="Show what training has sampled.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """A group also while it has one command."""


@app.command("features")
def features(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of features. Default: all.", show_default=False)
    ] = None,
    model: Annotated[str, typer.Option(help="Only the inputs of this model.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show the statistics of features: valencies, distinct rows of a batch, frequent rows, imbalance, and the models that share them."""
    from headrace.screens.feature_statistics import FeatureStatisticsScreen
    from warehouse.models.feature_statistics import all_uses, newest_statistics
    from warehouse.models.models import get_model

    with open_warehouse(home) as warehouse:
        with warehouse.catalog.read() as connection:
            if model:
                get_model(connection, model, None)
            uses, stored = all_uses(connection), newest_statistics(connection)
        now = warehouse.clock()
    asked = [use for use in uses if (not model or use.model == model) and (not names or use.name in names)]
    if missing := sorted(set(names or ()) - {use.name for use in asked}):
        raise NotFound("a feature must be an input of a model", where=f"model {model}" if model else "the live models",
                       value=", ".join(missing), next_step="headrace model show MODEL lists its inputs")  # fmt: skip
    wanted = {use.fingerprint for use in asked} if model or names else {*stored}
    rows = [_row(stored[key], [use for use in uses if use.fingerprint == key], now) for key in wanted if key in stored]
    without = tuple(sorted({use.name for use in asked if use.fingerprint not in stored})) if model or names else ()
    emit(
        FeatureStatisticsScreen(tuple(sorted(rows, key=lambda row: (row.names, row.fingerprint))), without),
        as_json=as_json,
    )


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
