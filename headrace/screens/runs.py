"""Screens of ``headrace runs``: the runs of a home, one run, and the differences between two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.score_figures import (
    FigureTable,
    figure_table,
    figure_text,
    score_fields,
    scores_by_label,
    shown_figures,
)
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import count_text, many, moment, time_text

if TYPE_CHECKING:
    from headrace.runs.comparison import Difference, RunComparison
    from headrace.runs.history import History
    from headrace.runs.trained_run import TrainedEpoch, TrainedRun

#: Options that are only in the JSON: why the others were chosen.
_REASONS = ("chosen", "trial")
_MOST_EPOCHS = 20


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of a home.

    Attributes:
        run: as its newest commit describes it; None for one without commits, or with none that can be read.
        folder: of the run.
        name: the name of the folder.
        state: "training", "waiting", "idle", "held", or "damaged".
        problem: why it has no figures; "" if it has.
    """

    run: TrainedRun | None
    folder: str
    name: str
    state: str
    problem: str = ""

    def json_fields(self) -> dict[str, Any]:
        """The fields, with the newest figures."""
        own = self.run
        found: dict[str, Any] = {"run": self.name, "folder": self.folder, "state": self.state, "problem": self.problem}
        if own is None:
            return found
        return {
            **found,
            "table": own.identity.table,
            "commit": own.commit,
            "epochs": own.epochs_done,
            "step": own.step,
            "events": own.events,
            "committed": moment(own.committed_secs),
            "newest": None if own.newest is None else score_fields(own.newest),
        }


@dataclass(frozen=True, slots=True, repr=False)
class RunsScreen(Listing):
    """The runs in ``folder``, those with the newest commits first."""

    rows_field: ClassVar[str] = "runs"
    columns: ClassVar[tuple[str, ...]] = (
        "run",
        "folder",
        "state",
        "problem",
        "table",
        "commit",
        "epochs",
        "step",
        "events",
        "committed",
        "newest",
    )

    folder: str
    runs: tuple[RunRow, ...]

    def figures(self) -> FigureTable[RunRow]:
        """The newest figures of each run on events that its model had not seen."""
        return figure_table((row, None if row.run is None else row.run.newest) for row in self.runs)

    def render(self) -> RenderableType:
        """One line per run and label, with the newest figures on events that the model had not seen."""
        if not self.runs:
            return f"no run in {self.folder}\nnext: headrace train MODEL"
        found = self.figures()
        titles = ("run", "state", "commit>", "step>", "events>", *(["label"] if found.has_labels else []), *(f"{one}>" for one in found.headings), "committed")  # fmt: skip
        table = grid(
            titles,
            (
                (*_place(one.of), *([one.label] if found.has_labels else []), *one.cells,
                 "-" if one.of.run is None else time_text(moment(one.of.run.committed_secs)))
                for one in found.rows
            ),
        )  # fmt: skip
        problems = [f"{row.name}: {row.problem}" for row in self.runs if row.problem]
        return Group(table, *problems)


def _place(row: RunRow) -> tuple[str, ...]:
    own = row.run
    if own is None:
        return row.name, row.state, "-", "-", "-"
    return row.name, row.state, str(own.commit), count_text(own.step), count_text(own.events)


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option of a run; ``reason``: why training chose its value, empty if it was given."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class RunScreen(Shown):
    """One run.

    Attributes:
        run: as its newest commit describes it.
        state: see :class:`RunRow`.
    """

    run: TrainedRun
    state: str

    def history(self) -> History:
        """The figures of its windows and commits, as columns. Raises :class:`~transforms.errors.NotFound` for a run of a release that kept none."""
        from headrace.runs.open_history import history_of

        return history_of(self.run)

    def json_fields(self) -> dict[str, Any]:
        """All of it but the windows, which ``headrace runs plot --json`` has."""
        own = self.run
        return {
            **RunRow(own, own.folder, own.name, self.state).json_fields(),
            "label": own.identity.label,
            "inputs": [one["name"] for one in own.identity.inputs],
            "first_partition": own.partitions[0] if own.partitions else None,
            "last_partition": own.partitions[-1] if own.partitions else None,
            "partitions": len(own.partitions),
            "commits": list(own.commits),
            "windows": 0 if own.history is None else len(own.history.windows),
            "window_steps": None if own.history is None else own.history.window_steps,
            "history_begins_at_step": None if own.history is None else own.history.first_step,
            "options": dict(own.options),
            "epochs_trained": [
                {"epoch": one.epoch, "pass": one.pass_number + 1, "partitions": list(one.partitions), **score_fields(one.scores)}
                for one in own.epochs
            ],
            "held_out": None if own.held_out is None else score_fields(own.held_out),
            "skipped": list(own.skipped),
        }  # fmt: skip

    def place(self) -> list[tuple[str, str]]:
        """How far the run is, its data, and what is kept of it, by name."""
        own, history = self.run, self.run.history
        kept = "none: an earlier release trained it" if history is None else f"{many(len(history.windows), 'window')} of up to {many(history.window_steps, 'step')}"  # fmt: skip
        if history is not None and history.first_step:
            kept += f", from step {count_text(history.first_step)} on"
        return [
            ("run", own.folder),
            ("state", self.state),
            ("trained", f"{many(own.epochs_done, 'epoch')}, {many(own.step, 'step')}, {many(own.events, 'event')}"),
            ("table", f"{own.identity.table}, label {own.identity.label}, {many(len(own.identity.inputs), 'input')}"),
            ("data", _partition_range(own)),
            ("commits", ", ".join(map(str, own.commits[:12])) + (", …" if len(own.commits) > 12 else "")),
            ("history", kept),
        ]

    def render(self) -> RenderableType:
        """The run, its data, its figures by epoch, and its options."""
        own = self.run
        parts: list[RenderableType] = [facts(self.place())]
        parts += [f"passed over: {one}" for one in own.skipped]
        if own.epochs:
            parts += ["", _epoch_table(own)]
        if own.held_out is not None:
            figures = "; ".join(f"{label + ': ' if label else ''}{_sentence(scores)}" for label, scores in scores_by_label(own.held_out).items())  # fmt: skip
            parts += ["", f"held-out events: {figures}"]
        parts += ["", facts([(one.name, one.value) for one in self.options()], title="options")]
        return Group(*parts)

    def options(self) -> tuple[OptionRow, ...]:
        """The options that weights depend on, by name."""
        reasons = self.run.options.get("chosen") or {}
        named = sorted(self.run.options.keys() - set(_REASONS))
        return tuple(OptionRow(name, option_text(self.run.options[name]), str(reasons.get(name, ""))) for name in named)


