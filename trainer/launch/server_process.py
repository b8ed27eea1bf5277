"""The processes of a parameter server: a keeper, which listens, and its child, which answers.

The keeper loads the code and holds the listening socket, and forks the child again when it ends: clients that connect meanwhile wait in
the socket, and the next child finds the rows in shared memory. So a child that is killed is replaced in some milliseconds.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np

from trainer.embedding.cpu.layout import TableOrigin
from trainer.embedding.engine import RowValues
from trainer.embedding.optimizers import SGD
from trainer.embedding.ps.row_messages import RowGradients, RowNumbers
from trainer.embedding.ps.table_documents import held_tables
from trainer.embedding.spec import TableSpec
from trainer.flight.addresses import LOOPBACK, Address, check_token
from trainer.flight.connections import listen
from trainer.launch.role_signals import end_with_supervisor
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.service import ServerService, ServiceLimits
from transforms.errors import HeadraceError

_LOG = logging.getLogger(__name__)
#: A child that lived for so long counts as started.
_STARTED_SECS = 1.0
#: Children that end sooner, one after the other, before the keeper gives up, and the wait after each of them.
_MOST_FAILURES, _WAIT_SECS = 20, 0.02
#: The signals that end a server.
_ENDS = (signal.SIGTERM, signal.SIGINT)


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
    """

    address: Address = LOOPBACK
    memory: Path | None = None
    token: str = ""
    threads: int = 1
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    patience_secs: float = 300.0
    tls: ssl.SSLContext | None = None


def run_server(options: ServerOptions, on_listening: Callable[[Address], None] = lambda address: None) -> int:
    """Serve until SIGTERM or SIGINT; returns an exit status.

    ``on_listening``: called with the address once it listens. Raises :class:`~trainer.errors.ConfigError` for options that do not fit.
    """
    check_token(options.address, options.token)
    if options.memory is not None:
        options.memory.mkdir(parents=True, exist_ok=True, mode=0o700)
    listening = listen(options.address)
    _warm_up()
    keeper = _Keeper(options, listening)
    on_listening(Address(*listening.getsockname()[:2]))
    return keeper.run()


class _Keeper:
    """Forks the process that answers, again and again until it is asked to end."""

    def __init__(self, options: ServerOptions, listening: socket.socket) -> None:
        self._options, self._listening = options, listening
        self._child, self._is_ending = 0, False

    def run(self) -> int:
        for number in _ENDS:
            signal.signal(number, self._end)
        failures = 0
        while True:
            began = time.monotonic()
            with _signals_later():  # else one between the fork and its number would end no child
                if self._is_ending:
                    break
                self._child = os.fork()
                if not self._child:
                    self._serve()
            status = self._wait()
            if self._is_ending or status == 0:
                break
            failures = failures + 1 if time.monotonic() - began < _STARTED_SECS else 0
            _LOG.warning("the process that answers ended with status %s; the next one takes over its rows", status)
            time.sleep(failures * _WAIT_SECS)
            if failures >= _MOST_FAILURES:
                _LOG.error("%s processes ended at once, one after the other", failures)
                return 1 if status < 0 else status
        return 0

    def _wait(self) -> int:
        """The status of the child that ended; a signal as a negative number."""
        while True:
            try:
                _, status = os.waitpid(self._child, 0)
            except InterruptedError:
                continue
            return os.waitstatus_to_exitcode(status)

    def _end(self, number: int, frame: object) -> None:
        self._is_ending = True
        if self._child:
            try:
                os.kill(self._child, signal.SIGTERM)
            except ProcessLookupError:
                _LOG.debug("the process that answers has ended already")

    def _serve(self) -> NoReturn:
        """Answer in this child process until SIGTERM."""
        options, status = self._options, 0
        try:
            signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keeper's
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
            end_with_supervisor(os.getppid())
            rows = HeldRows(options.memory, threads=options.threads)
            server = RowServer(rows, patience_secs=options.patience_secs, most_answer_bytes=options.limits.most_bytes)
            with ServerService(self._listening, server, token=options.token, limits=options.limits, tls=options.tls):
                while True:
                    signal.pause()
        except HeadraceError as error:
            _LOG.error("error: %s", error)
            status = error.exit_status
        except BaseException:
            _LOG.exception("the process that answers failed")
            status = 70
        finally:
            os._exit(status)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Signals that end a server come after the block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def _warm_up() -> None:
    """Load the loops of requests before the first fork, so that a child begins with them."""
    table = TableSpec("warm-up", 1, 1, SGD(1.0))
    rows = HeldRows(None)
    rows.open(held_tables([(table, TableOrigin(table.name))], 0), 0)
    for dtype in (np.int32, np.int64):
        numbers = RowNumbers(np.zeros(1, dtype), np.ones(1, np.int64))
        rows.fetch(numbers)
        rows.update([(0, RowGradients(numbers, np.ones(1, np.float32), np.zeros(1, np.float32)))], 1)
    rows.engine.write_values(np.zeros(1, np.int64), np.ones(1, np.int64), RowValues(np.zeros(1, np.float32), np.zeros(0, np.float32)),
                             are_changed=True)  # fmt: skip
