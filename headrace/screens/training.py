"""The screen of ``headrace train``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.dense_sums import dense_sums_text
from headrace.screens.evaluations import EvaluationRow, evaluation_table
from headrace.screens.hot_rows import hot_row_lines
from headrace.screens.json_fields import fields_of
from headrace.screens.pruning import nothing_pruned_text
from headrace.screens.score_figures import (
    figure_text,
    score_fields,
    scores_by_label,
    scores_by_task,
    sentence_of,
    shown_figures,
)
from headrace.screens.shown import Shown
from headrace.screens.tower_exchange import tower_lines
from headrace.screens.verdict import trial_table, verdict_lines
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many, percent_text, secs_text

if TYPE_CHECKING:
    from headrace.runs.history import History
    from headrace.screens.plan_history import FollowedPlanRow
    from headrace.screens.training_figures import PlacementRow, PrunedRow, ServedRow
    from trainer.model.scores import AnyScores
    from trainer.options.trial_record import TrialRow
    from trainer.planning.host_grid import SumFigures
    from trainer.run.batch_files.stretch_files import BatchFileCounts
    from trainer.run.evaluation.verdict import Finding
    from trainer.run.labels.late_data import LateData
    from trainer.run.weights.row_delay import RowDelay
    from trainer.run.weights.staleness import StalenessCounts
    from trainer.serving.deltas.commit_exporter import ExportedChain
    from trainer.tables.hashed_counts import HashedCounts
    from trainer.tables.hot_figures import HotFigures
    from trainer.tables.tower_figures import TowerFigures

#: What the events of a row are to the model that scores them.
UNSEEN, TRAINING, HELD_OUT = "unseen", "training", "held out"


def _batch_file_text(counts: BatchFileCounts) -> str:
    written = f"{many(counts.written, 'file')} written, {bytes_text(counts.written_bytes)}"
    return f"{count_text(counts.read)} read; {written}"


def _late_fields(late: LateData) -> dict[str, Any]:
    """The fields, with ``retracted`` as ``deleted``."""
    return {"deleted" if name == "retracted" else name: value for name, value in fields_of(late).items()}


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch with its figures: each batch is scored before the model learns from it.

    Attributes:
        pass_number: from 1, of the passes over these partitions.
        events_are: "unseen" in the first pass, which makes the figures progressive validation; "training" in later ones.
    """

    epoch: int
    first_partition: str
    last_partition: str
    metrics: AnyScores
    pass_number: int = 1
    events_are: str = UNSEEN

    def json_fields(self) -> dict[str, Any]:
        """The fields, the metrics without the count of positive labels."""
        return {**fields_of(self), "metrics": score_fields(self.metrics)}


@dataclass(frozen=True, slots=True)
class HeldOutRow:
    """The held-out events, which no pass has trained, scored after a pass over the older ones.

    Attributes:
        after_epoch: the epoch, from 0, after which they were scored.
        loss: the mean loss of an event.
        gain: by how much the loss is lower than after the pass before; None after the first.
        gain_error: its standard error; None if it is not known.
    """

    after_pass: int
    after_epoch: int
    first_partition: str
    last_partition: str
    metrics: AnyScores
    loss: float
    gain: float | None
    gain_error: float | None

    def json_fields(self) -> dict[str, Any]:
        """The fields, the metrics without the count of positive labels."""
        return {**fields_of(self), "metrics": score_fields(self.metrics)}


@dataclass(frozen=True, slots=True)
class PassesRow:
    """The passes of a run that was to have several.

    Attributes:
        most: the passes that the options allow.
        stopped: the pass after which they ended, since it did not lower the held-out loss; 0: none did.
        held_out: the held-out events after each pass; empty if nothing is held out.
        why_nothing: why nothing is held out; empty otherwise.
    """

    most: int
    stopped: int
    held_out: tuple[HeldOutRow, ...]
    why_nothing: str

    def json_fields(self) -> dict[str, Any]:
        """The fields, the metrics without the count of positive labels."""
        return {**fields_of(self), "held_out": [one.json_fields() for one in self.held_out]}

    def lines(self) -> list[str]:
        """What the screen says of them."""
        if self.why_nothing:
            return [f"nothing, so no pass is scored on unseen events: {self.why_nothing}"]
        if not self.held_out:
            return []
        last = self.held_out[-1]
        what = f"{last.first_partition} to {last.last_partition}, scored unseen after each pass over the older events and trained last"
        return [what, *([self._stop(last)] if self.stopped else [])]

    def _stop(self, last: HeldOutRow) -> str:
        error = "" if last.gain_error is None else f" ± {last.gain_error:.5f}"
        return (
            f"stopped after pass {self.stopped} of at most {self.most}, because it changed the loss of a held-out event "
            f"by {-(last.gain or 0.0):+.5f}{error}: it must not rise by more than its error"
        )


