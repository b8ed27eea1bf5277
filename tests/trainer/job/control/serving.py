"""A controller in this process, with its service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.control.controller_process import JOB, FolderPublisher, job_settings
from trainer.job.control.controller import Controller, ControllerSettings
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.controller_service import ControllerService
from trainer.job.control.job_files import JobFiles
from trainer.job.control.open_controller import open_controller
from trainer.scheduling.buffer_control import BufferSettings
from trainer.scheduling.events import DataRange

DATA = DataRange("plan", 20, (10, 20))


class Serving:
    """A controller that runs in a thread. ``error``: that ended it."""

    def __init__(self, files: JobFiles, controller: Controller, service: ControllerService) -> None:
        self.files, self.controller, self.service = files, controller, service
        self.error: BaseException | None = None
        self.status = None
        self.client = ControllerClient(service.address, job=JOB, token=files.read_token())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.status = self.controller.run()
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(PATIENCE_SECS)
        assert not self._thread.is_alive()


@contextmanager
def serving(
    run_dir: Path, *, settings=None, publisher=None, data=DATA, tick_secs=0.1, buffer=None, **options
) -> Iterator[Serving]:
    files = JobFiles(run_dir)
    files.make_token()
    own = ControllerSettings(job=JOB, tick_secs=tick_secs, linger_secs=1.0, buffer=buffer or BufferSettings())
    with open_controller(
        files,
        settings or job_settings(),
        publisher or FolderPublisher(run_dir / "commits"),
        controller_settings=own,
        data=data,
        **options,
    ) as (controller, service):
        found = Serving(files, controller, service)
        try:
            yield found
        finally:
            controller.end()
            found.join()
