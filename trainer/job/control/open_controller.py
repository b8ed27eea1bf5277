"""Open the controller of a run: its lock, log and service."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trainer.errors import DamagedLog, IllegalEvent, RunMismatch
from trainer.job.control.controller import Controller, ControllerSettings
from trainer.job.control.controller_metrics import ControllerMetrics
from trainer.job.control.controller_service import ControllerService
from trainer.job.control.event_log import EventLog, LogOwner, look_at_log, read_log
from trainer.job.control.job_files import ControllerAddress, JobFiles
from trainer.job.control.lease import Lease
from trainer.job.control.logged_job import LoggedJob, hold_in_log, replay
from trainer.job.control.publishing import CommitPublisher
from trainer.run.progress.lock import run_lock
from trainer.scheduling.events import DataRange
from trainer.scheduling.job import Job, JobSettings, resume_job, without_watched
from trainer.scheduling.orders import Commit, Hold
from trainer.scheduling.transitions import FINAL, JobState
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import DataError

_LOG = logging.getLogger(__name__)


def first_job(
    found: Job | None,
    settings: JobSettings,
    newest: Commit | None,
    used_attempt: int = 0,
    hold: Hold | None = None,
) -> Job:
    """The job with which a controller begins.

    Args:
        found: as its log gives it; None without a log.
        settings: of the job now. Others than before begin the job again at its newest commit.
        newest: the newest intact commit in storage; None: that of the log.
        used_attempt: the highest attempt with parts in storage; attempts of a job that begins again are above it.
        hold: of the log of another release; None: it has none.
    """
    if found is None:
        begun = Job(settings) if hold is None else Job(settings, state=JobState.HELD, hold=hold)
        return _begin_again(begun, settings, newest or Commit(), used_attempt)
    if newest is not None:  # a launch: the machine that left is back, and other servers may have the tables
        found = without_watched(replace(found, is_all_away=False))
    pending = found.pending
    known = {found.commit} | ({pending.commit} if pending is not None and pending.is_publishing else set())
    goes_on = found.settings == settings and found.state not in FINAL and (newest is None or newest in known)
    return found if goes_on else _begin_again(found, settings, newest or found.commit, used_attempt)


def _begin_again(found: Job, settings: JobSettings, commit: Commit, used_attempt: int) -> Job:
    begun = resume_job(found, settings, commit)
    return replace(begun, attempt=max(begun.attempt, used_attempt))


@contextmanager
def open_controller(
    files: JobFiles,
    settings: JobSettings,
    publisher: CommitPublisher,
    *,
    controller_settings: ControllerSettings,
    newest: Commit | None = None,
    used_attempt: int = 0,
    data: DataRange | None = None,
    partition: str = "",
    address: Address = LOOPBACK,
    make_log: Callable[[Path, LogOwner, Job], EventLog] = EventLog,
    clock: Callable[[], float] = time.monotonic,
    metrics: ControllerMetrics | None = None,
    on_point: Callable[[str], None] = lambda point: None,
) -> Iterator[tuple[Controller, ControllerService]]:
    """A controller that serves; its ``run`` is the job.

    Args:
        files: of the run.
        settings: of the job.
        publisher: of its commits.
        controller_settings: of the controller.
        newest: the newest intact commit in storage, from which a job with the log of another release goes on, held if it was; None: trust the log.
        used_attempt: the highest attempt with parts in storage.
        data: the units to train, if they are known.
        partition: the name of the plan by which hosts hold the tables; empty: rows are spread over them.
        address: where to listen.
        make_log: begins the log.
        clock, metrics, on_point: of :class:`Controller`.

    Raises :class:`Busy` if another process has the run, :class:`NotFound` without the job's token, and the errors of :func:`read_log` and :class:`Service`.
    """
    with run_lock(files.root) as lock:
        files.make()
        job_id, release = controller_settings.job, settings.release
        earlier = None if newest is None else look_at_log(files.log, job=job_id, release=release)
        hold: Hold | None = None
        if earlier is not None:
            _LOG.info("release %s has written the log, and the job goes on from its newest commit", earlier.release)
            before, used_attempt = None, max(used_attempt, earlier.attempt)
            hold = _earlier_hold(files, job_id, earlier.release)
            number = 1 + max(earlier.lease, _last_lease(files))
        else:
            with read_log(files.log, job=job_id, release=release) as found:
                before = None if found is None else replay(found[0].job, found[1])
                number = 1 + max(found[0].owner.lease if found else 0, _last_lease(files))
        job = first_job(before, settings, newest, used_attempt, hold)
        lease = Lease(lock, number)
        log = make_log(files.log, LogOwner(job_id, release, number), job)
        logged = LoggedJob(job, log, check_lease=lease.check, on_point=on_point)
        controller = Controller(
            logged,
            log,
            publisher,
            lease,
            controller_settings,
            data=data,
            partition=partition,
            clock=clock,
            metrics=metrics,
            on_point=on_point,
        )
        with ControllerService(address, controller, files, token=files.find_token()) as service:
            process_id = os.getpid()
            files.write_address(ControllerAddress(str(service.address), process_id, number))
            try:
                yield controller, service
            finally:
                controller.close()
                files.remove_address(number)


def _earlier_hold(files: JobFiles, job: str, release: str) -> Hold | None:
    """The hold in the log of another release; a log that this one cannot read says nothing, and the job goes on."""
    try:
        return hold_in_log(files.log, job=job, release=release)
    except (RunMismatch, DamagedLog, IllegalEvent) as error:
        _LOG.warning("the log of release %s cannot be read, so a hold in it is not known: %s", release, error)
        return None


def _last_lease(files: JobFiles) -> int:
    try:
        return files.read_address().lease
    except (Unreachable, DataError):
        return 0
