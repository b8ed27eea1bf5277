"""Models: submitted, listed, shown and retired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transforms.tracing.spans import span

if TYPE_CHECKING:
    from headrace.screens.analyze import OfModel
    from headrace.screens.dry_run import DryRunScreen
    from headrace.screens.models import ModelDiffScreen, ModelScreen, ModelsScreen, SubmittedScreen
    from headrace.screens.retirement import RetirementScreen
    from pipelines.analysis.plan import ChangedAnalysis
    from transforms.expressions.model import Model
    from warehouse.warehouse import Warehouse


def submitted(
    warehouse: Warehouse,
    models: Sequence[Model],
    *,
    table: str = "",
    policy: str = "",
    changes: Sequence[OfModel[ChangedAnalysis]] = (),
) -> SubmittedScreen:
    """Submit all of the models or none: all are checked before the first is submitted. ``changes``: by analyses that were made just before."""
    from headrace.screens.models import SubmittedRow, SubmittedScreen
    from warehouse.matching.checked_model import check_models
    from warehouse.matching.submit import submit_checked

    checked = check_models(warehouse, models, table=table or None, policy=policy or None)
    for each in checked:
        each.require_analyses()
    rows = []
    for each in checked:
        with span("submit", model=each.model.name):
            done = submit_checked(warehouse, each)
        analyzed = tuple(change for change in changes if change.model == done.model)
        rows.append(SubmittedRow(each.model.client, len(each.inputs), done, analyzed))
    return SubmittedScreen(tuple(rows))


def planned_submissions(
    warehouse: Warehouse, models: Sequence[Model], *, table: str = "", policy: str = ""
) -> DryRunScreen:
    """What :func:`submitted` would do per input; nothing changes."""
    from headrace.screens.dry_run import DryRunScreen
    from warehouse.matching.dry_run import plan_submissions

    return DryRunScreen(plan_submissions(warehouse, models, table=table or None, policy=policy or None))


def listed(warehouse: Warehouse) -> ModelsScreen:
    """The live models, each at its newest version."""
    from headrace.screens.models import ModelRow, ModelsScreen
    from warehouse.overview import list_models, model_memos

    rows = []
    counted = model_memos(warehouse)
    for item in list_models(warehouse):
        components, states = counted.get(item.id, (0, {}))
        row = ModelRow(
            name=item.name,
            version=item.version,
            client=item.client,
            priority=item.priority,
            table=item.table,
            label=item.label,
            task=item.target.kind,
            components=components,
            memos=states,
        )
        rows.append(row)
    return ModelsScreen(tuple(rows))


def shown(warehouse: Warehouse, name: str, version: int = 0) -> ModelScreen:
    """A model's inputs and their expressions; ``version`` 0: the newest. Raises :class:`~transforms.errors.NotFound`."""
    from headrace.screens.models import InputRow, ModelScreen
    from transforms.render import expression_text
    from warehouse.models.models import get_model, stored_inputs
    from warehouse.models.pinned_analyses import pinned_analyses

    with warehouse.catalog.read() as connection:
        model = get_model(connection, name, version or None)
        found = stored_inputs(connection, model.id)
        pinned = pinned_analyses(connection, name, model.version)
    inputs = (
        InputRow(
            name=item.name,
            type=str(item.component.type),
            fingerprint=item.fingerprint,
            expression=expression_text(item.component),
        )
        for item in found
    )
    return ModelScreen(
        name=model.name,
        version=model.version,
        client=model.client,
        priority=model.priority,
        table=model.table,
        label=model.label,
        task=model.target.kind,
        classes=model.target.classes,
        live=model.live,
        inputs=tuple(inputs),
        analyses=tuple(pinned.values()),
    )


def compared(warehouse: Warehouse, name: str, before: int | None = None, after: int | None = None) -> ModelDiffScreen:
    """The differences between two versions; by default the newest and the one before. Raises as :func:`~warehouse.models.version_changes.version_changes`."""
    from headrace.screens.models import ModelDiffScreen
    from warehouse.models.version_changes import version_changes

    return ModelDiffScreen(version_changes(warehouse, name, before, after))


def retired(warehouse: Warehouse, name: str, *, dry_run: bool) -> RetirementScreen:
    """Retire a model, or show the consequences. Raises :class:`~transforms.errors.NotFound`."""
    from headrace.screens.retirement import RetirementScreen
    from warehouse.models.retire import retire_model

    return RetirementScreen(retire_model(warehouse, name, dry_run=dry_run))
