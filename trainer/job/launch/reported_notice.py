"""Reports the preemption notice of one process of a job to the controller."""

from __future__ import annotations

import logging
import time

from trainer.job.control.controller_client import ControllerClient
from trainer.scheduling.events import Role
from transforms.errors import HeadraceError

_LOG = logging.getLogger(__name__)
#: The wait between attempts.
_WAIT_SECS = 0.25


def report_notice(client: ControllerClient, role: Role, grace_secs: float) -> None:
    """Report the preemption of a process, while there is time; a controller that is away may come back."""
    until = time.monotonic() + grace_secs
    while (rest := until - time.monotonic()) > 0:
        try:
            return client.notice(rest, role)
        except HeadraceError as error:
            _LOG.warning("the preemption notice was not delivered: %s", error.what)
            time.sleep(min(_WAIT_SECS, rest))
