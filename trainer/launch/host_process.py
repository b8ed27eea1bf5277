"""The process of a host: it trains until it is ordered to leave."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from trainer.control.controller_client import ControllerClient
from trainer.control.membership import Membership
from trainer.host.exchange_service import ExchangeService
from trainer.host.host import Host
from trainer.host.mailbox import Mailbox
from trainer.launch.job_spec import JobSpec
from trainer.launch.reader_process import RoleOptions
from trainer.reading.columns import DecodedFragment
from trainer.reading.packed_units import Delivered
from trainer.reading.unit_buffer import UnitBuffer
from trainer.reading.unit_fetching import RemoteFetcher
from trainer.reading.unit_requests import UnitRequest
from trainer.scheduling.buffer_control import BufferSettings
from trainer.scheduling.events import Role, RoleKind
from transforms.errors import HeadraceError

_LOG = logging.getLogger(__name__)


def run_host(
    options: RoleOptions,
    *,
    prepare: Callable[[], None] = lambda: None,
    on_signals: Callable[[Callable[[], None]], None] = lambda notice: None,
    before_write: Callable[[], None] = lambda: None,
) -> None:
    """Train the run's job as the host ``options.name``.

    Args:
        prepare: called once the host has joined, such as to import TensorFlow.
        on_signals: is given a function that sends a preemption notice for this host.
        before_write: called before each part is written.
    """
    files, spec = options.files, JobSpec.read(options.files)
    token = files.read_token()
    client = options.connect(spec.job)
    role = Role(RoleKind.HOST, options.name)

    def make_buffer(decode: Callable[[UnitRequest, Delivered], DecodedFragment]) -> UnitBuffer:
        connect = partial(RemoteFetcher, token=token)
        return UnitBuffer((), connect, decode, settings=BufferSettings(limit_bytes=spec.buffer_bytes))

    mailbox = Mailbox()
    with ExchangeService(options.address, mailbox, token=token) as service:
        host = Host(
            options.name,
            spec.run_dir(files),
            folder=files.folder,
            find_document=client.document,
            make_buffer=make_buffer,
            mailbox=mailbox,
            address=str(options.advertised or service.address),
            before_write=before_write,
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
        on_signals(partial(_give_notice, client, role))
        with membership:
            prepare()
            host.run()
            membership.check()
            membership.leave()


#: The grace period of a SIGTERM, and the wait between attempts to report it.
_GRACE_SECS, _WAIT_SECS = 30.0, 0.25


def _give_notice(client: ControllerClient, role: Role) -> None:
    """Report the preemption of this host, while there is time; a controller that is away may come back."""
    until = time.monotonic() + _GRACE_SECS
    while (rest := until - time.monotonic()) > 0:
        try:
            return client.notice(rest, role)
        except HeadraceError as error:
            _LOG.warning("the preemption notice was not delivered: %s", error.what)
            time.sleep(min(_WAIT_SECS, rest))
