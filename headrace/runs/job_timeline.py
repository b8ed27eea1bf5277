"""The states of a run's job over time, from the log of its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from trainer.job.control.event_log import Entry, read_log
from trainer.job.control.job_files import JobFiles
from trainer.job.control.logged_job import replayed_entries
from trainer.job.launch.job_spec import JobSpec
from trainer.scheduling.events import Event
from trainer.scheduling.job import Job
from trainer.scheduling.transitions import JobState

#: The newest spans that are kept.
MOST_SPANS: Final = 500


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A time in which a job had one state.

    Attributes:
        state: the state.
        begin_secs, end_secs: in job seconds since the log began; the last span ends with the newest entry of the log.
        attempt: the number of the last attempt; 0 before the first one.
        event: the event that led to the state; empty for the one with which the log begins.
        reason: the error of the event, or of the hold; empty without one.
    """

    state: JobState
    begin_secs: float
    end_secs: float
    attempt: int
    event: str = ""
    reason: str = ""

    @property
    def secs(self) -> float:
        """How long it took."""
        return self.end_secs - self.begin_secs


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """The states of a job since its log began: with its newest controller, or at that one's last compaction.

    Attributes:
        spans: in order, the newest :data:`MOST_SPANS`.
        written_secs: when the newest entry was written, in epoch seconds.
        attempt: the number of the last attempt.
        epochs: the epochs of its newest commit.
        restarts, reader_failures: since that commit.
    """

    spans: tuple[StateSpan, ...]
    written_secs: float
    attempt: int
    epochs: int
    restarts: int
    reader_failures: int


def timeline_of(job: Job, entries: Iterable[Entry], written_secs: float) -> JobTimeline:
    """The states that a job had, from the first line of its log and the entries after it."""
    began = job.now_secs
    spans: deque[StateSpan] = deque([_span(job, 0.0)], maxlen=MOST_SPANS)
    for entry, after in replayed_entries(job, entries):
        at_secs = after.now_secs - began
        last = spans[-1]
        spans[-1] = replace(last, end_secs=at_secs)
        if (after.state, after.attempt) != (last.state, last.attempt):
            spans.append(_span(after, at_secs, entry.event))
        job = after
    return JobTimeline(tuple(spans), written_secs, job.attempt, job.commit.epochs, job.restarts, job.reader_failures)


def read_timeline(files: JobFiles) -> JobTimeline | None:
    """The states of a run's job; None without a log.

    Raises :class:`~transforms.errors.NotFound` for a run without a job, and the errors of :func:`~trainer.job.control.event_log.read_log`.
    """
    spec = JobSpec.read(files)
    with read_log(files.log, job=spec.job, release=spec.settings.release) as found:
        return None if found is None else timeline_of(found[0].job, found[1], files.log.stat().st_mtime)


def _span(job: Job, at_secs: float, event: Event | None = None) -> StateSpan:
    error = getattr(event, "error", None)
    reason = job.hold.reason if job.hold is not None else "" if error is None else error.reason
    return StateSpan(job.state, at_secs, at_secs, job.attempt, "" if event is None else str(event.kind), reason)
