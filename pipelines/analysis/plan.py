"""The dry run of a model's analyses, and the differences that analyses made."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from pipelines.analysis.contributions import known_contributions
from transforms.analysis.full_pass import PreprocessingAnalysis
from transforms.expressions.model import Model
from warehouse.errors import ArtifactDamaged
from warehouse.files.artifact_differences import artifact_difference
from warehouse.files.artifacts import read_artifact
from warehouse.matching.checked_model import check_model
from warehouse.models.analyses import PlacedAnalysis, resolve_components
from warehouse.models.pinned_analyses import UsedAnalysis, analysis_identity, pinned_analyses
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import get_table
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class PlannedAnalysis:
    """The dry run of one analysis of a model.

    Attributes:
        state: ``new`` (no artifact is pinned), ``pinned`` (the range has other data than the pinned artifact),
            ``known`` (the current data was analyzed for another model), ``unchanged``.
        rows_pinned: the events of the pinned artifact; None without one.
        partitions_to_read: partitions without contributions, with ``rows_to_read`` events.
    """

    operator: str
    expression: str
    over: str
    state: str
    partitions: int
    partitions_to_read: int
    rows: int
    rows_to_read: int
    rows_pinned: int | None


@dataclass(frozen=True, slots=True)
class ChangedAnalysis:
    """An analysis that replaces a pinned one in the next submission of a model; ``difference`` in words."""

    operator: str
    expression: str
    over: str
    rows_before: int
    rows: int
    added: int
    removed: int
    moved: int
    difference: str


def plan_analyses(warehouse: Warehouse, model: Model, table: str | None = None) -> tuple[PlannedAnalysis, ...]:
    """The dry run of :func:`~pipelines.analysis.analyze.analyze_model`.

    An analysis over the result of a missing one is not listed. Raises the errors of a submission for a wrong model.
    """
    name = table or model.table or ""
    with warehouse.catalog.read() as connection:
        check_model(model, get_table(connection, name))
        pinned = pinned_analyses(connection, model.name)
    components = {item.name: item.component for item in model.inputs.values()}
    resolution = resolve_components(warehouse, components, name)
    known = [_known(one, pinned.get(one.analysis)) for one in resolution.used]
    there = known_contributions(
        warehouse.storage, (one.contribution for placed in resolution.missing for one in placed.partitions)
    )
    return (*known, *(_missing(there, placed, name, pinned) for placed in resolution.missing))


def _known(used: UsedAnalysis, pin: UsedAnalysis | None) -> PlannedAnalysis:
    state = "unchanged" if pin is not None and pin.artifact == used.artifact else "known"
    return PlannedAnalysis(used.operator, used.expression, used.over, state, used.partitions, 0, used.rows, 0,
                           None if pin is None else pin.rows)  # fmt: skip


def _missing(
    there: Set[str], placed: PlacedAnalysis, table: str, pinned: Mapping[str, UsedAnalysis]
) -> PlannedAnalysis:
    pin = pinned.get(analysis_identity(placed.analysis, table))
    whole = isinstance(placed.analysis, PreprocessingAnalysis)
    unread = [one for one in placed.partitions if whole or one.contribution not in there]
    return PlannedAnalysis(
        placed.analysis.operator, placed.analysis.text, str(placed.analysis.over), "new" if pin is None else "pinned",
        len(placed.partitions), len(unread), placed.rows, sum(one.rows for one in unread),
        None if pin is None else pin.rows)  # fmt: skip


def changed_analyses(
    storage: Storage, before: Mapping[str, UsedAnalysis], after: Mapping[str, UsedAnalysis]
) -> tuple[ChangedAnalysis, ...]:
    """The differences of the analyses in both sets whose results differ."""
    both = [(one, after[identity]) for identity, one in before.items() if identity in after]
    return tuple(_changed(storage, old, new) for old, new in both if old.artifact != new.artifact)


def _changed(storage: Storage, old: UsedAnalysis, new: UsedAnalysis) -> ChangedAnalysis:
    try:
        found = artifact_difference(
            new.operator, read_artifact(storage, old.artifact), read_artifact(storage, new.artifact)
        )
    except ArtifactDamaged as error:
        return ChangedAnalysis(
            new.operator, new.expression, new.over, old.rows, new.rows, 0, 0, 0, f"cannot be compared: {error.what}"
        )
    return ChangedAnalysis(
        new.operator, new.expression, new.over, old.rows, new.rows, found.added, found.removed, found.moved, found.text
    )
