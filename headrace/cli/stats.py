"""``headrace stats``: what training has sampled, and how often a log looks up the rows of tables."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.held_out_scoring import fragment_reader
from headrace.cli.options.completions import model_names
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.solutions import pinned
from headrace.cli.options.training import read_options
from headrace.terminal.output import emit
from headrace.terminal.progress import progress_bar
from headrace.terminal.quantities import moment_of

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
    from headrace.views.feature_statistics import statistics

    with open_warehouse(home) as warehouse:
        screen = statistics(warehouse, names or (), model)
    emit(screen, as_json=as_json)


@app.command("lookups")
def lookups(
    model: Annotated[str, typer.Argument(autocompletion=model_names, help="Name of a submitted model.")],
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
