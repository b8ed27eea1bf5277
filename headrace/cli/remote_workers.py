"""``headrace train --launcher remote``: the controller of a job whose readers and hosts run on other machines."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.options.launchers import REMOTE
from headrace.cli.options.session import cluster_address
from headrace.cli.options.tokens import read_token_file
from headrace.launchers.role_commands import SERVICE_ACCOUNT_FOLDER
from headrace.terminal.output import say
from headrace.terminal.stopping import SIGTERM_STATUS
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.flight.addresses import Address
    from trainer.launch.cluster.cluster_workers import ClusterWorkers


@dataclass(frozen=True, slots=True)
class RemoteWorkers:
    """The readers and hosts of a job on other machines.

    Attributes:
        listen: where the controller serves them.
        token: of the job, which they have.
        workers: for the job's supervisor.
    """

    listen: Address
    token: str
    workers: ClusterWorkers


@contextmanager
def open_remote_workers(given: Mapping[str, Any]) -> Iterator[RemoteWorkers | None]:
    """The workers of ``--launcher remote``, which are suspended after the block; None for a job on this machine.

    Raises :class:`InputError` for options that do not fit.
    """
    from trainer.launch.cluster.cluster_workers import suspended_afterwards

    if given["launcher"] != REMOTE:
        yield None
        return
    found = _remote_workers(given)
    with suspended_afterwards(found.workers):
        yield found


def _remote_workers(given: Mapping[str, Any]) -> RemoteWorkers:
    from trainer.flight.addresses import Address
    from trainer.launch.cluster.cluster_workers import ClusterWorkers
    from trainer.launch.cluster.kubernetes_api import KubernetesApi
    from trainer.launch.cluster.suspension import JobSetName, Suspension
    from warehouse.storage.locations import is_gcs

    for name, rule in (("listen", "the address of its controller"), ("token_file", "a token")):
        if not given[name]:
            raise InputError(f"a job on other machines must have {rule}", where=f"--{name.replace('_', '-')}",
                             next_step="give this option too")  # fmt: skip
    if not is_gcs(given["run_dir"]) or not given["hosts"] or not given["readers"]:
        raise InputError("a job on other machines must have its run in a bucket, and numbers of hosts and readers",
                         where="--run-dir, --hosts, --readers", value=(given["run_dir"], given["hosts"], given["readers"]),
                         allowed="gs://bucket/path, and numbers from 1 on")  # fmt: skip
    listen = Address.parse(given["listen"])
    if not listen.port:
        raise InputError("the port of a controller on several machines must be fixed", where="--listen", value=given["listen"],
                         allowed="such as 10.0.0.2:7410")  # fmt: skip
    suspension = None
    if given["jobset"]:
        place, account = JobSetName.parse(given["jobset"]), Path(given["service_account"] or SERVICE_ACCOUNT_FOLDER)
        suspension = Suspension(KubernetesApi.of_service_account(cluster_address(), account), place)
    return RemoteWorkers(listen, read_token_file(given["token_file"]), ClusterWorkers(suspension, say))


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
