"""``headrace analyze``: make the statistics that the full-pass operators of models need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.beam import BeamOptions, Runner
from headrace.cli.output import emit
from headrace.cli.progress import progress_bar
from headrace.cli.session import AsJson, Home, open_warehouse

if TYPE_CHECKING:
    from headrace.screens.analyze import AnalyzedRow
    from transforms.model import Model
    from warehouse.warehouse import Warehouse


def analyze(
    file: Annotated[str, typer.Argument(help="A Python file that defines models, as headrace model submit takes it.")],
    table: Annotated[str, typer.Option(help="The table to read. Default: what the model names.")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Only this model of the file; may be repeated.")] = None,
    runner: Runner = "DirectRunner",
    beam_options: BeamOptions = None,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Make the full passes that models need and that are not known yet; reads only partitions never read for them."""
    from headrace.model_file import chosen_models
    from headrace.screens.analyze import AnalyzedScreen

    models = chosen_models(file, model)
    with open_warehouse(home) as warehouse:
        rows = make_analyses(warehouse, models, table, runner, beam_options or ())
    emit(AnalyzedScreen(tuple(rows)), as_json=as_json)


def make_analyses(
    warehouse: Warehouse,
    models: Iterable[Model],
    table: str,
    runner: str = "DirectRunner",
    beam_options: Sequence[str] = (),
) -> list[AnalyzedRow]:
    """Make what is missing, with progress. Models without full-pass operators cost nothing, not even an import."""
    from headrace.screens.analyze import AnalyzedRow
    from transforms.full_pass import is_resolved

    waiting = [model for model in models if not is_resolved(item.component for item in model.inputs.values())]
    if not waiting:
        return []
    from headrace.cli.quiet import import_quietly

    import_quietly("pipelines.analysis.analyze")
    from pipelines.analysis.analyze import analyze_model
    from pipelines.beam_runner import RunnerOptions

    rows = []
    options = RunnerOptions(runner, flags=tuple(beam_options))
    with progress_bar("analyzing", "partitions") as report:
        for model in waiting:
            made = analyze_model(warehouse, model, table=table or None, options=options, progress=report)
            rows += [AnalyzedRow(model=model.name, **asdict(one)) for one in made]
    return rows
