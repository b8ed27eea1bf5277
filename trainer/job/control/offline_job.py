"""A job without its controller: what its log says, and the release of its hold."""

from __future__ import annotations

from trainer.job.control.event_log import EventLog, LogOwner, read_log
from trainer.job.control.job_files import JobFiles
from trainer.job.control.logged_job import replay
from trainer.run.progress.lock import run_lock
from trainer.scheduling.advance import advance
from trainer.scheduling.events import Released
from trainer.scheduling.job import Job


def logged_job(files: JobFiles, *, job: str, release: str) -> Job | None:
    """The job as its log gives it, which a controller may be writing; None without a log.

    Raises the errors of :func:`trainer.job.control.event_log.read_log`.
    """
    with read_log(files.log, job=job, release=release) as found:
        return None if found is None else replay(found[0].job, found[1])


def release_logged_job(files: JobFiles, *, job: str, release: str) -> None:
    """Release the hold of a job in its log, under the lock of its run: the next controller goes on.

    Raises :class:`IllegalEvent` for a job that is not held, and :class:`Busy` if a process has the run.
    """
    with run_lock(files.root):
        with read_log(files.log, job=job, release=release) as found:
            lease = 0 if found is None else found[0].owner.lease
            held = Job() if found is None else replay(found[0].job, found[1])
        after, _ = advance(held, Released(held.clock_secs or 0.0))
        EventLog(files.log, LogOwner(job, release, lease), after).close()
