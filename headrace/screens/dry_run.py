"""The screen of ``headrace model submit --dry-run``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.screens.grid import facts, grid
from headrace.screens.units import bytes_text, count_text, many, secs_text


@dataclass(frozen=True, slots=True)
class PlannedInputRow:
    """What becomes of one input's pairs with fragments. ``reasons``: why, by how many fragments."""

    input: str
    hits: int
    shared: int
    queued: int
    failed: int
    computed: int
    dropped: int
    changes: tuple[str, ...]
    reasons: dict[str, int]

    @property
    def why(self) -> str:
        """The reasons, with their counts where there are several, and what differs from the version before."""
        several = len(self.reasons) > 1
        said = "; ".join(f"{count_text(n)}: {text}" if several else text for text, n in self.reasons.items())
        if not self.changes:
            return said
        return f"{said}; {'new input' if self.changes == ('new',) else 'changed: ' + ', '.join(self.changes)}"


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """What submitting one model would do. Seconds are of one core, and estimated, as the bytes of memos are."""

    model: str
    version: int
    client: str
    table: str
    policy: str
    unchanged: bool
    changes: tuple[str, ...]
    inputs: tuple[PlannedInputRow, ...]
    missing_analyses: tuple[str, ...]
    pinned: tuple[str, ...]
    queued_tasks: int
    queued_rows: int
    queued_secs: float
    queued_bytes: int


@dataclass(frozen=True, slots=True)
class DryRunScreen:
    """The models of one file, as submitting them would go."""

    models: tuple[PlannedRow, ...]

    def render(self) -> RenderableType:
        """A part a model, and the next step."""
        parts = [part for model in self.models for part in (*_parts(model), "")]
        refused = any(model.missing_analyses for model in self.models)
        next_step = (
            "headrace analyze with this file, or submit it with --analyze"
            if refused
            else "the same command without --dry-run"
        )
        return Group(*parts, f"nothing was changed; next: {next_step}")


def _parts(model: PlannedRow) -> tuple[RenderableType, ...]:
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
    pairs += [("to be analyzed first", one) for one in model.missing_analyses]
    pairs += [("stays as analyzed", one) for one in model.pinned]
    pairs.append(("queued now", _queued(model)))
    rows = (
        (one.input, *map(count_text, (one.hits, one.shared, one.queued)), _others(one), one.why) for one in model.inputs
    )
    columns = ("input", "memoized>", "queued already>", "queued now>", "otherwise", "why*")
    return Text(head), facts(pairs), grid(columns, rows)


def _queued(model: PlannedRow) -> str:
    if not model.queued_tasks:
        return "nothing"
    return (f"{many(model.queued_tasks, 'task')}, {many(model.queued_rows, 'row')} in all, about "
            f"{secs_text(model.queued_secs)} of one core, about {bytes_text(model.queued_bytes)} of memos")  # fmt: skip


def _others(one: PlannedInputRow) -> str:
    counts = (("failed", one.failed), ("computed when read", one.computed), ("dropped", one.dropped))
    return ", ".join(f"{count_text(count)} {what}" for what, count in counts if count)
