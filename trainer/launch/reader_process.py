"""The process of a reader: it serves units until it is ordered to leave, or asked to by a signal."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from trainer.control.controller_client import ControllerClient
from trainer.control.job_files import JobFiles
from trainer.control.membership import Membership
from trainer.control.messages import Peer, RoleReport
from trainer.flight.addresses import Address
from trainer.launch.job_spec import JobSpec
from trainer.reading.reader_service import ReaderService
from trainer.reading.unit_reader import ReadBySolution, UnitReader
from trainer.reading.warm_up import warm_up
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.orders import Leave, Order
from warehouse.solution.solution import ReadSolution

_LOG = logging.getLogger(__name__)
#: The longest time for units that are being sent when a reader leaves.
_LEAVE_SECS = 5.0
LOOPBACK = Address("127.0.0.1", 0)


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """The options of a role's process.

    Attributes:
        files: of the run.
        name: of the process among those of its kind.
        address: where it serves.
        advertised: the address that others use for it; None: ``address``.
        controller: where it reaches the controller; None: as the run's files say.
    """

    files: JobFiles
    name: str
    address: Address = LOOPBACK
    advertised: Address | None = None
    controller: Address | None = None

    def connect(self, job: str) -> ControllerClient:
        """A client of the job's controller."""
        if self.controller is None:
            return ControllerClient.of_run(self.files, job=job)
        return ControllerClient(self.controller, job=job, token=self.files.read_token())


def run_reader(
    options: RoleOptions,
    read: ReadBySolution,
    *,
    kept_bytes: int = 1 << 30,
    on_signals: Callable[[Callable[[], None]], None] = lambda leave: None,
) -> None:
    """Serve units of the run's job until the order to leave.

    ``on_signals`` is given a function that ends the reader after its current units.
    """
    files, spec = options.files, JobSpec.read(options.files)
    token = files.read_token()
    client = options.connect(spec.job)
    leaves = threading.Event()

    def find(digest: str) -> ReadSolution:
        return ReadSolution.from_json(client.document(digest))

    def follow(orders: tuple[Order, ...], peers: tuple[Peer, ...]) -> None:
        if any(isinstance(order, Leave) for order in orders):
            leaves.set()

    on_signals(leaves.set)
    with ReaderService(options.address, UnitReader(find, read, kept_bytes=kept_bytes), token=token) as service:
        threading.Thread(target=warm_up, name="warm-up", daemon=True).start()  # beside the join
        _LOG.info("reader %s serves at %s", options.name, service.address)
        membership = Membership(
            client,
            Role(RoleKind.READER, options.name),
            release=spec.settings.release,
            on_orders=follow,
            report=lambda: RoleReport(str(options.advertised or service.address)),
            on_error=lambda error: leaves.set(),
        )
        with membership:
            leaves.wait()
            membership.check()
            service.leave(_LEAVE_SECS)
            membership.leave()