@dataclass(frozen=True, slots=True)
class OptionRow:
    """Training options that were chosen from the data, and the reason."""

    values: dict[str, Any]
    reason: str

    def cells(self) -> tuple[str, str, str]:
        """Names, values and the reason; a long option is only in the JSON."""
        shown = (str(v).lower() if isinstance(v, bool) else str(v) for v in self.values.values())
        if any(isinstance(value, dict) for value in self.values.values()):
            return ", ".join(self.values), "by input", self.reason
        return ", ".join(self.values), ", ".join(shown), self.reason


@dataclass(frozen=True, slots=True)
class ExportRow:
    """The chain of links that training has written.

    Attributes:
        chain: its folder.
        links: those of this command.
        newest: the name of the newest link; None without one.
        epochs: those of the commit in the newest link; 0 without one.
        problem: why the newest commit is not in it; empty if it is.
    """

    chain: str
    links: int
    newest: str | None
    epochs: int
    problem: str

    def text(self) -> str:
        """One line."""
        newest = "no link" if self.newest is None else f"{self.newest} of {many(self.epochs, 'epoch')}"
        lacks = "; the newest commit is missing" if self.problem else ""
        return f"{self.chain}: {newest}, {many(self.links, 'link')} this time{lacks}"


def export_row(exported: ExportedChain) -> ExportRow:
    """What a screen says of a chain."""
    newest, problem = exported.newest, exported.problem
    return ExportRow(
        exported.place,
        exported.links,
        None if newest is None else newest.manifest.name,
        0 if newest is None else newest.manifest.commit.epochs,
        "" if problem is None else str(problem),
    )


@dataclass(frozen=True, slots=True)
class TowerRow:
    """The modules of a model's towers.

    Attributes:
        towers: their number.
        columns: of the activations of their inputs.
        outputs: the columns that they give.
        compression: the first over the second.
        on_own_hosts: whether the hosts of each tower apply its module.
    """

    towers: int
    columns: int
    outputs: int
    compression: float
    on_own_hosts: bool = False

    def text(self) -> str:
        """One line."""
        where = " on the hosts of each tower" if self.on_own_hosts else ""
        return f"{many(self.towers, 'tower')} of {self.columns} columns, compressed to {self.outputs}{where}: ratio {self.compression:.3g}"


