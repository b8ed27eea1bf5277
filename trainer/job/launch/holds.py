"""The hold of a run's job: read from its log, and released by its controller, or without one in the log."""

from __future__ import annotations

from trainer.errors import IllegalEvent
from trainer.job.control.controller_client import ControllerClient, is_other_service
from trainer.job.control.job_files import JobFiles
from trainer.job.control.offline_job import logged_job, release_logged_job
from trainer.job.launch.job_spec import JobSpec
from trainer.scheduling.orders import Hold
from trainer.wire.flight.error_documents import RemoteError, Unreachable
from transforms.errors import Busy, DataError, HeadraceError

#: How long a controller may take to answer.
_ANSWER_SECS = 10.0


def find_hold(files: JobFiles) -> Hold | None:
    """The hold of a run's job; None if it is not held. Raises :class:`NotFound` for a run without a job."""
    spec = JobSpec.read(files)
    job = logged_job(files, job=spec.job, release=spec.settings.release)
    return None if job is None else job.hold


def release_hold(files: JobFiles) -> Hold:
    """Release the hold of a run's job and return it.

    Raises :class:`NotFound` for a run without a job, :class:`IllegalEvent` for a job that is not held, and :class:`Busy` if
    a process has the run and no controller answers.
    """
    spec = JobSpec.read(files)
    hold = find_hold(files)
    if hold is None:
        raise _not_held(files)
    client = ControllerClient.of_run(files, job=spec.job, timeout_secs=_ANSWER_SECS)
    try:
        client.release()
    except HeadraceError as error:
        if _is_refused(error):
            raise _not_held(files) from None
        if not _is_without_controller(error):
            raise
        _release_in_log(files, spec)
    finally:
        client.close()
    return hold


def _release_in_log(files: JobFiles, spec: JobSpec) -> None:
    try:
        release_logged_job(files, job=spec.job, release=spec.settings.release)
    except IllegalEvent:
        raise _not_held(files) from None
    except Busy as error:
        raise Busy("a hold must be released by the controller, or while no process has the run", where=error.where,
                   value=error.value, next_step="wait until the process answers or ends, then release again") from None  # fmt: skip


def _is_refused(error: HeadraceError) -> bool:
    return isinstance(error, RemoteError) and "IllegalEvent" in error.kinds


def _is_without_controller(error: HeadraceError) -> bool:
    """Whether no controller of the job is there: the lock of the run then decides."""
    return isinstance(error, (Unreachable, DataError)) or is_other_service(error)


def _not_held(files: JobFiles) -> IllegalEvent:
    return IllegalEvent("a job must be held to be released", where=str(files.root), value="it is not held",
                        next_step="headrace holds ls lists the jobs that are held")  # fmt: skip
