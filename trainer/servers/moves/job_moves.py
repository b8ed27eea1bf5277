"""The servers of a run that the hosts of a job train. A user may move its tables to other servers, between two attempts.

The host of rank 0 has the files of requests. At the begin of an attempt it says which servers have the tables, so that all hosts agree, also
those that were started again; and to which servers the tables are moved before the attempt goes on.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from trainer.errors import ServerLost, TornCheckpoint
from trainer.options.combinations import MOVING, Setup, place_of, refusal_of
from trainer.options.document_field import DocumentField
from trainer.planning.plan_document import plan_at, plan_members
from trainer.servers.loads.copy_orders import CopySources
from trainer.servers.moves.bucket_moves import BucketMoves
from trainer.servers.moves.engine_move import MoveFigures, MoveStage
from trainer.servers.moves.move_checks import check_movable, check_request, taken_over
from trainer.servers.moves.move_documents import MoveFiles, MoveReport, MoveRequest, TrainingServers, new_id, problem_of
from trainer.servers.moves.table_copy import TableCopy
from trainer.servers.run_servers import RunServers
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.served_engine import ServedEngine
from trainer.wire.flight.addresses import Address
from transforms.errors import Busy, HeadraceError, InputError, NotFound, StorageError
from warehouse.storage.locations import is_gcs

_LOG = logging.getLogger(__name__)


def _place(servers: RunServers) -> dict[str, Any]:
    """What differs between the servers before and after a move, as a JSON object."""
    plan = None if servers.plan is None else plan_members(servers.plan)
    return {"addresses": list(map(str, servers.addresses)), "plan": plan, "run": servers.run}


class MoveDocuments(Protocol):
    """The documents of the moves of a run: files of a local one, objects of one in a bucket."""

    @property
    def place(self) -> str:
        """Where the documents are, for people."""

    def offered(self) -> AbstractContextManager[None]:
        """While this process takes requests. Raises :class:`Busy` if another one does."""

    def ask(self, request: MoveRequest) -> None:
        """Write a request. Raises :class:`Busy` if there is one that was not taken yet."""

    def take_request(self) -> MoveRequest | None:
        """The request, which is removed; None without one. Raises :class:`~transforms.errors.DataError` for other content."""

    def withdraw(self, request: MoveRequest) -> bool:
        """Remove a request that was not taken yet; whether it was there."""

    def discard_requests(self) -> None:
        """Remove requests to earlier trainings."""

    def write_state(self, state: TrainingServers) -> None:
        """Replace the state."""

    def read_state(self) -> TrainingServers:
        """The state. Raises :class:`NotFound` without one, and :class:`TornCheckpoint` for another document."""


def documents_of_run(run_dir: str) -> MoveDocuments:
    """The documents of the moves of a run, wherever it is."""
    return BucketMoves(run_dir) if is_gcs(run_dir) else MoveFiles.of_run(run_dir)


class JobMoves:
    """The servers of a host, which follows rank 0.

    Args:
        servers: those that the job was started with.
        files: the documents of requests, and of what is said of them.
        setup: what the job is, which may refuse all requests.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        servers: RunServers,
        files: MoveDocuments,
        *,
        setup: Setup = MOVING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.servers, self._given, self._files, self._clock = servers, servers, files, clock
        self._refusal = refusal_of(setup)
        self._training, self._context, self._is_open = new_id(), ExitStack(), False
        self._request: MoveRequest | None = None

    def agree(self, exchange: Exchange, engine: ServedEngine | None, check: Callable[[], None]) -> RunServers | None:
        """Go on with the servers that rank 0 has; returns those to which the tables are to be moved now, if there are some.

        All hosts call it at once. ``engine``: with the tables, if there is one already; ``check`` ends a wait.
        """
        if exchange.rank:
            self.close()
            said = b""
        else:
            target = self._take(engine, check)
            said = json.dumps([None if one is None else _place(one) for one in (self.servers, target)]).encode()
        received = exchange.all_to_all([[np.frombuffer(said, np.uint8)]] * exchange.hosts)
        here, there = DocumentField(json.loads(received[0][0].tobytes()), "servers of rank 0").items()
        self.servers = self._at(here)
        return None if there.value is None else self._at(there)

    def _at(self, field: DocumentField) -> RunServers:
        addresses = tuple(Address.parse(one) for one in field.at("addresses").texts())
        plan = None if field.at("plan").value is None else plan_at(field.at("plan"))
        are_named = addresses != self._given.addresses
        return replace(self._given, addresses=addresses, plan=plan, run=field.at("run").count(), are_named=are_named)

    def done(self, target: RunServers, figures: MoveFigures) -> None:
        """The tables are on ``target`` from now on, also for hosts that are started again. All hosts call it."""
        self.servers = target
        if self._request is not None:
            request, self._request = self._request, None
            self._write(MoveReport(request.id, figures))
            _LOG.info("tables were moved to %s", ", ".join(map(str, target.addresses)))

    def failed(self, error: BaseException, target: RunServers | None = None) -> None:
        """A move has failed; the tables stay, and the attempt begins again.

        ``target``: the other servers, if hosts have connected to them: embedding workers refuse attempts before those of its run.
        """
        if target is not None:
            self.servers = replace(self.servers, run=target.run)
        if self._request is not None:
            request, self._request = self._request, None
            problem = problem_of(error)
            if isinstance(error, ServerLost):  # of the other servers, or of those before, which the next attempt tells
                problem["next_step"] = "start the other servers, then ask again"
            self._write(MoveReport(request.id, MoveFigures(MoveStage.GIVEN_UP), problem))
            _LOG.warning("tables were not moved: %s", problem["what"])

    def close(self) -> None:
        """Offer no moves any more."""
        self._context.close()
        self._is_open = False

    # -- rank 0

    def _take(self, engine: ServedEngine | None, check: Callable[[], None]) -> RunServers | None:
        """The servers of a request that can be met. Another one is reported."""
        if not self._open() or (engine is None and self._refusal is None):
            return None  # without an engine the next attempt takes the request
        try:
            self._request = self._files.take_request()
        except (HeadraceError, OSError) as error:
            _LOG.warning("a request to move tables was not met: %s", problem_of(error)["what"])
            return None
        if self._request is None:
            return None
        try:
            if (found := self._refusal) is not None:
                raise InputError(
                    found.what, where=place_of(found), value=str(self._request.count), next_step=found.next_step
                )
            assert engine is not None, "only a job that refuses all requests looks without an engine"
            return self._target(self._request, engine, check)
        except HeadraceError as error:
            self.failed(error)
            return None

    def _target(self, request: MoveRequest, engine: ServedEngine, check: Callable[[], None]) -> RunServers:
        """The servers of a request. Raises :class:`InputError` for a request that this job does not meet, and :class:`ServerLost`."""
        check_request(request, self._training, self.servers)
        if isinstance(request.servers, int):
            raise InputError("ps move in a job needs the addresses of running servers", where="--servers", value=request.servers,
                             allowed="HOST:PORT,…", next_step="start them first: headrace ps serve")  # fmt: skip
        check_movable(engine, request)
        found = replace(self._given, addresses=request.servers, plan=request.plan)
        return taken_over(found, self.servers, self._clock(), check)

    def _open(self) -> bool:
        """Offer moves by the documents of the run, if no other process does. An earlier host of this job may have moved the tables.

        Raises :class:`StorageError`, and :class:`Busy` where another process has just done so: this one may not know which servers have the tables.
        """
        if self._is_open:
            return True
        try:
            self._context.enter_context(self._files.offered())
        except (Busy, OSError) as error:
            _LOG.warning("tables are not moved in this attempt: %s", problem_of(error)["what"])
            return False
        with ExitStack() as stack:
            stack.callback(self.close)
            try:
                state = self._files.read_state()
            except (NotFound, TornCheckpoint):
                state = None
            if state is not None and state.run > self.servers.run:
                self.servers = replace(self._given, addresses=state.servers, plan=state.plan, run=state.run)
            self._files.discard_requests()
            self._write(None)
            self._is_open = True
            stack.pop_all()
        return True

    def _write(self, report: MoveReport | None) -> None:
        of = self.servers
        try:
            self._files.write_state(TrainingServers(self._training, of.addresses, False, of.plan, report, of.run))
        except Busy:
            self.close()  # the next attempt reads what the other process has written
            raise
        except OSError as error:
            raise StorageError("the state of the servers was not written", where=self._files.place, value=error.strerror,
                               next_step="free disk space: the job goes on from its newest commit") from error  # fmt: skip


def copy_tables(source: PsEngine, target: PsEngine, sources: CopySources, check: Callable[[], None]) -> MoveFigures:
    """Copy all rows of ``source``, which nothing updates meanwhile, to the servers of ``target``; ``check`` ends it.

    ``sources``: the servers of ``source``, as those of ``target`` connect to them.
    """
    began, copied = time.monotonic(), [0]

    def add(rows: int) -> None:
        check()
        copied[0] += rows

    copy = TableCopy(source, target, sources, add)
    try:
        copy.begin()
        copy.copy_all()
        copy.copy_whole()
        copy.end()
    finally:
        copy.close()
    secs = time.monotonic() - began
    return MoveFigures(MoveStage.DONE, passes=1, pause_rows=copied[0], pause_secs=secs, secs=secs)
