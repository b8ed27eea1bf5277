"""The full passes that models need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.terminal.quiet import import_quietly

if TYPE_CHECKING:
    from headrace.screens.analyze import AnalyzedScreen, PlannedScreen
    from headrace.terminal.progress import Report
    from transforms.expressions.model import Model
    from warehouse.models.pinned_analyses import UsedAnalysis
    from warehouse.warehouse import Warehouse


def planned(warehouse: Warehouse, models: Iterable[Model], *, table: str = "") -> PlannedScreen:
    """What :func:`made` would do; nothing changes."""
    from headrace.screens.analyze import OfModel, PlannedScreen

    rows = []
    for model in waiting(models):
        import_quietly("pipelines.analysis.plan")
        from pipelines.analysis.plan import plan_analyses

        rows += [OfModel(model.name, one) for one in plan_analyses(warehouse, model, table or None)]
    return PlannedScreen(tuple(rows))


def waiting(models: Iterable[Model]) -> list[Model]:
    """The models that have full-pass operators; the others cost no import."""
    from transforms.analysis.full_pass import is_resolved

    return [model for model in models if not is_resolved(item.component for item in model.inputs.values())]


def made(
    warehouse: Warehouse,
    models: Sequence[Model],
    *,
    table: str = "",
    runner: str = "DirectRunner",
    beam_options: Sequence[str] = (),
    progress: Report,
) -> AnalyzedScreen:
    """Run the missing full passes of models that are :func:`waiting`. Only new partitions are read."""
    from headrace.screens.analyze import AnalyzedScreen, OfModel

    import_quietly("pipelines.analysis.analyze")
    from pipelines.analysis.analyze import analyze_model
    from pipelines.analysis.plan import changed_analyses
    from pipelines.runners.runner import RunnerOptions

    rows, changes = [], []
    options = RunnerOptions(runner, flags=tuple(beam_options))
    for model in models:
        before = _pinned(warehouse, model)
        done = analyze_model(warehouse, model, table=table or None, options=options, progress=progress)
        rows += [OfModel(model.name, one) for one in done]
        changed = changed_analyses(warehouse.storage, before, _pinned(warehouse, model))
        changes += [OfModel(model.name, one) for one in changed]
    return AnalyzedScreen(tuple(rows), tuple(changes))


def _pinned(warehouse: Warehouse, model: Model) -> dict[str, UsedAnalysis]:
    from warehouse.models.pinned_analyses import pinned_analyses

    with warehouse.catalog.read() as connection:
        return pinned_analyses(connection, model.name)
