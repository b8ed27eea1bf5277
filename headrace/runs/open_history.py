"""The metric history of a run, as columns."""

from __future__ import annotations

from headrace.runs.history import History
from headrace.runs.trained_run import TrainedRun
from trainer.run.history.run_history import RunHistory
from transforms.errors import NotFound


def history_of(run: TrainedRun) -> History:
    """The figures of the windows and commits of a run. Raises as :func:`kept_history`."""
    return History.of(run.folder, kept_history(run))


def kept_history(run: TrainedRun) -> RunHistory:
    """The history of a run. Raises :class:`NotFound` for a run of a release that kept none, and for a damaged history."""
    if run.history is None:
        raise NotFound("a run must have a metric history", where=run.folder, value=run.skipped[-1] if run.skipped else "a commit of an earlier release",
                       next_step="train it further: the history begins with the next commit")  # fmt: skip
    return run.history
