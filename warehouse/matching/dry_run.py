"""Plan submissions: what submitting models would do. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from transforms.comparison.difference import difference
from transforms.expressions.model import Model
from transforms.graphs.graph import component_document
from warehouse.costs.work_estimates import load_estimates
from warehouse.matching.causes import find_causes
from warehouse.matching.checked_model import CheckedModel, check_models
from warehouse.matching.decision import Decision
from warehouse.matching.explain import decisions_of, versions_of
from warehouse.matching.match import MemoAction, MemoMatch
from warehouse.matching.model_match import Counts, MatchResult, count_inputs, match_model
from warehouse.matching.plan_context import PlanContext
from warehouse.matching.submit import blocks, settings_changed
from warehouse.memos.coverage import find_coverage
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import ModelRecord, StoredInput, find_model, stored_inputs
from warehouse.models.pinned_analyses import UsedAnalysis
from warehouse.models.version_changes import task_text
from warehouse.tables.manifests import current_units, get_table
from warehouse.tables.table import Table
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class PlannedInput:
    """The plan of one input: its pairs with fragments, with reasons.

    Attributes:
        name: the input's name.
        counts: its pairs, as a submission counts them.
        changes: what differs from the previous version's input of this name.
        reasons: reasons, each with its number of fragments.
    """

    name: str
    counts: Counts
    changes: tuple[str, ...]
    reasons: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class PlannedWork:
    """The work that would be queued: tasks, their rows, estimated core seconds and bytes of memos."""

    tasks: int = 0
    rows: int = 0
    secs: float = 0.0
    memo_bytes: float = 0.0

    def __add__(self, other: PlannedWork) -> PlannedWork:
        return PlannedWork(
            self.tasks + other.tasks,
            self.rows + other.rows,
            self.secs + other.secs,
            self.memo_bytes + other.memo_bytes,
        )


@dataclass(frozen=True)
class PlannedSubmission:
    """What submitting one model would do.

    Attributes:
        version: the version that the model would have, or keeps if it is ``unchanged``.
        changes: what else differs from the previous version: settings, label, table, inputs that are gone.
        inputs: those that can be matched; without those that need ``missing_analyses``.
        missing_analyses: full passes that are needed first; with any, submitting is refused.
        pinned: analyses that the model keeps although their ranges hold other data now.
        work: what would be queued, subgraphs that the policy keeps included.
    """

    model: str
    version: int
    client: str
    table: str
    policy: str
    unchanged: bool
    changes: tuple[str, ...]
    inputs: tuple[PlannedInput, ...]
    missing_analyses: tuple[str, ...]
    pinned: tuple[str, ...]
    work: PlannedWork


def plan_submissions(
    warehouse: Warehouse, models: Sequence[Model], *, table: str | None = None, policy: str | None = None
) -> tuple[PlannedSubmission, ...]:
    """Plan the submission of the models one after the other.

    The memos that an earlier model would queue are shared by the later ones. Raises what submitting raises, except
    for missing analyses.
    """
    queued: set[str] = set()
    return tuple(_plan(warehouse, one, queued) for one in check_models(warehouse, models, table=table, policy=policy))


def _plan(warehouse: Warehouse, checked: CheckedModel, queued: set[str]) -> PlannedSubmission:
    model = checked.model
    with warehouse.catalog.read() as connection:
        known = get_table(connection, checked.table.name)
        before = find_model(connection, model.name)
        record, unchanged = _record(checked, known, before)
        found = _match(connection, warehouse, known, record, checked, queued)
        earlier = {} if before is None else {one.name: one for one in stored_inputs(connection, before.id)}
    planned = (
        PlannedInput(
            item.name, found.counts[item.name], _input_changes(item, earlier, before), found.reasons(item.name)
        )
        for item in checked.inputs
    )
    changes = (*settings_changed(before, record), *_model_changes(model, known, before, earlier))
    missing = tuple(one.describe() for one in checked.missing)
    pinned = tuple(_outdated(one) for one in checked.analyses if not one.is_current)
    return PlannedSubmission(model.name, record.version, model.client, known.name, record.policy, unchanged, changes,
                             tuple(planned), missing, pinned, found.work)  # fmt: skip


def _outdated(one: UsedAnalysis) -> str:
    return (
        f"{one.operator}({one.expression}) over {one.over}: {one.rows:,} events were analyzed, "
        f"{one.rows_now or 0:,} are there now"
    )


def _record(checked: CheckedModel, table: Table, before: ModelRecord | None) -> tuple[ModelRecord, bool]:
    """The record that a submission would write, and whether the newest version is it already."""
    model = checked.model
    unchanged = not checked.missing and before is not None and before.digest == checked.digest
    version = before.version + (not unchanged) if before else 1
    record = ModelRecord(
        id=before.id if before and unchanged else 0, name=model.name, version=version, client=model.client,
        priority=model.priority, label=model.label, table=table.name, table_version=table.version,
        digest=checked.digest, live=True, submitted_at=0.0,
        policy=checked.policy or (before.policy if before else "all"), target=model.target)  # fmt: skip
    return record, unchanged


class _Found:
    """Sums over blocks of fragments."""

    def __init__(self, inputs: Sequence[StoredInput]) -> None:
        self.counts = {item.name: Counts() for item in inputs}
        self.work = PlannedWork()
        self._reasons = {item.name: Counter[str]() for item in inputs}

    def add(self, counts: Mapping[str, Counts], decisions: Sequence[Decision], work: PlannedWork) -> None:
        """Add a block."""
        for name, more in counts.items():
            self.counts[name] += more
        for one in decisions:
            self._reasons[one.input][one.reason] += 1
        self.work += work

    def reasons(self, name: str) -> tuple[tuple[str, int], ...]:
        """Reasons with their numbers, most frequent first."""
        return tuple(self._reasons[name].most_common())


def _match(
    connection: Connection,
    warehouse: Warehouse,
    table: Table,
    record: ModelRecord,
    checked: CheckedModel,
    queued: set[str],
) -> _Found:
    """Match the model as submitting does; adds the memos that it would queue to ``queued``."""
    inputs, graph = checked.inputs, checked.graph
    found = _Found(inputs)
    if not inputs:
        return found
    fragments = current_units(connection, table.name)
    context = PlanContext(connection, warehouse.config, table, fragments, warehouse.clock())
    coverage = find_coverage(connection, graph.columns(graph.operations), fragments)
    decision = context.keep_decision(record, graph)
    mine = versions_of(connection, record.name)
    for first, last in blocks(len(fragments), len(inputs)):
        part = coverage.part(first, last)
        here = match_model(connection, inputs, fragments[first:last], decision, coverage=part)
        here = _without(here, queued)
        new = [one for one in here.all_matches if one.action is MemoAction.QUEUE]
        queued |= {one.request.memo_key for one in new}
        causes = find_causes(connection, table.name, new, graph.operations, here.rows)
        decisions = [decision for _, decision in decisions_of(here, causes, mine, record.policy)]
        found.add(count_inputs(here), decisions, _work(connection, graph, new))
    return found


def _without(found: MatchResult, queued: set[str]) -> MatchResult:
    """The result once those memos are queued."""

    def after(one: MemoMatch) -> MemoMatch:
        is_waiting = one.action is MemoAction.QUEUE and one.request.memo_key in queued
        return replace(one, action=MemoAction.WAIT, record=None) if is_waiting else one

    matches = {name: {at: after(one) for at, one in places.items()} for name, places in found.matches.items()}
    return replace(found, matches=matches)


def _work(connection: Connection, graph: MergedGraph, new: Sequence[MemoMatch]) -> PlannedWork:
    documents = {one: component_document(graph.operations[one]) for one in {each.request.fingerprint for each in new}}
    estimates = load_estimates(connection, documents)
    work = PlannedWork()
    for one in new:
        rows, estimate = one.request.placed.fragment.rows, estimates[one.request.fingerprint]
        work += PlannedWork(1, rows, estimate.secs(rows), estimate.row_bytes * rows)
    return work


def _input_changes(
    item: StoredInput, earlier: Mapping[str, StoredInput], before: ModelRecord | None
) -> tuple[str, ...]:
    if before is None:
        return ()
    if item.name not in earlier:
        return ("new",)
    return difference(earlier[item.name].component, item.component).sentences


def _model_changes(
    model: Model, table: Table, before: ModelRecord | None, earlier: Mapping[str, StoredInput]
) -> tuple[str, ...]:
    """Changes since the previous version, without settings and the inputs' expressions."""
    if before is None:
        return ()
    pairs = (
        ("label", before.label, model.label),
        ("task", task_text(before.target), task_text(model.target)),
        ("table", before.table, table.name),
    )
    changes = [f"{what}: {old} -> {new}" for what, old, new in pairs if old != new]
    gone = [name for name in earlier if name not in model.inputs]
    changes += [f"input {name} is gone" for name in gone]
    kept = [name for name in model.inputs if name in earlier]
    if kept != [name for name in earlier if name in model.inputs]:
        changes.append("the inputs have another order")
    return tuple(changes)
