"""The servers of a run that the hosts of a job train. A user may move its tables to other servers, between two attempts.

The host of rank 0 has the files of requests. At the begin of an attempt it says which servers have the tables, so that all hosts agree, also
those that were started again; and to which servers the tables are moved before the attempt goes on.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainer.document_field import DocumentField
from trainer.embedding.exchange import Exchange
from trainer.embedding.ps.engine import PsEngine
from trainer.embedding.ps.engine_move import MoveFigures, MoveStage
from trainer.embedding.ps.served_engine import ServedEngine
from trainer.embedding.ps.table_copy import TableCopy
from trainer.errors import ConfigError, ServerLost, TornCheckpoint
from trainer.flight.addresses import Address
from trainer.servers.move_documents import MoveFiles, MoveReport, MoveRequest, TrainingServers, new_id, problem_of
from trainer.servers.run_servers import RunServers
from trainer.servers.server_moves import FIRST_ANSWER_SECS, check_other_servers
from transforms.errors import Busy, HeadraceError, InputError, NotFound, StorageError

Array = np.ndarray[Any, np.dtype[Any]]

_LOG = logging.getLogger(__name__)
_END_FIRST = "end the job, and start it again with other --servers: it goes on from its newest commit"


@dataclass(frozen=True, slots=True)
class _Place:
    """Servers, and the number of the run that has them."""

    addresses: tuple[Address, ...]
    run: int

    def to_document(self) -> dict[str, Any]:
        return {"addresses": list(map(str, self.addresses)), "run": self.run}

    @classmethod
    def read(cls, field: DocumentField) -> _Place:
        return cls(tuple(Address.parse(one) for one in field.at("addresses").texts()), field.at("run").count())


class JobMoves:
    """The servers of a host, which follows rank 0.

    Args:
        servers: those that the job was started with.
        files: of requests, and of what is said of them; None: tables are not moved, as for a run in a bucket.
        clock: seconds since 1970.
    """

    def __init__(self, servers: RunServers, files: MoveFiles | None, *, clock: Callable[[], float] = time.time) -> None:
        self.servers, self._given, self._files, self._clock = servers, servers, files, clock
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
            places = [
                None if one is None else _Place(one.addresses, one.run).to_document() for one in (self.servers, target)
            ]
            said = json.dumps(places).encode()
        received = exchange.all_to_all([[np.frombuffer(said, np.uint8)]] * exchange.hosts)
        here, there = DocumentField(json.loads(received[0][0].tobytes()), "servers of rank 0").items()
        self.servers = self._at(here)
        return None if there.value is None else self._at(there)

    def _at(self, field: DocumentField) -> RunServers:
        place = _Place.read(field)
        return replace(self._given, addresses=place.addresses, run=place.run)

    def done(self, target: RunServers, figures: MoveFigures) -> None:
        """The tables are on ``target`` from now on, also for hosts that are started again. All hosts call it."""
        self.servers = target
        if self._request is not None:
            request, self._request = self._request, None
            self._write(MoveReport(request.id, figures))
            _LOG.info("tables were moved to %s", ", ".join(map(str, target.addresses)))

    def failed(self, error: BaseException) -> None:
        """A move has failed; the tables stay, and the attempt begins again."""
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
        if self._files is None or not self._open(self._files):
            return None
        try:
            self._request = self._files.take_request()
        except (HeadraceError, OSError) as error:
            _LOG.warning("a request to move tables was not met: %s", problem_of(error)["what"])
            return None
        if self._request is None:
            return None
        try:
            return self._target(self._request, engine, check)
        except HeadraceError as error:
            self.failed(error)
            return None

    def _target(self, request: MoveRequest, engine: ServedEngine | None, check: Callable[[], None]) -> RunServers:
        """The servers of a request. Raises :class:`InputError` for a request that this job does not meet, and :class:`ServerLost`."""
        if request.training != self._training:
            raise ConfigError("a request must be for the training that runs", value=request.training, allowed=self._training,
                              next_step="ask again")  # fmt: skip
        if isinstance(request.servers, int):
            raise InputError("tables of a job must be moved to servers that run", where="--servers", value=request.servers,
                             allowed="HOST:PORT,…", next_step="start them first: headrace ps serve")  # fmt: skip
        if request.plan is not None or self._given.plan is not None:
            raise InputError("tables of a job by a plan of servers must stay on their servers while it runs", where="--plan", next_step=_END_FIRST)  # fmt: skip
        if self._given.workers or (engine is not None and (not isinstance(engine, PsEngine) or engine.limits)):
            raise InputError("hashed and pruned tables, and those of embedding workers, must stay on their servers while a job runs",
                             where="--servers", next_step=_END_FIRST)  # fmt: skip
        check_other_servers(request.servers, self.servers.addresses)
        found = replace(self._given, addresses=request.servers)
        before = replace(found, patience_secs=FIRST_ANSWER_SECS).wait(lambda address: check())
        return replace(found, run=max(int(self._clock() * 1000), before + 1, self.servers.run + 1))

    def _open(self, files: MoveFiles) -> bool:
        """Offer moves by the files of the run, if no other process does. An earlier host of this job may have moved the tables."""
        if self._is_open:
            return True
        try:
            self._context.enter_context(files.offered())
        except (Busy, OSError) as error:
            _LOG.warning("tables are not moved in this attempt: %s", problem_of(error)["what"])
            return False
        self._is_open = True
        try:
            state = files.read_state()
        except (NotFound, TornCheckpoint):
            state = None
        if state is not None and state.run > self.servers.run:
            self.servers = replace(self._given, addresses=state.servers, run=state.run)
        files.request.unlink(missing_ok=True)  # of an earlier training
        self._write(None)
        return True

    def _write(self, report: MoveReport | None) -> None:
        assert self._files is not None
        of, is_planned = self.servers, self._given.plan is not None
        try:
            self._files.write_state(TrainingServers(self._training, of.addresses, False, is_planned, report, of.run))
        except OSError as error:
            raise StorageError("the state of the servers was not written", where=str(self._files.state), value=error.strerror,
                               next_step="free disk space: the job goes on from its newest commit") from error  # fmt: skip


def copy_tables(source: PsEngine, target: PsEngine, check: Callable[[], None]) -> MoveFigures:
    """Copy all rows of ``source``, which nothing updates meanwhile, to the servers of ``target``; ``check`` ends it."""
    began, copied = time.monotonic(), [0]

    def add(rows: int) -> None:
        check()
        copied[0] += rows

    copy = TableCopy(source, target, add)
    try:
        copy.begin()
        copy.copy_all()
        copy.end()
    finally:
        copy.close()
    secs = time.monotonic() - began
    return MoveFigures(MoveStage.DONE, passes=1, pause_rows=copied[0], pause_secs=secs, secs=secs)