def _partition_range(run: TrainedRun) -> str:
    if not run.partitions:
        return "none"
    ends = run.partitions[0] if len(run.partitions) == 1 else f"{run.partitions[0]} to {run.partitions[-1]}"
    return f"{ends}, {many(len(run.partitions), 'partition')}"


def _sentence(scores: Any) -> str:
    return ", ".join(f"{name} {text}" for name, text in shown_figures(scores).items())


def _epoch_table(run: TrainedRun) -> RenderableType:
    shown = newest_epochs(run)
    found = figure_table((one, one.scores) for one in shown)
    titles = ("epoch>", "pass>", "first partition", "last partition", *(["label"] if found.has_labels else []), "events>", *(f"{one}>" for one in found.headings))  # fmt: skip
    title = "epochs" if len(shown) == len(run.epochs) else f"the newest {len(shown)} of {many(len(run.epochs), 'epoch')}"  # fmt: skip
    return grid(
        titles,
        (
            (str(one.of.epoch), str(one.of.pass_number + 1), one.of.partitions[0], one.of.partitions[-1],
             *([one.label] if found.has_labels else []), count_text(one.events or 0), *one.cells)
            for one in found.rows
        ),
        title=title,
    )  # fmt: skip


def newest_epochs(run: TrainedRun) -> tuple[TrainedEpoch, ...]:
    """The epochs that a screen shows: the newest ones, ascending."""
    return run.epochs[-_MOST_EPOCHS:]


@dataclass(frozen=True, slots=True, repr=False)
class EventFilesScreen(Shown):
    """The event files of a run.

    Attributes:
        run: the folder of the run.
        folder: of the files.
        points: that were written now.
    """

    run: str
    folder: str
    points: int

    def render(self) -> RenderableType:
        """One line, and the command that shows them."""
        return f"{many(self.points, 'new point')} in {self.folder}\nnext: tensorboard --logdir {self.folder}"


@dataclass(frozen=True, slots=True, repr=False)
class RunDiffScreen(Shown):
    """The differences between two runs.

    Attributes:
        first, second: the names of the runs.
        comparison: what differs.
    """

    first: str
    second: str
    comparison: RunComparison

    def json_fields(self) -> dict[str, Any]:
        """The differences by kind; each has the values of both runs."""
        return {"first": self.first, "second": self.second, **fields_of(self.comparison)}

    def render(self) -> RenderableType:
        """A table for each kind of difference."""
        found = self.comparison
        parts: list[RenderableType] = [facts([("first", self.first), ("second", self.second)])]
        for title, rows in (("options", found.options), ("data", found.data)):
            parts += ["", grid((title, "first*", "second*"), map(_cells, rows))] if rows else ["", f"{title}: the same"]
        if found.inputs:
            parts += ["", grid(("input", "difference"), ((one.name, one.change) for one in found.inputs))]
        else:
            parts += ["", "inputs: the same"]
        if found.figures:
            rows_of_figures = ((one.name, value_text(one.first), value_text(one.second), change_text(one)) for one in found.figures)  # fmt: skip
            parts += ["", grid(("newest unseen events", "first>", "second>", "change>"), rows_of_figures)]
        if found.common_epochs:
            parts += ["", _common_epochs(found.common_epochs)]
        return Group(*parts)


def normalized_losses(rows: tuple[Difference, ...]) -> list[str]:
    """The names of the normalized losses of epochs on the same events."""
    return (
        [name for name in rows[-1].first if name.endswith(("normalized_entropy", "normalized_error"))] if rows else []
    )


def _common_epochs(rows: tuple[Difference, ...]) -> RenderableType:
    names = normalized_losses(rows)
    titles = ("on the same events", *(f"{name}{which}>" for name in names for which in (", first", ", second")))
    return grid(titles, (
        (one.name, *(value_text(values.get(name)) for name in names for values in (one.first, one.second)))
        for one in rows[-_MOST_EPOCHS:]
    ))  # fmt: skip


def _cells(one: Difference) -> tuple[str, str, str]:
    return one.name, option_text(one.first), option_text(one.second)


def option_text(value: Any) -> str:
    """The value of an option, in words."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def value_text(value: float | int | None) -> str:
    """A figure or a count; "-" if it is undefined."""
    return count_text(value) if isinstance(value, int) else figure_text(value)


def change_text(one: Difference) -> str:
    """The second value less the first."""
    if one.first is None or one.second is None:
        return "-"
    change = one.second - one.first
    return f"{change:+,}" if isinstance(change, int) else f"{change:+.4f}"
