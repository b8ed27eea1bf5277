"""Whether a job still trains, for commands that wait for what it does."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.job.control.controller_client import ControllerClient, is_away
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.scheduling.transitions import JobState
from transforms.errors import HeadraceError

#: How long a controller may be away, such as while it is started again, before its job counts as ended.
AWAY_SECS = 60.0
_OVER = (JobState.DONE, JobState.STOPPED)


def job_status(files: JobFiles, job: str) -> JobStatus:
    """What the controller of a job on this machine says of it. Raises :class:`~trainer.wire.flight.client.Unreachable` without one."""
    client = ControllerClient.of_run(files, job=job)
    try:
        return client.status()
    finally:
        client.close()


class JobPresence:
    """Whether a job still trains, as its controller says.

    Args:
        ask: asks the controller.
        clock: monotonic seconds.
    """

    def __init__(self, ask: Callable[[], JobStatus], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self._answered_secs = clock()

    def is_training(self) -> bool:
        """Whether the job is not over. Raises :class:`HeadraceError` if the controller does not answer."""
        found = self._ask().state not in _OVER
        self._answered_secs = self._clock()
        return found

    def still_trains(self) -> bool:
        """Whether the job is not over; a controller that does not answer is waited for, for :data:`AWAY_SECS`."""
        try:
            return self.is_training()
        except HeadraceError as error:
            if not is_away(error):
                raise
            return self._clock() - self._answered_secs < AWAY_SECS
