"""The metrics of a process that trains: a host of a job, or a training in one process.

The loop records seconds; other figures are read when a scrape asks, from the state of the training at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from trainer.model.scores import AnyScores, TasksScores
from trainer.run.weights.staleness import NOT_MEASURED, StalenessCounts
from trainer.tables.hashed_counts import HashedCounts
from transforms.metrics.declarations import counter, durations, gauge
from transforms.metrics.families import Family, by_label, by_labels, single
from transforms.metrics.instruments import Histogram

_ItemT = TypeVar("_ItemT")

STEPS = durations("headrace_host_step_seconds", "Time of one optimizer step, without the wait for its batch.")
WAITS = durations("headrace_host_batch_wait_seconds", "Time in which training waited for the next batch.")
COMMITS = durations("headrace_host_commit_seconds", "Time in which the process wrote a checkpoint, or its part of one.")
EVENTS = counter("headrace_host_events_total", "Events that the process trained.")
PLANNED = gauge("headrace_host_planned_events", "Events that the training had to train when it was planned; absent in a job.")  # fmt: skip
STEP = gauge("headrace_host_run_steps", "Optimizer steps of the run.")
EPOCHS = gauge("headrace_host_run_epochs", "Finished epochs of the run.")
ROW_WAIT = counter("headrace_host_row_wait_seconds_total", "Time in which dense parts waited for rows of embedding tables, in the current attempt.")  # fmt: skip
STALENESS = gauge("headrace_host_lookup_staleness_updates", "Mean number of updates that a lookup missed.")
FULLNESS = gauge("headrace_host_buffer_fullness_ratio", "Buffered bytes of read units as a share of their limit.")
LOSS = gauge("headrace_host_epoch_log_loss", "Mean log loss of the newest finished epoch, predicted before training, by label.", "label")  # fmt: skip
ENTROPY = gauge("headrace_host_epoch_normalized_loss_ratio", "Loss of that epoch divided by that of the best constant prediction, by label.", "label")  # fmt: skip
AUC = gauge("headrace_host_epoch_auc_ratio", "Area under the ROC curve of that epoch, by label.", "label")
CALIBRATION = gauge("headrace_host_epoch_calibration_ratio", "Predicted positives of that epoch divided by observed ones, by label.", "label")  # fmt: skip
TABLE_ROWS = gauge("headrace_host_hashed_rows", "Rows of hashed tables in this process.", "table")
TABLE_CHANGES = counter("headrace_host_hashed_changes_total", "Ids that got a row (admitted), and rows that lost their place (evicted, expired).", "table", "change")  # fmt: skip
METRICS = (STEPS, WAITS, COMMITS, EVENTS, PLANNED, STEP, EPOCHS, ROW_WAIT, STALENESS, FULLNESS, LOSS, ENTROPY, AUC, CALIBRATION, TABLE_ROWS, TABLE_CHANGES)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostFigures:
    """The state of a training at one moment.

    Attributes:
        run_steps, run_epochs: of the run.
        planned_events: None where they are not known.
        row_wait_secs: how long dense parts have waited for rows.
        staleness: of lookups.
        scores: of the newest finished epoch; None before the first.
        hashed: by table.
        fullness: of the buffer of units; None without one.
    """

    run_steps: int = 0
    run_epochs: int = 0
    planned_events: int | None = None
    row_wait_secs: float = 0.0
    staleness: StalenessCounts = NOT_MEASURED
    scores: AnyScores | None = None
    hashed: Mapping[str, HashedCounts] = field(default_factory=dict)
    fullness: float | None = None


class HostMetrics:
    """What a training records. One thread trains; any may read, and observe commits.

    Attributes:
        steps, waits, commits: seconds.
        events: that were trained.
        figures: reads the state; replaced by each training of the process.
    """

    def __init__(self) -> None:
        self.steps, self.waits, self.commits = Histogram(), Histogram(), Histogram()
        self.events = 0
        self.figures: Callable[[], HostFigures] = HostFigures

    def waited_for(self, batches: Iterable[_ItemT]) -> Iterator[_ItemT]:
        """The batches, each with the time until it came observed."""
        rest = iter(batches)
        while True:
            try:
                with self.waits.timed():
                    batch = next(rest)
            except StopIteration:
                return
            yield batch

    def families(self) -> tuple[Family, ...]:
        """All metrics now."""
        figures = self.figures()
        return (
            single(STEPS, self.steps.reading()),
            single(WAITS, self.waits.reading()),
            single(COMMITS, self.commits.reading()),
            single(EVENTS, self.events),
            *(() if figures.planned_events is None else (single(PLANNED, figures.planned_events),)),
            single(STEP, figures.run_steps),
            single(EPOCHS, figures.run_epochs),
            single(ROW_WAIT, figures.row_wait_secs),
            single(STALENESS, figures.staleness.mean),
            *(() if figures.fullness is None else (single(FULLNESS, figures.fullness),)),
            *_score_families(figures.scores),
            *_table_families(figures.hashed),
        )


def _score_families(scores: AnyScores | None) -> Iterator[Family]:
    """The figures of an epoch by label; undefined ones are absent, and a model with one label has the label ``""``."""
    if scores is None:
        return
    by_task = scores.tasks if isinstance(scores, TasksScores) else {"": scores}
    for metric, name in ((LOSS, "log_loss"), (ENTROPY, "normalized_loss"), (AUC, "auc"), (CALIBRATION, "calibration")):
        found = {task: getattr(one, name, None) for task, one in by_task.items()}
        known = {task: float(value) for task, value in found.items() if value is not None and math.isfinite(value)}
        if known:
            yield by_label(metric, known)


def _table_families(hashed: Mapping[str, HashedCounts]) -> Iterator[Family]:
    if not hashed:
        return
    yield by_label(TABLE_ROWS, {table: float(one.stored) for table, one in hashed.items()})
    yield by_labels(
        TABLE_CHANGES,
        [
            ((table, change), float(getattr(one, change)))
            for table, one in hashed.items()
            for change in ("admitted", "evicted", "expired")
        ],
    )
