"""``headrace train --launcher remote``: the controller of a job whose readers and hosts run on other machines."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.options.launchers import REMOTE, ClusterOptions
from headrace.cli.options.session import cluster_address
from headrace.cli.options.tokens import read_token_file
from headrace.cli.train_options.training import TrainOptions
from headrace.launchers.role_commands import SERVICE_ACCOUNT_FOLDER
from headrace.terminal.output import say
from headrace.terminal.stopping import SIGTERM_STATUS
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.job.launch.cluster.cluster_workers import ClusterWorkers
    from trainer.wire.flight.addresses import Address


@dataclass(frozen=True, slots=True)
class RemoteWorkers:
    """The readers and hosts of a job on other machines.

    Attributes:
        listen: where the controller serves them.
        token: of the job, which they have.
        workers: for the job's supervisor.
        is_repeated: whether they come back after a job, for another one.
    """

    listen: Address
    token: str
    workers: ClusterWorkers
    is_repeated: bool = False


@contextmanager
def open_remote_workers(options: TrainOptions) -> Iterator[RemoteWorkers | None]:
    """The workers of ``--launcher remote``, which are suspended after the block; None for a job on this machine.

    Raises :class:`InputError` for options that do not fit.
    """
    from trainer.job.launch.cluster.cluster_workers import suspended_afterwards

    if options.cluster.launcher != REMOTE:
        yield None
        return
    found = _remote_workers(options)
    with suspended_afterwards(found.workers):
        yield found


def _remote_workers(options: TrainOptions) -> RemoteWorkers:
    from trainer.wire.flight.addresses import Address
    from warehouse.storage.locations import is_gcs

    cluster, hosts, run_dir = options.cluster, options.hosts, options.run.run_dir
    for name, rule in (("listen", "the address of its controller"), ("token_file", "a token")):
        if not getattr(cluster, name):
            raise InputError(f"a job on other machines must have {rule}", where=f"--{name.replace('_', '-')}",
                             next_step="give this option too")  # fmt: skip
    if not is_gcs(run_dir) or not hosts.hosts or not hosts.readers:
        raise InputError("a job on other machines must have its run in a bucket, and numbers of hosts and readers",
                         where="--run-dir, --hosts, --readers", value=(run_dir, hosts.hosts, hosts.readers),
                         allowed="gs://bucket/path, and numbers from 1 on")  # fmt: skip
    listen = Address.parse(cluster.listen)
    if not listen.port:
        raise InputError("the port of a controller on several machines must be fixed", where="--listen", value=cluster.listen,
                         allowed="such as 10.0.0.2:7410")  # fmt: skip
    token, is_repeated = read_token_file(cluster.token_file), cluster.keep_jobset
    _check_sets(options)
    return RemoteWorkers(listen, token, workers_of(cluster), is_repeated)


def _check_sets(options: TrainOptions) -> None:
    """Raise :class:`InputError` for a set of readers or servers whose number never changes, or that nothing says when to start."""
    cluster, readers = options.cluster, options.hosts.reader_range
    if cluster.reader_set and (readers is None or readers.is_fixed):
        raise InputError("readers whose number the controller sets must have a range", where="--readers, --reader-set",
                         value=options.hosts.readers, allowed="such as 2..8", next_step="give a range, or leave --reader-set out")  # fmt: skip
    if cluster.server_set and options.servers.scaled is None:
        raise InputError("servers whose number the controller sets must have a least number", where="--scale-servers-from, --server-set",
                         value=cluster.server_set, next_step="give --scale-servers-from, or leave --server-set out")  # fmt: skip
    for option, value in (("--reader-set", cluster.reader_set), ("--server-set", cluster.server_set)):
        if value and not cluster.jobset:
            raise InputError("processes whose number the controller sets must be those of a JobSet of hosts", where=option,
                             value=value, next_step="give --jobset too")  # fmt: skip


def workers_of(cluster: ClusterOptions) -> ClusterWorkers:
    """The readers and hosts of a controller, which suspends the JobSet of ``--jobset`` and scales the readers of ``--reader-set`` and the servers of ``--server-set``.

    Raises :class:`InputError`.
    """
    from trainer.job.launch.cluster.cluster_workers import ClusterWorkers
    from trainer.job.launch.cluster.kubernetes_api import KubernetesApi
    from trainer.job.launch.cluster.object_names import JobSetName, StatefulSetName
    from trainer.job.launch.cluster.set_scale import SetScale
    from trainer.job.launch.cluster.suspension import Suspension

    suspension = readers = servers = None
    if cluster.jobset:
        place, account = JobSetName.parse(cluster.jobset), Path(cluster.service_account or SERVICE_ACCOUNT_FOLDER)
        api = KubernetesApi.of_service_account(cluster_address(), account)
        suspension = Suspension(api, place)
        if cluster.reader_set:
            readers = SetScale(api, StatefulSetName.parse(cluster.reader_set), suspension, say)
        if cluster.server_set:
            servers = SetScale(api, StatefulSetName.parse(cluster.server_set), suspension, say)
    return ClusterWorkers(suspension, say, is_kept=cluster.keep_jobset, readers=readers, servers=servers)


@contextmanager
def replaced_when_terminated(stop: Callable[[], None]) -> Iterator[None]:
    """In the block SIGTERM ends the process with status 143, since the next one goes on with the job; Ctrl-C calls ``stop``."""

    def terminate(number: int, frame: object) -> None:
        sys.exit(SIGTERM_STATUS)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: stop()),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
