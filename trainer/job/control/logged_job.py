"""A job whose events are durable before they have an effect, and its replay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from trainer.errors import IllegalEvent
from trainer.job.control.event_log import Entry, EventLog, read_log
from trainer.scheduling.advance import advance
from trainer.scheduling.events import Event, Role, Tick
from trainer.scheduling.job import Job, Member
from trainer.scheduling.orders import Hold, Instruction
from trainer.scheduling.transitions import ATTEMPT, JobState

_LOG = logging.getLogger(__name__)
#: A replayed job is at most so far behind in time, while time matters; the second one during a grace period.
_MARK_SECS = 5.0
_NOTICE_MARK_SECS = 1.0
_TIMED = ATTEMPT | {JobState.RESTARTING}
_COMPARED = tuple(one.name for one in fields(Job) if one.name not in ("clock_secs", "now_secs", "members"))


def differs_in_time_only(before: Job, after: Job) -> bool:
    """Whether an event changed only times: the clock, and when members were heard."""
    if any(getattr(before, name) != getattr(after, name) for name in _COMPARED):
        return False
    if before.members.keys() != after.members.keys():
        return False
    return all(
        (one.incarnation, one.is_leaving) == (after.members[role].incarnation, after.members[role].is_leaving)
        for role, one in before.members.items()
    )


def entry_of(replayed: Job, job: Job, event: Event) -> Entry:
    """The entry of an event, where a replay gives ``replayed`` before it and the job is ``job``, later only in time."""
    seen = {
        role: one.seen_secs for role, one in job.members.items() if replayed.members[role].seen_secs != one.seen_secs
    }
    return Entry(event, job.clock_secs, job.now_secs, seen)


def replay(job: Job, entries: Iterable[Entry]) -> Job:
    """The job after the entries of its log."""
    for _, after in replayed_entries(job, entries):
        job = after
    return job


def replayed_entries(job: Job, entries: Iterable[Entry]) -> Iterator[tuple[Entry, Job]]:
    """Each entry of a log, with the job after it."""
    for entry in entries:
        job, _ = advance(_at(job, entry), entry.event)
        yield entry, job


def hold_in_log(path: Path, *, job: str, release: str) -> Hold | None:
    """The hold of a job that a release has logged; None if it is not held.

    Raises :class:`~trainer.errors.RunMismatch`, :class:`~trainer.errors.DamagedLog` or :class:`~trainer.errors.IllegalEvent` for a log that
    this release does not understand.
    """
    with read_log(path, job=job, release=release) as found:
        if found is None:
            return None
        logged = replay(found[0].job, found[1])
    return logged.hold if logged.state is JobState.HELD else None


def _at(job: Job, entry: Entry) -> Job:
    if not entry.seen and (entry.clock_secs, entry.now_secs) == (job.clock_secs, job.now_secs):
        return job
    members: dict[Role, Member] = dict(job.members)
    for role, secs in entry.seen.items():
        if role in members:
            members[role] = replace(members[role], seen_secs=secs)
    return replace(job, clock_secs=entry.clock_secs, now_secs=entry.now_secs, members=members)


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an event: its instructions, or its error, after which the job is as before."""

    told: tuple[Instruction, ...] = ()
    error: Exception | None = None


class LoggedJob:
    """A job with its log. One thread uses it.

    Args:
        job: as the log gives it.
        log: which begins with this job.
        check_lease: raises :class:`LeaseLost`; called before each append.
        on_point: called between the steps of an event, by tests that end the process there.
    """

    def __init__(
        self,
        job: Job,
        log: EventLog,
        *,
        check_lease: Callable[[], None],
        on_point: Callable[[str], None] = lambda point: None,
    ) -> None:
        self.job, self._log = job, log
        self._replayed = job
        self._check_lease, self._on_point = check_lease, on_point
        self.version = 1

    def apply(self, events: Sequence[Event]) -> list[Applied]:
        """Apply events in order, of which one append makes all durable first.

        Raises :class:`EventNotLogged`: then none of them had an effect.
        """
        job, replayed = self.job, self._replayed
        entries: list[Entry] = []
        results: list[Applied] = []
        for event in events:
            try:
                after, told = advance(job, event)
            except IllegalEvent as error:
                results.append(Applied(error=error))
                continue
            except Exception as error:  # a defect, which must not end the job of all others
                _LOG.exception("%s cannot be applied", event)
                results.append(Applied(error=error))
                continue
            results.append(Applied(told))
            if not differs_in_time_only(job, after) or self._is_mark(replayed, after, event):
                entries.append(entry_of(replayed, job, event))
                replayed = after
            job = after
        if entries:
            self._append(entries)
            self.version += 1
        self.job, self._replayed = job, replayed
        if self._log.is_long:
            self._compact()
        return results

    def _append(self, entries: Sequence[Entry]) -> None:
        self._check_lease()
        self._on_point("before append")
        self._log.append(entries, self._replayed)
        self._on_point("after append")

    def _compact(self) -> None:
        self._check_lease()
        if self._log.compact(self.job):
            self._replayed = self.job

    def _is_mark(self, replayed: Job, after: Job, event: Event) -> bool:
        """Whether to log a tick so that a replay is not far behind in time."""
        if not isinstance(event, Tick) or (after.state not in _TIMED and not after.notices):
            return False
        secs = _NOTICE_MARK_SECS if after.notices else _MARK_SECS
        return after.now_secs - replayed.now_secs >= secs
