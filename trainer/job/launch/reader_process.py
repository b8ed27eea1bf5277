"""The process of a reader: it serves units until it is ordered to leave, or asked to by a signal."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from trainer.job.control.membership import Membership
from trainer.job.control.messages import Peer, RoleReport
from trainer.job.launch.role_options import RoleOptions
from trainer.run.reading.reader_service import ReaderService
from trainer.run.reading.unit_reader import ReadBySolution, UnitReader
from trainer.run.reading.warm_up import warm_up
from trainer.scheduling.events import Role, RoleKind
from trainer.scheduling.orders import Leave, Order
from transforms.log_fields import set_process_fields
from transforms.metrics.registry import Registry
from warehouse.solution.solution import ReadSolution

_LOG = logging.getLogger(__name__)
#: The longest time for units that are being sent when a reader leaves.
_LEAVE_SECS = 5.0
#: The most bytes of fragments in memory.
_KEPT_BYTES = 1 << 30


def run_reader(
    options: RoleOptions,
    open_read: Callable[[str], ReadBySolution],
    *,
    on_signals: Callable[[Callable[[], None]], None] = lambda leave: None,
    metrics: Registry | None = None,
) -> bool:
    """Serve units of the run's job until the order to leave. Returns whether the job is over.

    Args:
        open_read: a function that reads fragments, for the warehouse's home.
        on_signals: is given a function that ends the reader after its current units.
        metrics: gets those of the reader.
    """
    job = options.find_job()
    set_process_fields(job=job.spec.job)
    client = job.client
    leaves, ordered = threading.Event(), list[Leave]()

    def find(digest: str) -> ReadSolution:
        return ReadSolution.from_json(client.document(digest))

    def follow(orders: tuple[Order, ...], peers: tuple[Peer, ...]) -> None:
        for order in orders:
            if isinstance(order, Leave):
                ordered.append(order)
                leaves.set()

    on_signals(leaves.set)
    with ReaderService(
        options.address, UnitReader(find, open_read(job.spec.home), kept_bytes=_KEPT_BYTES), token=job.token
    ) as service:
        if metrics is not None:
            metrics.add("reader", service.families)
        threading.Thread(target=warm_up, name="warm-up", daemon=True).start()  # beside the join
        _LOG.info("reader %s serves at %s", options.name, service.address)
        membership = Membership(
            client,
            Role(RoleKind.READER, options.name),
            release=job.spec.settings.release,
            on_orders=follow,
            report=lambda: RoleReport(str(options.advertised or service.address)),
            on_error=lambda error: leaves.set(),
        )
        with membership:
            leaves.wait()
            membership.check()
            service.leave(_LEAVE_SECS)
            membership.leave()
    return any(order.is_over for order in ordered)
