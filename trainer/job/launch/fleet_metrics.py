"""The metrics of a process that runs a fleet of jobs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from trainer.job.launch.fleet_store import StoredJob
from trainer.scheduling.fleet import HAS_SLOTS, FleetState
from transforms.metrics.declarations import counter, durations, gauge
from transforms.metrics.families import Family, by_label, single
from transforms.metrics.instruments import Histogram

SLOTS = gauge("headrace_fleet_slots", "Slots that the jobs share.")
USED = gauge("headrace_fleet_used_slots", "Slots of jobs whose processes run.")
JOBS = gauge("headrace_fleet_jobs", "Jobs by state.", "state")
OLDEST = gauge("headrace_fleet_oldest_queued_seconds", "Time since the state of a queued job changed, of the oldest one.")  # fmt: skip
CHANGES = counter("headrace_fleet_job_changes_total", "Changes of jobs to a state, by this process.", "state")
STEPS = durations("headrace_fleet_step_seconds", "Time of one look at all jobs, with what was started and stopped.")
METRICS = (SLOTS, USED, JOBS, OLDEST, CHANGES, STEPS)


class FleetMetrics:
    """What a fleet records; one thread runs the fleet, any may read.

    Attributes:
        steps: seconds.
    """

    def __init__(self, slots: int) -> None:
        self.steps = Histogram()
        self._slots = slots
        self._changes: Counter[FleetState] = Counter()
        self._jobs: Sequence[StoredJob] = ()
        self._lock = threading.Lock()

    def changed(self, stored: StoredJob) -> None:
        """Count a change of a job."""
        with self._lock:
            self._changes[stored.job.state] += 1

    def saw(self, jobs: Sequence[StoredJob]) -> None:
        """Note the jobs after a step."""
        self._jobs = jobs

    def families(self, now_secs: float) -> tuple[Family, ...]:
        """All metrics at this moment, in epoch seconds."""
        jobs = self._jobs
        with self._lock:
            changes = dict(self._changes)
        states = Counter(one.job.state for one in jobs)
        queued = [now_secs - one.changed_secs for one in jobs if one.job.state is FleetState.QUEUED]
        return (
            single(SLOTS, self._slots),
            single(USED, sum(one.job.slots for one in jobs if one.job.state in HAS_SLOTS)),
            by_label(JOBS, {str(state).lower(): float(states[state]) for state in FleetState}),
            single(OLDEST, max(queued, default=0.0)),
            by_label(CHANGES, {str(state).lower(): float(count) for state, count in changes.items()}),
            single(STEPS, self.steps.reading()),
        )
