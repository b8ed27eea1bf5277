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
    from headrace.screens.analyze import AnalyzedScreen, PlannedScreen
    from transforms.expressions.model import Model
    from warehouse.models.pinned_analyses import UsedAnalysis
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

    models = chosen_models([file], model)
    with open_warehouse(home) as warehouse:
        if dry_run:
            screen: Screen = planned_analyses(warehouse, models, table)
        else:
            screen = make_analyses(warehouse, models, table, runner, beam_options or ())
    emit(screen, as_json=as_json)


def planned_analyses(warehouse: Warehouse, models: Iterable[Model], table: str) -> PlannedScreen:
    """What :func:`make_analyses` would do."""
    from headrace.screens.analyze import OfModel, PlannedScreen

    rows = []
    for model in _waiting(models):
        from headrace.terminal.quiet import import_quietly

        import_quietly("pipelines.analysis.plan")
        from pipelines.analysis.plan import plan_analyses

        rows += [OfModel(model.name, one) for one in plan_analyses(warehouse, model, table or None)]
    return PlannedScreen(tuple(rows))


def _waiting(models: Iterable[Model]) -> list[Model]:
    """The models that have full-pass operators."""
    from transforms.analysis.full_pass import is_resolved

    return [model for model in models if not is_resolved(item.component for item in model.inputs.values())]


def make_analyses(
    warehouse: Warehouse,
    models: Iterable[Model],
    table: str,
    runner: str = "DirectRunner",
    beam_options: Sequence[str] = (),
) -> AnalyzedScreen:
    """Run the missing full passes, with progress. Models without full-pass operators cost no import."""
    from headrace.screens.analyze import AnalyzedScreen, OfModel

    waiting = _waiting(models)
    if not waiting:
        return AnalyzedScreen(())
    from headrace.terminal.quiet import import_quietly

    import_quietly("pipelines.analysis.analyze")
    from pipelines.analysis.analyze import analyze_model
    from pipelines.analysis.plan import changed_analyses
    from pipelines.runners.runner import RunnerOptions

    rows, changes = [], []
    options = RunnerOptions(runner, flags=tuple(beam_options))
    with progress_bar("analyzing", "partitions") as report:
        for model in waiting:
            before = _pinned(warehouse, model)
            made = analyze_model(warehouse, model, table=table or None, options=options, progress=report)
            rows += [OfModel(model.name, one) for one in made]
            changed = changed_analyses(warehouse.storage, before, _pinned(warehouse, model))
            changes += [OfModel(model.name, one) for one in changed]
    return AnalyzedScreen(tuple(rows), tuple(changes))


def _pinned(warehouse: Warehouse, model: Model) -> dict[str, UsedAnalysis]:
    from warehouse.models.pinned_analyses import pinned_analyses

    with warehouse.catalog.read() as connection:
        return pinned_analyses(connection, model.name)
