"""What a role's process is started with, and how it finds its job: by the job's files, or by its controller on another machine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainer.job.control.controller_client import ControllerClient, is_away
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.job_spec import JobSpec
from trainer.wire.flight.addresses import LOOPBACK, Address
from transforms.errors import HeadraceError, InputError

_LOG = logging.getLogger(__name__)
#: How long a role waits for the first answer of a controller on another machine, and how long between two calls.
_PATIENCE_SECS, _WAIT_SECS = 300.0, 1.0


@dataclass(frozen=True, slots=True)
class RoleJob:
    """The job of a role's process.

    Attributes:
        spec: of the job.
        token: of the job.
        client: of its controller.
    """

    spec: JobSpec
    token: str
    client: ControllerClient


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """The options of a role's process.

    Attributes:
        files: of the run; of a job on other machines, a folder of this process alone.
        name: of the process among those of its kind.
        address: where it serves.
        advertised: the address that others use for it; None: ``address``.
        controller: where it reaches the controller; None: as the run's files say.
        token: of a job on other machines, whose controller answers with its document; empty: the job's files are here.
        grace_secs: the preemption notice that SIGTERM gives to a host.
    """

    files: JobFiles
    name: str
    address: Address = LOOPBACK
    advertised: Address | None = None
    controller: Address | None = None
    token: str = ""
    grace_secs: float = 30.0

    def find_job(self, *, clock: Callable[[], float] = time.monotonic) -> RoleJob:
        """The job. Raises :class:`NotFound` for a run without one or without its token, and :class:`Unreachable` without its controller."""
        if self.token:
            return self._find_remote_job(clock)
        spec, token = JobSpec.read(self.files), self.files.find_token()
        if self.controller is None:
            return RoleJob(spec, token, ControllerClient.of_run(self.files, job=spec.job))
        return RoleJob(spec, token, ControllerClient(self.controller, job=spec.job, token=token))

    def _find_remote_job(self, clock: Callable[[], float]) -> RoleJob:
        if self.controller is None:
            raise InputError("a role with a token file must have the address of its controller", where="--controller",
                             allowed="host:port", next_step="give --controller too")  # fmt: skip
        client = ControllerClient(self.controller, token=self.token)
        until_secs = clock() + _PATIENCE_SECS
        while True:
            try:
                content = client.spec()
                break
            except HeadraceError as error:
                if not is_away(error) or clock() >= until_secs:
                    raise
                _LOG.info("the controller at %s does not answer yet: %s", self.controller, error.what)
                time.sleep(_WAIT_SECS)
        spec = JobSpec.parse(content, f"the job of {self.controller}")
        if not spec.bucket_run:
            raise InputError("the run of a job on several machines must be in a bucket", where=str(self.controller),
                             allowed="headrace train --run-dir gs://bucket/path")  # fmt: skip
        client.job = spec.job
        self.files.make()
        return RoleJob(spec, self.token, client)
