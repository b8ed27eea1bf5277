"""The processes of a parameter server: a keeper, which listens, and its child, which answers.

The :mod:`keeper <trainer.job.launch.keeper>` forks the child again when it ends, which finds the rows in shared memory.
"""

from __future__ import annotations

import os
import socket
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from trainer.errors import ConfigError
from trainer.job.launch.keeper import Keeper
from trainer.servers.allowed_runs import NO_RUNS, AllowedRuns
from trainer.servers.client_updates import run_of
from trainer.servers.drain import DRAIN_SECS, Drain
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads.named_links import NamedLinks
from trainer.servers.row_server import RowServer
from trainer.servers.server_metrics import SERVER
from trainer.servers.service import ServerService, ServiceLimits
from trainer.tables.engine import RowValues
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.optimizers import SGD
from trainer.tables.routes.servers.row_messages import RowGradients, RowNumbers
from trainer.tables.routes.servers.table_documents import held_tables
from trainer.tables.spec import TableSpec
from trainer.wire.flight.addresses import LOOPBACK, Address, check_token
from trainer.wire.flight.connections import listen
from transforms.metrics.instruments import LabelledHistograms
from transforms.metrics.registry import Registry


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a parameter server.

    Attributes:
        address: where it listens; port 0 is any.
        memory: the folder of its rows, in shared memory such as ``/dev/shm``; None: memory of its process, which a restart loses.
        token: that clients must have; empty for none.
        threads: threads of its loops.
        limits: of its messages.
        patience_secs: how long a request waits for the updates of other clients.
        tls: the certificate of the server; None: connections are not encrypted.
        drain_secs: after SIGTERM, how long clients may take to commit.
        runs: where it writes its shards of checkpoints.
        server_tls: what verifies servers with TLS from which it takes rows; None: it takes none from these.
        serve_metrics: serves the metrics of the process that answers, in that process.
    """

    address: Address = LOOPBACK
    memory: Path | None = None
    token: str = ""
    threads: int = 1
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    patience_secs: float = 300.0
    tls: ssl.SSLContext | None = None
    drain_secs: float = DRAIN_SECS
    runs: AllowedRuns = NO_RUNS
    server_tls: ssl.SSLContext | None = None
    serve_metrics: Callable[[Registry], None] = lambda registry: None


def run_server(options: ServerOptions, on_listening: Callable[[Address], None] = lambda address: None) -> int:
    """Serve until SIGTERM, after which clients may commit, or SIGINT; returns an exit status.

    ``on_listening``: called with the address once it listens. Raises :class:`~trainer.errors.ConfigError` for options that do not fit.
    """
    check_token(options.address, options.token)
    if options.memory is not None:
        _make_own(options.memory)
    listening = listen(options.address)
    _warm_up()
    keeper = Keeper(listening, partial(_serve, options), drain_secs=options.drain_secs)
    on_listening(Address(*listening.getsockname()[:2]))
    return keeper.run()


def _make_own(folder: Path) -> None:
    """Make a folder for this user alone, if there is none. Raises :class:`ConfigError` for one that other users may write."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid() or mode & 0o022:
        raise ConfigError("the folder of a server's memory must be this user's, and no other user may write it", where=str(folder),
                          value=f"owner {found.st_uid}, mode {mode:03o}", allowed=f"owner {os.geteuid()}, such as mode 700",
                          next_step=f"chmod 700 {folder}, or give another folder: --memory")  # fmt: skip


def _serve(options: ServerOptions, listening: socket.socket, drain: Drain) -> ServerService:
    """The service of rows of the options' memory."""
    rows = HeldRows(options.memory, threads=options.threads)
    drain.expect(run_of(rows.attempt))
    server = RowServer(
        rows,
        patience_secs=options.patience_secs,
        most_answer_bytes=options.limits.most_bytes,
        runs=options.runs,
        connect=NamedLinks(options.server_tls),
    )
    times, registry = LabelledHistograms(), Registry()
    registry.add("server", lambda: SERVER.families(server.status(), times))
    options.serve_metrics(registry)
    return ServerService(
        listening, server, token=options.token, limits=options.limits, tls=options.tls, drain=drain, times=times
    )


def _warm_up() -> None:
    """Load the loops of requests before the first fork, so that a child begins with them."""
    table = TableSpec("warm-up", 1, 1, SGD(1.0))
    rows = HeldRows(None)
    rows.open(held_tables([(table, TableOrigin(table.name))], 0), 0)
    for dtype in (np.int32, np.int64):
        numbers = RowNumbers(np.zeros(1, dtype), np.ones(1, np.int64))
        rows.fetch(numbers)
        rows.update([(0, RowGradients(numbers, np.ones(1, np.float32), np.zeros(1, np.float32)), 0)], 1)
    rows.engine.write_values(np.zeros(1, np.int64), np.ones(1, np.int64), RowValues(np.zeros(1, np.float32), np.zeros(0, np.float32)),
                             are_changed=True)  # fmt: skip
