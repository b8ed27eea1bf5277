"""The screen of ``headrace model submit --dry-run``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many, secs_text

if TYPE_CHECKING:
    from warehouse.matching.dry_run import PlannedInput, PlannedSubmission, PlannedWork
    from warehouse.matching.model_match import Counts


@dataclass(frozen=True, slots=True, repr=False)
class DryRunScreen(Shown):
    """What submitting the models of one file would do."""

    models: tuple[PlannedSubmission, ...]

    def json_fields(self) -> dict[str, Any]:
        """The models; the counts of queued work are fields of the model."""
        return {"models": [_model_fields(model) for model in self.models]}

    def render(self) -> RenderableType:
        """One part per model, and the next step."""
        parts = [part for model in self.models for part in (*_parts(model), "")]
        refused = any(model.missing_analyses for model in self.models)
        next_step = (
            "headrace analyze with this file, or submit it with --analyze"
            if refused
            else "the same command without --dry-run"
        )
        return Group(*parts, f"nothing was changed; next: {next_step}")


def _model_fields(model: PlannedSubmission) -> dict[str, Any]:
    work = model.work
    return {
        **fields_of(model, "work"),
        "inputs": [_input_fields(one) for one in model.inputs],
        "queued_tasks": work.tasks,
        "queued_rows": work.rows,
        "queued_secs": work.secs,
        "queued_bytes": round(work.memo_bytes),
    }


def _input_fields(one: PlannedInput) -> dict[str, Any]:
    return {"input": one.name, **fields_of(one.counts), "changes": one.changes, "reasons": dict(one.reasons)}


def _parts(model: PlannedSubmission) -> tuple[RenderableType, ...]:
    head = (
        f"model {model.model} is unchanged: version {model.version} stays"
        if model.unchanged
        else f"model {model.model} would be submitted as version {model.version}"
    )
    if model.missing_analyses:
        count = len(model.missing_analyses)
        passes = "1 full pass is" if count == 1 else f"{count_text(count)} full passes are"
        head = f"model {model.model} would be refused: {passes} missing"
    pairs = [("client, table, policy", f"{model.client}, {model.table}, {model.policy}")]
    pairs += [("changes", "; ".join(model.changes))] if model.changes else []
    pairs += [("missing analysis", one) for one in model.missing_analyses]
    pairs += [("pinned analysis", one) for one in model.pinned]
    pairs.append(("queued now", _queued(model.work)))
    rows = (
        (
            one.name,
            *map(count_text, (one.counts.hits, one.counts.shared, one.counts.queued)),
            _others(one.counts),
            _why(one),
        )
        for one in model.inputs
    )
    columns = ("input", "memoized>", "queued already>", "queued now>", "otherwise", "why*")
    return Text(head), facts(pairs), grid(columns, rows)


def _why(one: PlannedInput) -> str:
    """The reasons, with counts if there are several, and the changes from the previous version."""
    several = len(one.reasons) > 1
    said = "; ".join(f"{count_text(n)}: {text}" if several else text for text, n in one.reasons)
    if not one.changes:
        return said
    return f"{said}; {'new input' if one.changes == ('new',) else 'changed: ' + ', '.join(one.changes)}"


def _queued(work: PlannedWork) -> str:
    if not work.tasks:
        return "nothing"
    return (
        f"{many(work.tasks, 'task')}, {many(work.rows, 'row')} in total, about "
        f"{secs_text(work.secs)} of one core, about {bytes_text(round(work.memo_bytes))} of memos"
    )


def _others(counts: Counts) -> str:
    shown = (("failed", counts.failed), ("computed when read", counts.computed), ("dropped", counts.dropped),
             ("after joined columns", counts.unjoined))  # fmt: skip
    return ", ".join(f"{count_text(count)} {what}" for what, count in shown if count)
