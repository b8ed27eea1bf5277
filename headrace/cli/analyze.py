"""``headrace analyze``: run the full passes that models need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.beam import BeamOptions, Runner
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import Screen, emit
from headrace.terminal.progress import progress_bar

if TYPE_CHECKING:
    from headrace.screens.analyze import AnalyzedScreen
    from transforms.expressions.model import Model
    from warehouse.warehouse import Warehouse


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be read and what would change; change nothing.")
]


def analyze(
    file: Annotated[str, typer.Argument(help="A Python file that defines models, as for headrace model submit.")],
    table: Annotated[str, typer.Option(help="The table to read. Default: the table that the model names.")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Only this model of the file; may be repeated.")] = None,
    dry_run: DryRun = False,
    runner: Runner = "DirectRunner",
    beam_options: BeamOptions = None,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Run the full passes that models need and that have no result yet. Only new partitions are read.

    The next submission of a model that is pinned to an earlier result takes the new one, as a new version.
    """
    from headrace.model_file import chosen_models
    from headrace.views.analyses import planned

    models = chosen_models([file], model)
    with open_warehouse(home) as warehouse:
        if dry_run:
            screen: Screen = planned(warehouse, models, table=table)
        else:
            screen = make_analyses(warehouse, models, table, runner, beam_options or ())
    emit(screen, as_json=as_json)


def make_analyses(
    warehouse: Warehouse,
    models: Iterable[Model],
    table: str,
    runner: str = "DirectRunner",
    beam_options: Sequence[str] = (),
) -> AnalyzedScreen:
    """Run the missing full passes, with progress."""
    from headrace.screens.analyze import AnalyzedScreen
    from headrace.views.analyses import made, waiting

    those = waiting(models)
    if not those:
        return AnalyzedScreen(())
    with progress_bar("analyzing", "partitions") as report:
        return made(warehouse, those, table=table, runner=runner, beam_options=beam_options, progress=report)
