"""The process of a host: it trains until it is ordered to leave."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainer.job.control.membership import Membership
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host import Host
from trainer.job.host.mailbox import Mailbox
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.notices import NoticeSource, watch_notices
from trainer.job.launch.reported_notice import report_notice
from trainer.job.launch.role_options import RoleOptions
from trainer.options.combinations import MOVING
from trainer.options.towers import HostTowers
from trainer.planning.plan_document import read_plan
from trainer.run.host_metrics import HostMetrics
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.packed_units import Delivered
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_fetching import RemoteFetcher
from trainer.run.reading.unit_requests import UnitRequest
from trainer.scheduling.buffer_control import BufferSettings
from trainer.scheduling.events import Role, RoleKind
from trainer.servers.client_updates import Mode
from trainer.servers.run_servers import RunServers
from trainer.servers.tls import client_tls
from trainer.tables.tpu.slices import TpuSlice
from trainer.tables.wire.settings import WireSettings
from trainer.wire.flight.addresses import Address
from transforms.errors import StorageError
from transforms.log_fields import set_process_fields
from warehouse.files.batch_files.folder import BatchFolder

_LOG = logging.getLogger(__name__)


def run_host(
    options: RoleOptions,
    *,
    prepare: Callable[[], None] = lambda: None,
    use_device: Callable[[], None] = lambda: None,
    on_signals: Callable[[Callable[[], None]], None] = lambda notice: None,
    before_write: Callable[[], None] = lambda: None,
    notice_sources: Sequence[NoticeSource] = (),
    connect: Callable[[], TpuSlice] | None = None,
    metrics: HostMetrics | None = None,
) -> bool:
    """Train the run's job as the host ``options.name``. Returns whether the job is over.

    Args:
        prepare: called once the host has joined, such as to import TensorFlow.
        use_device: called before a model is built, such as to look for a GPU; an error of it is one of the job.
        on_signals: is given a function that sends a preemption notice for this host.
        before_write: called before each part is written.
        notice_sources: of preemption notices for this host's machine.
        connect: sets up the TPUs that train; None: the cpu engine does.
        metrics: of this process.
    """
    files, job = options.files, options.find_job()
    set_process_fields(job=job.spec.job)
    spec, token, client = job.spec, job.token, job.client
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
            connect=connect,
            use_device=use_device,
            statistics_share=spec.statistics_share,
            towers=HostTowers(spec.towers, spec.machine_hosts, spec.sends_sums),
            hot_rows=spec.hot_rows,
            wire_values=spec.wire_values,
            dense_values=spec.dense_values,
            batch_files=BatchFolder(spec.home, spec.batch_file_bytes) if spec.batch_file_bytes else None,
            servers=None if spec.servers is None else servers_of(spec.servers, client.document, options.token),
            metrics=metrics,
            setup=replace(MOVING, spares=spec.settings.spare_servers > 0, scales=spec.settings.scales_from > 0),
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
        give_notice = partial(report_notice, client, role)
        on_signals(partial(give_notice, options.grace_secs))
        with membership, watch_notices(notice_sources, give_notice):
            prepare()
            host.run()
            membership.check()
            membership.leave()
    return host.left is not None and host.left.is_over


def servers_of(spec: ServersSpec, find_document: Callable[[str], bytes], token: str = "") -> RunServers:
    """The servers of a job. Raises :class:`StorageError` for a token that cannot be read, and :class:`ConfigError`.

    ``token``: that of servers without a file of their own.
    """
    plan = read_plan(find_document(spec.plan), f"plan {spec.plan[:12]}") if spec.plan else None
    token = _token_in(spec.token_file) or token
    addresses = tuple(Address.parse(one) for one in spec.addresses)
    wire = WireSettings(spec.wire_ids, spec.wire_values)
    return RunServers(
        addresses,
        token,
        client_tls(spec.authority),
        plan,
        Mode(spec.updates),
        patience_secs=spec.patience_secs,
        wire=wire,
        run=spec.run,
        workers=tuple(Address.parse(one) for one in spec.workers),
        workers_tls=client_tls(spec.workers_authority),
        workers_token=_token_in(spec.workers_token_file) or token,
    )


def _token_in(file: str) -> str:
    """The token in a file; empty without a file."""
    try:
        return Path(file).read_text(encoding="ascii").strip() if file else ""
    except (OSError, ValueError) as error:
        raise StorageError("the file of the servers' token cannot be read", where=file, value=str(error)) from None
