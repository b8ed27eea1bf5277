"""The process of a controller."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from trainer.checkpoints.retention import Retention, newest_part_attempt, remove_leftovers
from trainer.job.control.controller import Controller, ControllerSettings
from trainer.job.control.controller_metrics import ControllerMetrics, job_families
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.control.open_controller import open_controller
from trainer.job.launch.checkpoint_publisher import CheckpointPublisher
from trainer.job.launch.job_spec import JobSpec
from trainer.job.launch.outcome import write_outcome
from trainer.scheduling.orders import Commit
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import HeadraceError
from transforms.log_fields import set_process_fields
from transforms.metrics.families import Family
from transforms.metrics.registry import Registry

_LOG = logging.getLogger(__name__)
#: How long a scrape waits for the controller's thread.
_STATUS_SECS = 5.0


def run_controller(
    files: JobFiles,
    *,
    newest: Commit | None = None,
    address: Address = LOOPBACK,
    on_signals: Callable[[Callable[[], None]], None] = lambda end: None,
    metrics: Registry | None = None,
) -> None:
    """Control the run's job until it ends.

    Args:
        newest: the newest intact commit, at the launch of the job; None after a crash of the controller, whose log knows it.
        on_signals: is given a function that ends the controller; the job goes on with the next one.
        metrics: gets those of the controller and its job.
    """
    recorded = ControllerMetrics()
    spec = JobSpec.read(files)
    set_process_fields(job=spec.job)
    run_dir = spec.run_dir(files)
    publisher = CheckpointPublisher(
        run_dir,
        files.read_document,
        release=spec.settings.release,
        policy=Retention(newest=spec.keep_commits),
        holds=files.root,
    )
    opened = open_controller(
        files,
        spec.settings,
        publisher,
        controller_settings=ControllerSettings(job=spec.job),
        newest=newest,
        used_attempt=newest_part_attempt(run_dir) if newest is not None else 0,
        data=spec.data,
        partition=spec.partition,
        address=address,
        metrics=recorded,
    )
    with opened as (controller, _):
        if metrics is not None:
            metrics.add("controller", partial(_families, controller, recorded))
        on_signals(controller.end)
        if not spec.bucket_run:  # there a controller of another machine may be about to publish them
            _remove_leftovers(run_dir, controller.unwritten_attempt)
        write_outcome(files, controller.run())


def _families(controller: Controller, recorded: ControllerMetrics) -> tuple[Family, ...]:
    """The metrics of the controller; those of the job are absent once it has ended."""
    try:
        status = JobStatus.read(controller.status().result(_STATUS_SECS))
    except (Unreachable, TimeoutError):
        return recorded.families()
    return (*recorded.families(), *job_families(status))


def _remove_leftovers(run_dir: str, below_attempt: int) -> None:
    """Remove what killed processes have left. What cannot be removed now delays no job."""
    try:
        remove_leftovers(run_dir, below_attempt=below_attempt)
    except HeadraceError as error:
        _LOG.warning("files of killed processes were not removed: %s", error.what)
