"""The events that time makes due. Pure."""

from __future__ import annotations

import math

from trainer.scheduling.events import Deadline, EpochDue, Event, Lost, Resume
from trainer.scheduling.job import Job
from trainer.scheduling.transitions import ATTEMPT, FINAL, JobState


def next_due(job: Job) -> Event | None:
    """The next event that is due now, or None. Applying it makes it no longer due."""
    at_secs = job.clock_secs or 0.0
    if job.state in FINAL:
        return None
    lost = min((role for role, one in job.members.items() if _silent_secs(job, one.seen_secs) <= 0), default=None)
    if lost is not None:
        return Lost(at_secs, lost)
    deadline_secs = job.deadline_secs
    if job.state in ATTEMPT and deadline_secs is not None and job.now_secs >= deadline_secs:
        return Deadline(at_secs)
    if job.state is JobState.TRAINING and job.now_secs >= _epoch_end_secs(job):
        return EpochDue(at_secs)
    if job.state is JobState.RESTARTING and job.now_secs >= job.resume_secs:
        return Resume(at_secs)
    return None


def secs_to_next_due(job: Job) -> float:
    """Seconds until the next event is due if no other comes; infinite if none."""
    if job.state in FINAL:
        return math.inf
    moments = [one.seen_secs + job.settings.lost_secs for one in job.members.values()]
    if job.state in ATTEMPT and (deadline_secs := job.deadline_secs) is not None:
        moments.append(deadline_secs)
    if job.state is JobState.TRAINING:
        moments.append(_epoch_end_secs(job))
    if job.state is JobState.RESTARTING:
        moments.append(job.resume_secs)
    return max(0.0, min(moments, default=math.inf) - job.now_secs)


def _silent_secs(job: Job, seen_secs: float) -> float:
    return seen_secs + job.settings.lost_secs - job.now_secs


def _epoch_end_secs(job: Job) -> float:
    epoch_secs = job.settings.of(job.phase).epoch_secs
    return math.inf if epoch_secs is None else job.begun_secs + epoch_secs