@dataclass(frozen=True, slots=True, repr=False)
class TrainedScreen(Shown):
    """A training run and the quality of its model.

    Attributes:
        table_version: the version of ``table`` that was read.
        events_this_time: events that this command trained, in ``training_secs``.
        columns_read: (input, fragment) pairs by the way they were read.
        counted: events with a counter in the checkpoint.
        fewest_times: the least counter, likewise ``most_times``.
        unlabelled: events of the training range without a label; they were skipped.
        staleness: the updates that lookups missed, as measured.
        steps_by_host: of a job, the steps of this command in which each host had events, by name; none for training in one process.
        idle_host_steps_share: the share of all steps of all these hosts in which the host had no event.
        events_per_step: the events of a whole batch, of all hosts of a job together.
        tower_figures: what the hosts of a job by towers have sent; None of another.
        sum_figures: how the hosts of a job add dense gradients; None for one host.
        batch_files: what was read from files of batches and written into them; None without any.
        hot: what hot rows have done since the tables on servers were opened last; None without any.
        hashed: by name of a hashed table, what it has done on all servers or hosts since its rows were loaded last; of a job without
            servers, as its hosts reported last.
        budget: the share of the weights of tables that a pruned run has memory for; 1.0 for another run.
        unpruned_share: of a pruned run that has pruned nothing, the share of the weights that occurs; else None.
        test_unlabelled: the same of the test range.
        baselines: the AUC of raw columns, each alone, on the test events.
        finished: whether nothing is left to train; a preempted or stopped job trains the rest when it is started again.
        export: the chain of ``--export``; None without it.
        towers: the modules of ``tower_modules``; None without them.
        trial: the candidates from which options were chosen.
        verdict: whether the model is better than the base rate and a linear model, and what is wrong.
        all_passes: of a run that may have several, or that holds events out; None for another run.
        calibrations: by label, the map of predictions after training, in words; empty without the option ``calibration``.
        placement: how a plan, or towers, divide the weights; None without them.
        followed_plan: how often a plan that follows the data has changed; None without one.
        served: what parameter servers have answered; None without them, or if they were away.
        kept: the share of importance that the kept rows of a pruned run have; None for another run.
        evaluations: the figures of commits on the test range, of ``--evaluate-commits``.
    """

    model: str
    version: int
    table: str
    table_version: int
    run_dir: str
    resumed_from: str
    epochs: tuple[EpochRow, ...]
    events_this_time: int
    events_in_range: int
    columns_read: dict[str, int]
    options: tuple[OptionRow, ...]
    passes: int
    counted: int | None
    fewest_times: int | None
    most_times: int | None
    exact: bool | None
    unlabelled: int
    late: LateData
    staleness: StalenessCounts
    steps_by_host: dict[str, int]
    idle_host_steps_share: float
    events_per_step: int
    hashed: dict[str, HashedCounts]
    hot: HotFigures | None
    budget: float
    label: str
    task: str
    test_unlabelled: int
    test: AnyScores | None
    baselines: dict[str, float | None]
    training_secs: float
    secs: float
    finished: bool
    export: ExportRow | None = None
    towers: TowerRow | None = None
    trial: tuple[TrialRow, ...] = ()
    verdict: tuple[Finding, ...] = ()
    unpruned_share: float | None = None
    all_passes: PassesRow | None = None
    calibrations: dict[str, str] = field(default_factory=dict)
    placement: PlacementRow | None = None
    followed_plan: FollowedPlanRow | None = None
    served: ServedRow | None = None
    kept: PrunedRow | None = None
    evaluations: tuple[EvaluationRow, ...] = ()
    tower_figures: TowerFigures | None = None
    sum_figures: SumFigures | None = None
    batch_files: BatchFileCounts | None = None

    def history(self) -> History:
        """The figures of each window of steps and of each commit of the run, as columns. Raises as :func:`~headrace.runs.trained_run.read_run`."""
        from headrace.runs.open_history import history_of
        from headrace.runs.trained_run import read_run

        return history_of(read_run(self.run_dir))

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures of the test; without one those of the newest epoch, each batch scored before it was trained; empty without epochs."""
        newest = self.epochs[-1].metrics if self.epochs else None
        scores = newest if self.test is None else self.test
        return {} if scores is None else score_fields(scores)

    def json_fields(self) -> dict[str, Any]:
        """The fields, the test's scores without the count of positive labels."""
        test = None if self.test is None else score_fields(self.test)
        staleness, rows = self.staleness.to_document(), self.staleness.rows
        hot = None if self.hot is None else self.hot.to_document()
        return {**fields_of(self), "evaluations": [one.json_fields() for one in self.evaluations], "late": _late_fields(self.late), "staleness": staleness, "hot": hot, "test": test,
                "batch_overlap": rows.overlap, "missed_row_updates": rows.mean, "most_frequent_row_share": rows.most_frequent}  # fmt: skip

    def render(self) -> RenderableType:
        """Options, epochs, counts of events, then the quality on the test partitions."""
        note = "each batch is scored before the model learns from it"
        if self.all_passes is not None:
            note = "only the figures of unseen and held-out events say how good the model is"
        held_out = () if self.all_passes is None else self.all_passes.held_out
        table = grid(
            *_epoch_table(self.epochs, held_out, has_passes=self.all_passes is not None),
            title=f"{self.model} version {self.version}; {note}",
        )
        how = {"load": "memoized", "compute": "computed on the fly", "raw": "raw"}
        read = ", ".join(f"{count_text(n)} {how[action]}" for action, n in self.columns_read.items() if n)
        pairs = [
            ("trained", self._counted()),
            ("table", f"{self.table} version {self.table_version}"),
            ("columns", f"{read} (inputs × fragments)"),
        ]
        if self.all_passes is not None:
            pairs += [("" if k else "held out", text) for k, text in enumerate(self.all_passes.lines())]
        if self.towers is not None:
            pairs.append(("towers", self.towers.text()))
        pairs += [("no label yet", text) for text in self._unlabelled()]
        if self.resumed_from:
            pairs.append(("resumed", f"from {PurePath(self.resumed_from).name}"))
        pairs += [("late" if k == 0 else "", text) for k, text in enumerate(self._late())]
        pairs += [("accepted", text) for text in self.late.accepted]
        if not self.finished:
            pairs.append(("left", "the same command trains the rest"))
        pairs.append(
            (
                "this time",
                f"{count_text(self.events_this_time)} events in {secs_text(self.training_secs)}{self._rate()}",
            )
        )
        if self.batch_files is not None:
            pairs.append(("batch files", _batch_file_text(self.batch_files)))
        if self.steps_by_host:
            pairs.append(("steps", self._steps()))
        if self.placement is not None:
            pairs.append(("placed", self.placement.text()))
        if self.tower_figures is not None:
            pairs += [("" if k else "exchanged", text) for k, text in enumerate(tower_lines(self.tower_figures))]
        if self.sum_figures is not None:
            pairs.append(("dense sums", dense_sums_text(self.sum_figures)))
        if self.followed_plan is not None:
            pairs.append(("plan", self.followed_plan.text()))
        if self.served is not None:
            pairs.append(("servers", self.served.text()))
        if self.staleness.most:
            pairs.append(("staleness", _missed(self.staleness)))
        lines = [counts.summary(name) for name, counts in self.hashed.items()]
        pairs += [("" if k else "hashed", text) for k, text in enumerate(lines)]
        if self.hot is not None:
            pairs += [("" if k else "hot rows", text) for k, text in enumerate(hot_row_lines(self.hot))]
        if self.budget < 1:
            pairs.append(
                ("pruned", f"to {percent_text(self.budget)} of the weights: headrace prune report {self.run_dir}")
            )
        if self.kept is not None:
            pairs.append(("", self.kept.text()))
        if self.unpruned_share is not None:
            pairs.append(("", nothing_pruned_text(self.unpruned_share)))
        if self.test:
            if self.test.events:
                pairs += [("" if k else "test", text) for k, text in enumerate(_test_lines(self.test))]
            if self.test_unlabelled:
                pairs.append(
                    (
                        "" if self.test.events else "test",
                        f"{_events(self.test_unlabelled)} of the test range {_have(self.test_unlabelled)} no label yet",
                    )
                )
        lines = [f"{name}, {text}" if name else text for name, text in self.calibrations.items()]
        pairs += [("" if k else "calibration", text) for k, text in enumerate(lines)]
        pairs += [("baseline", f"{column} alone: AUC {figure_text(auc)}") for column, auc in self.baselines.items()]
        pairs.append(("run", self.run_dir))
        if self.export is not None:
            pairs.append(("links", self.export.text()))
        chosen = grid(
            ("option*", "value*", "why*"),
            (row.cells() for row in self.options),
            title="Options chosen from the data; an option in --config replaces its choice",
        )
        pairs += verdict_lines(self.verdict)
        tried = (trial_table(self.trial), "") if self.trial else ()
        evaluated = (evaluation_table(self.evaluations, has_runs=False, title="evaluated on the test range"), "") if self.evaluations else ()  # fmt: skip
        return Group(*((chosen, "") if self.options else ()), *tried, table, *evaluated, facts(pairs))

    def _rate(self) -> str:
        """Events a second, by which two runs of the same log may be compared; none of a run that waits for more data."""
        if not (self.events_this_time and self.finished) or self.training_secs <= 0:
            return ""
        return f", {count_text(round(self.events_this_time / self.training_secs))} a second"

    def _steps(self) -> str:
        """The steps of each host, and how many of them were idle."""
        counts = self.steps_by_host
        fewest, most = min(counts.values()), max(counts.values())
        each = (
            f"{count_text(most)} on each of {many(len(counts), 'host')}"
            if len(counts) > 1
            else f"{count_text(most)} on 1 host"
        )
        if fewest < most:
            each = ", ".join(f"{count_text(count)} on {name}" for name, count in counts.items())
        each += f", of {count_text(self.events_per_step)} events"
        if len(counts) > 1:
            each += f" in all, {'' if self.events_per_step % len(counts) == 0 else 'at most '}{count_text(-(-self.events_per_step // len(counts)))} on a host"
        if not self.idle_host_steps_share:
            return each
        return f"{each}; in {percent_text(self.idle_host_steps_share)} of the hosts' steps the host had no event"

    def _unlabelled(self) -> tuple[str, ...]:
        skipped = self.unlabelled
        return (
            (
                f"{_events(skipped)} {'is' if skipped == 1 else 'are'} skipped; run the command again when the labels are there",
            )
            if skipped
            else ()
        )

    def _late(self) -> list[str]:
        late = self.late
        counted = (
            (late.labels, f"{_events(late.labels)} with a late label"),
            (late.rows, many(late.rows, "late event")),
            (late.restored, f"{_events(late.restored)} no longer deleted"),
        )
        lines = [f"{text} {'is' if count == 1 else 'are'} trained now" for count, text in counted if count]
        if late.relabelled:
            verb = "is" if late.relabelled == 1 else "are"
            lines.append(f"{_events(late.relabelled)} {verb} trained again with the label that has changed")
        if late.retracted:
            lines.append(
                f"{_events(late.retracted)} that {'was' if late.retracted == 1 else 'were'} trained {_have(late.retracted)} been deleted since"
            )
        return lines

    def _counted(self) -> str:
        if self.counted is None or self.fewest_times is None or self.most_times is None:
            return f"{count_text(self.events_in_range)} events (not counted)"
        times = {1: "once", 2: "twice"}.get(self.passes, f"{self.passes} times")
        how = f"exactly {times}" if self.exact else f"{self.fewest_times} to {self.most_times} times"
        return f"{count_text(self.counted)} events, each {how} (counted, not inferred)"


