"""The process of a host: it trains until it is ordered to leave."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trainer.control.controller_client import ControllerClient
from trainer.control.membership import Membership
from trainer.host.flight_exchange import ExchangeService, Mailbox
from trainer.host.host import Host
from trainer.launch.job_spec import JobSpec
from trainer.launch.reader_process import RoleOptions
from trainer.reading.columns import DecodedFragment
from trainer.reading.packed_units import Delivered
from trainer.reading.unit_buffer import UnitBuffer
from trainer.reading.unit_fetching import RemoteFetcher
from trainer.reading.unit_requests import UnitRequest
from trainer.scheduling.buffer_control import BufferSettings
from trainer.scheduling.events import Role, RoleKind


def run_host(
    options: RoleOptions,
    *,
    prepare: Callable[[], None] = lambda: None,
    on_signals: Callable[[Callable[[], None]], None] = lambda notice: None,
) -> None:
    """Train the run's job as the host ``options.name``.

    Args:
        prepare: called once the host has joined, such as to import TensorFlow.
        on_signals: is given a function that sends a preemption notice for this host.
    """
    files, spec = options.files, JobSpec.read(options.files)
    token = files.read_token()
    client = ControllerClient.of_run(files, job=spec.job)
    role = Role(RoleKind.HOST, options.name)

    def make_buffer(decode: Callable[[UnitRequest, Delivered], DecodedFragment]) -> UnitBuffer:
        connect = partial(RemoteFetcher, token=token)
        return UnitBuffer((), connect, decode, settings=BufferSettings(limit_bytes=spec.buffer_bytes))

    mailbox = Mailbox()
    with ExchangeService(options.address, mailbox, token=token) as service:
        host = Host(
            options.name,
            str(files.run_dir),
            find_document=client.document,
            make_buffer=make_buffer,
            mailbox=mailbox,
            address=str(service.address),
            token=token,
        )
        membership = Membership(
            client,
            role,
            release=spec.settings.release,
            on_orders=host.on_orders,
            on_rejoin=host.on_rejoin,
            report=host.report,
            on_error=host.on_error,
        )
        host.connect(membership)
        on_signals(partial(client.notice, _GRACE_SECS, role))
        with membership:
            prepare()
            host.run()
            membership.check()
            membership.leave()


#: The grace period of a SIGTERM.
_GRACE_SECS = 30.0
