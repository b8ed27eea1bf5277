"""``headrace stats``: what training has sampled, and how often a log looks up the rows of tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.feature_statistics import read_document
from headrace.cli.held_out_scoring import fragment_reader
from headrace.cli.options.quantities import moment_of
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.solutions import pinned
from headrace.cli.options.training import read_options
from headrace.terminal.output import emit
from headrace.terminal.progress import progress_bar
from transforms.errors import NotFound

if TYPE_CHECKING:
    from headrace.screens.feature_statistics import FeatureRow
    from warehouse.models.feature_statistics import FeatureUse, StoredStatistics

app = typer.Typer(
    help="Show what training has sampled, and how often a log looks up the rows of tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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


@app.command("lookups")
def lookups(
    model: Annotated[str, typer.Argument(help="Name of a submitted model.")],
    start: Annotated[str, typer.Option(help="Count partitions from this time on (ISO 8601, UTC).")] = "",
    end: Annotated[str, typer.Option(help="Count partitions that start before this time.")] = "",
    version: Annotated[
        int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
    ] = 0,
    config: Annotated[str, typer.Option(help="A JSON file of training options: docs/training.md.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Count how often a log looks up the rows of a model's tables, without training, and say whether pruning pays."""
    from headrace.screens.lookups import LookupsScreen
    from trainer.model.inputs import lay_out
    from trainer.model.unbounded_tables import hashed_tables
    from trainer.options.config import TrainConfig
    from trainer.planning.lookup_tail import TableCounts, lookup_tail, pruning_outlook
    from trainer.run.preparation.lookup_counts import count_lookups
    from trainer.run.progress.identity import identity_of
    from trainer.tables.spec import tables_of

    options = TrainConfig.from_document(read_options(config), run_dir="none")
    first, last = moment_of("--start", start), moment_of("--end", end)
    with (
        open_warehouse(home) as warehouse,
        pinned(warehouse, model, version, first, last, "stats lookups") as solution,
        progress_bar(f"reading {model}", "events") as report,
    ):
        layout = lay_out(identity_of(solution, options).typed_inputs, options)
        found = count_lookups(solution, fragment_reader(warehouse, solution), layout, progress=report)
    hashed, tables, counts = hashed_tables(layout.features, options), tables_of(layout.features), found.by_table
    tails = tuple(
        lookup_tail(one.name, None if one.name in hashed else one.vocabulary_size, one.dim, counts[one.name])
        for one in tables
    )
    pruned = [TableCounts(one.vocabulary_size, one.dim, counts[one.name]) for one in tables if one.name not in hashed]
    screen = LookupsScreen(model, solution.model_version, found.events, tails, pruning_outlook(pruned))
    emit(screen, as_json=as_json)


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