def _epoch_table(
    epochs: Sequence[EpochRow], held_out: Sequence[HeldOutRow], *, has_passes: bool
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows; of several labels a row for each. ``has_passes``: with the pass, and what its events are to the model."""
    tasks = scores_by_task(epochs[0].metrics) if epochs else {}
    figures = shown_figures(next(iter(tasks.values()), epochs[0].metrics)) if epochs else {}
    is_uniform = len({tuple(shown_figures(one)) for one in tasks.values()}) <= 1
    quality = [f"{name}>" for name in figures] if is_uniform else ["quality"]
    rows = []
    for row in _in_order(epochs, held_out):
        number = "" if isinstance(row, HeldOutRow) else str(row.epoch + 1)
        of_pass = (
            (str(row.after_pass), HELD_OUT) if isinstance(row, HeldOutRow) else (str(row.pass_number), row.events_are)
        )
        for name, one in scores_by_label(row.metrics).items():
            values = tuple(shown_figures(one).values()) if is_uniform else (sentence_of(one),)
            cells = (
                number,
                *(of_pass if has_passes else ()),
                row.first_partition,
                row.last_partition,
                *([name] if tasks else []),
            )
            rows.append((*cells, count_text(one.events), *values))
    passes = ("pass>", "events are") if has_passes else ()
    return ("epoch>", *passes, "from", "to", *(["label"] if tasks else []), "events>", *quality), rows


def _in_order(epochs: Sequence[EpochRow], held_out: Sequence[HeldOutRow]) -> list[EpochRow | HeldOutRow]:
    """The rows in the order of time: held-out events after the epoch that ends a pass."""
    found: list[EpochRow | HeldOutRow] = []
    for epoch in epochs:
        found += [epoch, *(one for one in held_out if one.after_epoch == epoch.epoch)]
    return found


def _test_lines(scores: AnyScores) -> list[str]:
    """The figures of the test, a line for each of several labels."""
    tasks = scores_by_task(scores)
    if not tasks:
        return [f"{_events(scores.events)}: {sentence_of(scores)}"]
    return [f"{name}, {_events(one.events)}: {sentence_of(one)}" for name, one in tasks.items()]


def _missed(staleness: StalenessCounts) -> str:
    """The updates that lookups missed, in a sentence."""
    share = staleness.lookups[-1] / staleness.total
    return (
        f"{many(staleness.total, 'lookup')} missed {staleness.mean:.2f} updates on average, at most {staleness.most} "
        f"({percent_text(share)} of them){_missed_rows(staleness.rows)}"
    )


def _missed_rows(rows: RowDelay) -> str:
    """The updates of its own row that a looked-up id missed."""
    if not rows.ids:
        return ""
    return (
        f"; of its own row an id missed {rows.mean:.2f} ({percent_text(rows.overlap)} of ids are in the batch before,"
        f" {percent_text(rows.most_frequent)} of events have the most frequent row of their batch)"
    )


def _events(count: int) -> str:
    return f"{count_text(count)} {'event' if count == 1 else 'events'}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"
