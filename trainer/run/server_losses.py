"""Training on parameter servers goes on from the newest checkpoint when a server leaves after a notice, or loses its rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from trainer.errors import ServerLost
from trainer.run.loop import TrainingLost, TrainReport
from trainer.tables.hot_figures import HotFigures

#: Losses, one after the other, without a new checkpoint between them, after which training is still begun again.
MOST_LOSSES = 3


class Leaving(Protocol):
    """The policy for servers that leave after a notice; :class:`~trainer.servers.leaving_servers.LeavingServers` is one."""

    def must_end_early(self) -> bool:
        """Whether a server that training uses has a notice."""

    def settle(self) -> None:
        """Let servers with a notice go; return once training may go on."""


def train_through_losses(
    train: Callable[[int], TrainReport],
    newest: Callable[[], str],
    on_loss: Callable[[ServerLost, str], None],
    leaving: Leaving,
    is_stopped: Callable[[], bool] = lambda: False,
) -> TrainReport:
    """The report of all calls of ``train``. It is called again after a loss, or a notice, and goes on from the newest checkpoint.

    An event that was trained, lost and trained again is counted once; the seconds are those of all calls.

    Args:
        train: trains from the newest checkpoint on, until it is finished or a server leaves; it is given the number of the attempt, from 1 on.
        newest: the name of the newest checkpoint; empty if there is none.
        on_loss: is called for each loss with that name, before training goes on.
        leaving: the servers that leave. The loss of one of them before the checkpoint is no failure.
        is_stopped: whether a person has asked for the end, so that what is not finished stays so.

    Raises :class:`ServerLost` when more than :data:`MOST_LOSSES` follow each other without a new checkpoint.
    """
    losses, last, before = 0, newest(), None
    for attempt in itertools.count(1):
        leaving.settle()
        try:
            report = _joined(before, train(attempt))
        except ServerLost as error:
            found = newest()
            is_failure = not leaving.must_end_early()
            losses = losses + is_failure if found == last else int(is_failure)
            last = found
            if losses > MOST_LOSSES:
                raise
            if isinstance(error, TrainingLost):
                before = _joined(before, error.report)
            on_loss(error, found)
            continue
        if report.finished or is_stopped():
            return report
        before = report
    raise AssertionError("attempts have no end")


def _joined(before: TrainReport | None, report: TrainReport) -> TrainReport:
    """The report of two calls, one after the other, as of one."""
    if before is None:
        return report
    return replace(
        report,
        epochs=before.epochs + report.epochs,
        events=before.events + report.events,
        seconds=before.seconds + report.seconds,
        resumed_from=before.resumed_from,
        skipped_checkpoints=(*before.skipped_checkpoints, *report.skipped_checkpoints),
        staleness=before.staleness + report.staleness,
        hot=_summed(before.hot, report.hot),
    )


def _summed(before: HotFigures | None, found: HotFigures | None) -> HotFigures | None:
    return found if before is None else before if found is None else before + found
