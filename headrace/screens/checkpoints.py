"""Screens of ``headrace ckpt``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.dense_sums import sum_order_text
from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many, moment, time_text

if TYPE_CHECKING:
    from trainer.checkpoints.commit_manifest import JobPosition
    from trainer.checkpoints.inspection import (
        CommitChange,
        CommitDescription,
        CommitSummary,
        FileCheck,
        LedgerTotals,
        RunSummary,
        TableChange,
    )
    from trainer.job.launch.resharded_run import ReshardedRun

#: The most fragments and options in the text; the JSON has all.
_MOST_LINES = 12
#: Options that are only in the JSON: why the others were chosen.
_REASONS = ("chosen", "trial")


@dataclass(frozen=True, slots=True, repr=False)
class CheckpointsScreen(Listing):
    """The checkpoints of the run in ``folder``."""

    rows_field: ClassVar[str] = "checkpoints"
    columns: ClassVar[tuple[str, ...]] = (
        "name",
        "epochs",
        "attempt",
        "step",
        "events",
        "hosts",
        "size_bytes",
        "rule",
        "problem",
        "written",
    )

    folder: str
    run: RunSummary

    def json_fields(self) -> dict[str, Any]:
        """The checkpoints, newest first, and the parts that none of them names."""
        return {
            "run": self.folder,
            "checkpoints": [_summary_fields(one) for one in self.run.commits],
            "unnamed_attempts": self.run.unnamed_attempts,
            "unnamed_bytes": self.run.unnamed_bytes,
        }

    def render(self) -> RenderableType:
        """One line per checkpoint; a torn one with its reason."""
        lines: list[RenderableType] = [grid(
            ("epoch>", "attempt>", "step>", "events>", "hosts>", "size>", "written", "kept by"),
            [_summary_cells(one) for one in self.run.commits],
        )]  # fmt: skip
        lines += [f"{one.name} is torn: {one.problem}" for one in self.run.commits if one.problem]
        if self.run.unnamed_attempts:
            lines.append(
                f"parts that no checkpoint names: {many(self.run.unnamed_attempts, 'attempt')}, "
                f"{bytes_text(self.run.unnamed_bytes)}"
            )
        return Group(*lines)


def _summary_fields(one: CommitSummary) -> dict[str, Any]:
    return {**fields_of(one, "written_secs"), "written": moment(one.written_secs)}


def _summary_cells(one: CommitSummary) -> tuple[str, ...]:
    written = time_text(moment(one.written_secs))
    if one.problem:
        return str(one.epochs), "-", "-", "-", "-", "-", written, f"torn, {one.rule}" if one.rule else "torn"
    attempt = "-" if one.attempt is None else str(one.attempt)
    numbers = (count_text(one.step), count_text(one.events), str(one.hosts), bytes_text(one.size_bytes))
    return str(one.epochs), attempt, *numbers, written, one.rule or "no rule"


@dataclass(frozen=True, slots=True, repr=False)
class CheckpointScreen(Shown):
    """What a checkpoint holds.

    Attributes:
        calibrations: the map of each label's predictions in words.
    """

    folder: str
    description: CommitDescription
    calibrations: tuple[str, ...] = ()

    def json_fields(self) -> dict[str, Any]:
        """The description; ``job`` is null for a checkpoint of a single process."""
        return {
            "run": self.folder,
            **_summary_fields(self.description.summary),
            **fields_of(self.description, "summary"),
        }

    def render(self) -> RenderableType:
        """Position, tables, arrays, counters and options."""
        found = self.description
        parts: list[RenderableType] = [facts(self.position())]
        if found.parts:
            rows = [(one.host, one.folder, count_text(one.rows), bytes_text(one.size_bytes)) for one in found.parts]
            parts += ["", grid(("host", "part", "rows>", "size>"), rows, title="parts")]
        if found.tables:
            tables = [
                (one.kind, one.table, count_text(one.rows), str(one.dim), bytes_text(one.size_bytes))
                for one in found.tables
            ]
            parts += ["", grid(("kind", "table", "rows>", "width>", "size>"), tables, title="tables, with slots")]
        if found.arrays:
            arrays = [
                (one.name, one.dtype, " x ".join(map(str, one.shape)) or "-", bytes_text(one.size_bytes))
                for one in found.arrays
            ]
            parts += ["", grid(("array", "type", "shape", "size>"), arrays, title="other arrays")]
        options = [(name, _option_text(value)) for name, value in found.options.items() if name not in _REASONS]
        return Group(*parts, "", facts(options, title="options"))

    def position(self) -> list[tuple[str, str]]:
        """Where the run is, its figures, and what its events are, by name."""
        found, job = self.description, self.description.job
        summary = found.summary
        pairs = [
            ("checkpoint", f"{summary.name}, written {time_text(moment(summary.written_secs))}"),
            ("trained", f"{many(summary.events, 'event')} in {many(summary.epochs, 'epoch')}, step {count_text(summary.step)}"),
            *([] if found.partition is None else [("partition", found.partition)]),
            ("data", f"table {found.source}, {many(found.partitions, 'partition')}: {self._range()}"),
            ("label", found.label),
            ("inputs", ", ".join(found.inputs)),
        ]  # fmt: skip
        if job is not None:
            pairs += [
                ("attempt", f"{job.attempt}, next unit {count_text(job.next_unit)}, {_carried_text(job)}"),
                ("plan", job.plan),
                ("release", job.release or "-"),
                *([("dense sums", sum_order_text(job.sum_order))] if job.sum_order else []),
            ]
        pairs.append(("scores", ", ".join(f"{name} {_figure(value)}" for name, value in found.scores.items())))
        pairs += [("calibration", text) for text in self.calibrations]
        if found.batch_files:
            pairs.append(("batch files", f"{count_text(len(found.batch_files))}, the newest {found.batch_files[-1]}"))
        pairs.append(("counters", _totals_text(found.ledger)))
        if found.labels_bytes:
            pairs.append(("labels", f"recorded as trained, {bytes_text(found.labels_bytes)}"))
        return [*pairs, ("digest", found.digest)]

    def _range(self) -> str:
        first, last = self.description.first_partition, self.description.last_partition
        return first if first == last else f"{first} to {last}"


def _figure(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else "-" if value is None else str(value)


def _option_text(value: object) -> str:
    if isinstance(value, dict) and value:
        return f"of {many(len(value), 'input')}"
    return str(value).lower() if isinstance(value, bool) else str(value) if value not in ([], {}, "") else "-"


def _carried_text(job: JobPosition) -> str:
    """What of the begun units is not trained."""
    if job.carried_units:
        return f"{many(len(job.carried_units), 'unit')} carried"
    return f"{many(sum(one.stop - one.first for one in job.carried), 'event')} carried"


def _totals_text(ledger: LedgerTotals | None) -> str:
    if ledger is None:
        return "events are not counted"
    times = many(ledger.least, "time") if ledger.least == ledger.most else f"{ledger.least} to {ledger.most} times"
    return (
        f"{many(ledger.events, 'event')} of {many(ledger.fragments, 'fragment')}, each trained {times}, "
        f"{count_text(ledger.trained)} trainings"
    )


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonScreen(Shown):
    """How two checkpoints differ."""

    folder: str
    change: CommitChange

    def json_fields(self) -> dict[str, Any]:
        """The two checkpoints and every difference; ``ledger`` is null if one of them has no counters."""
        change = self.change
        return {
            "run": self.folder,
            **fields_of(change, "before", "after"),
            "before": _summary_fields(change.before),
            "after": _summary_fields(change.after),
        }

    def render(self) -> RenderableType:
        """Rows of tables, norms of changes, and counters."""
        change = self.change
        steps, events = change.after.step - change.before.step, change.after.events - change.before.events
        parts: list[RenderableType] = [
            f"from {change.before.name} to {change.after.name}: {count_text(steps)} steps, {count_text(events)} events"
        ]
        if change.tables:
            columns = ("kind", "table", "rows>", "added>", "removed>", "changed>", "change of weights>", "of slots>")
            parts += ["", grid(columns, [_table_cells(one) for one in change.tables], title="tables")]
        if change.arrays:
            rows = [(one.name, _norm_text(one.norm), _norm_text(one.change)) for one in change.arrays]
            parts += ["", grid(("array", "norm>", "change>"), rows, title="other arrays, Euclidean norms")]
        parts += ["", *self._ledger_lines(), *self._option_lines()]
        return Group(*parts)

    def _ledger_lines(self) -> Sequence[RenderableType]:
        found = self.change.ledger
        if found is None:
            return ["counters: not in both checkpoints"]
        if not found:
            return ["counters: equal"]
        text = f"{many(sum(one.trained for one in found), 'training')} of events of {many(len(found), 'fragment')}"
        rows = [(one.fragment, count_text(one.events), count_text(one.trained)) for one in found[:_MOST_LINES]]
        return [grid(("fragment", "events>", "trainings>"), rows, title=f"counters: {text}"), *_more(len(found))]

    def _option_lines(self) -> Sequence[RenderableType]:
        rows = [(name, str(one), str(other)) for name, (one, other) in self.change.options.items()]
        return ["", grid(("option", "before", "after"), rows)] if rows else ["options: equal"]


def _more(count: int) -> list[str]:
    return [f"{count - _MOST_LINES:,} more: --json lists all"] if count > _MOST_LINES else []


def _table_cells(one: TableChange) -> tuple[str, ...]:
    counts = (one.after, one.added, one.removed, one.changed)
    return one.kind, one.table, *map(count_text, counts), _norm_text(one.weights_norm), _norm_text(one.slots_norm)


def _norm_text(norm: float | None) -> str:
    return "other shape" if norm is None else f"{norm:.4g}"


@dataclass(frozen=True, slots=True, repr=False)
class VerifiedRunScreen(Shown):
    """The result of each file of the checkpoints of a run."""

    folder: str
    files: tuple[FileCheck, ...]

    @property
    def torn(self) -> tuple[str, ...]:
        """The checkpoints with a damaged file."""
        return tuple(dict.fromkeys(one.commit for one in self.files if one.problem))

    def json_fields(self) -> dict[str, Any]:
        """Every file, and the torn checkpoints."""
        return {"run": self.folder, "torn": list(self.torn), "files": [fields_of(one) for one in self.files]}

    def render(self) -> RenderableType:
        """One line per file, then the sum."""
        rows = [
            (one.commit, one.path.removeprefix(f"{one.commit}/"), one.holds, bytes_text(one.size_bytes),
             one.problem or "intact")
            for one in self.files
        ]  # fmt: skip
        table = grid(("checkpoint", "file", "holds", "size>", "result*"), rows)
        commits = len({one.commit for one in self.files})
        read = f"{many(len(self.files), 'file')} of {many(commits, 'checkpoint')}, {bytes_text(sum(one.size_bytes for one in self.files))}"
        if not self.torn:
            return Group(table, f"all intact: {read}")
        return Group(table, f"torn: {', '.join(self.torn)}; {read}",
                     "a torn checkpoint is skipped: training continues from the newest intact one")  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class ReshardedScreen(Shown):
    """A run that was written in another partition.

    Attributes:
        folder, output: the run that was read, and the new one.
        done: what was written.
        cores: of the new partition.
        plan: its file; empty for hosts.
        towers: the file of the hosts' towers; empty for none.
    """

    folder: str
    output: str
    done: ReshardedRun
    cores: int
    plan: str
    towers: str

    def json_fields(self) -> dict[str, Any]:
        """The two runs, the checkpoint, and the numbers of parts."""
        return {
            "run": self.folder,
            "output": self.output,
            "checkpoint": self.done.name,
            "plan": self.plan or None,
            "towers": self.towers or None,
            "parts_before": self.done.parts_before,
            "parts": self.cores,
            **fields_of(self.done.resharded),
        }

    def render(self) -> RenderableType:
        """What was written, and the next step."""
        found = self.done.resharded
        partition = f"the plan {self.plan}" if self.plan else many(self.cores, "host")
        if self.towers:
            partition += f" with the towers of {self.towers}"
        return facts([
            ("checkpoint", f"{self.done.name} of {self.folder}"),
            ("new run", self.output),
            ("partition", f"{partition}; {many(self.done.parts_before, 'part')} before, {self.cores} now"),
            ("rows", f"{count_text(found.rows)} of {many(found.tables, 'table')}"),
            ("size", bytes_text(found.size_bytes)),
            ("next", "headrace train MODEL --run-dir with the new run continues it"),
        ])  # fmt: skip
