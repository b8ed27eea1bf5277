"""The servers of a run that one process trains. A user may move its tables to other servers while training goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from trainer.errors import MoveGivenUp, ServerLost
from trainer.servers.moves.engine_move import EngineMove, MoveFigures, MoveStage
from trainer.servers.moves.move_checks import check_movable, check_request, taken_over
from trainer.servers.moves.move_documents import MoveFiles, MoveReport, MoveRequest, TrainingServers, new_id, problem_of
from trainer.servers.run_servers import PLAIN, RunServers, go_on
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.served_engine import ServedEngine, ServedOptions
from trainer.tables.routes.servers.server_link import Connect
from trainer.tables.spec import FeatureSpec
from trainer.wire.flight.addresses import Address
from transforms.errors import HeadraceError, InputError, listed

#: Between looks for a request, and between reports of a move.
_LOOK_SECS = 0.5


class StartedServers(Protocol):
    """Servers that the training process has started."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Their addresses."""

    @property
    def token(self) -> str:
        """The token that their clients must have."""

    def check(self) -> None:
        """Raise :class:`~transforms.errors.StorageError` if one has ended by an error, and is not started again."""

    def end(self) -> None:
        """End the servers that are still running."""


@dataclass(eq=False)
class _Move:
    """A move that is not finished.

    Attributes:
        request: what was asked for.
        engine: the move of the engine; None before it has begun.
        servers: the other servers, once they have answered.
        started: those among them that the training has started.
    """

    request: MoveRequest
    engine: EngineMove | None = None
    servers: RunServers | None = None
    started: StartedServers | None = None


class ServerMoves:
    """Makes the engines of a run, and moves them as users ask by the files of the run.

    Args:
        servers: those at the begin.
        files: of requests and of what is said of them.
        start: starts servers of this machine, with a token of their own.
        started: those among ``servers`` that were started so.
        tell: is called with a sentence for each move that has ended.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        servers: RunServers,
        files: MoveFiles,
        *,
        start: Callable[[int], StartedServers],
        started: StartedServers | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers, self._given, self._files = servers, servers, files
        self._start, self._started, self._tell, self._clock = start, started, tell, clock
        self._training, self._attempt, self._next_look = new_id(), 0, clock()
        # The engine on servers themselves, and that of the attempt over it.
        self._open_direct: Callable[[RunServers, Sequence[Connect]], PsEngine] | None = None
        self._make: Callable[[RunServers, PsEngine], ServedEngine] | None = None
        self._move: _Move | None = None
        self._context = ExitStack()
        self._is_open, self._are_all_used = False, True
        # Its thread starts servers, which end with the thread that has started them.
        self._background = ThreadPoolExecutor(1, "server-moves")

    @property
    def servers(self) -> RunServers:
        """The servers that have the tables now."""
        return self._servers

    def engine(
        self,
        attempt: int,
        features: Sequence[FeatureSpec],
        seed: int,
        held: int,
        options: ServedOptions = PLAIN,
        unused: Sequence[str] = (),
    ) -> ServedEngine:
        """The engine of an attempt of the run, on the servers that have its tables. A move from an earlier engine is given up.

        ``unused``: the names of servers that are away, on which there are none.
        """
        self._give_up(MoveGivenUp("training began again from its newest checkpoint", next_step="ask again"))
        if not self._is_open:
            self._open_files()
        check = go_on if self._started is None else self._started.check

        def make(servers: RunServers, direct: PsEngine) -> ServedEngine:
            return servers.engine_on(direct, seed, held, options, servers.connect_workers(attempt, held, check=check))

        self._attempt, self._make = attempt, make
        self._open_direct = lambda servers, connects: servers.direct_engine(connects, features, seed, held, options)
        used = self._servers.without(unused)
        self._are_all_used = used == self._servers
        connects, workers = (
            used.connect(attempt, check=check, check_saving=check),
            used.connect_workers(attempt, held, check=check),
        )
        return used.engine_over(connects, features, seed, held, options, workers)

    def take_notices(self) -> tuple[str, ...]:
        """The names of servers that people have given a preemption notice."""
        return self._files.take_notices(self._training)

    def follow(self, engine: ServedEngine, may_end: bool) -> ServedEngine:
        """The engine to go on with: ``engine``, or that on other servers once these have all rows.

        It is called between lookups and updates. A move that fails is given up, and training goes on. ``may_end``: whether the engine may be replaced.
        """
        move = self._move
        if move is None or move.engine is None:
            if self._clock() >= self._next_look:
                self._next_look = self._clock() + _LOOK_SECS
                self._look(engine)
            return engine
        try:
            found = move.engine.advance(may_end=may_end)
        except Exception as error:
            if move.engine.figures.stage is not MoveStage.GIVEN_UP:
                raise  # the servers of training have failed
            self._end_without(error)
            return engine
        if found is not None:
            return self._end(move, engine, found)
        if self._clock() >= self._next_look:
            self._next_look = self._clock() + _LOOK_SECS
            self._write(MoveReport(move.request.id, move.engine.figures))
        return engine

    def _look(self, engine: ServedEngine) -> None:
        """Begin the move of a request, if there is one that can be met."""
        try:
            request = self._files.take_request()
        except (HeadraceError, OSError) as error:
            self._tell(f"a request to move tables was not met: {problem_of(error)['what']}")
            return
        if request is None:
            return
        self._move = move = _Move(request)
        try:
            check_request(request, self._training, self._servers)
            if not self._are_all_used:
                raise InputError("ps move needs all servers of the training", where="--servers", value=str(request.count),
                                 next_step="wait until the server is back that left after a preemption notice, then ask again")  # fmt: skip
            source = check_movable(engine, request)
        except InputError as error:
            self._end_without(error)
            return
        move.engine = EngineMove(
            source,
            partial(self._open_target, move),
            self._background,
            self._servers.sources(self._attempt),
            finish=engine.finish,
        )
        self._write(MoveReport(request.id, move.engine.figures))

    def _open_target(self, move: _Move, check: Callable[[], None]) -> PsEngine:
        """The engine on the servers of a request; in the background."""
        request = move.request
        if isinstance(request.servers, int):
            move.started = self._start(request.servers)
            token = move.started.token
            found = replace(self._given, addresses=move.started.addresses, token=token, tls=None, plan=request.plan)
        else:
            found = replace(self._given, addresses=request.servers, plan=request.plan)
        move.servers = taken_over(replace(found, are_named=True), self._servers, time.time(), check)
        assert self._open_direct is not None
        return self._open_direct(move.servers, move.servers.connect(self._attempt, check=check))

    def _end(self, move: _Move, engine: ServedEngine, direct: PsEngine) -> ServedEngine:
        """The engine over the new servers, which have all rows now. Workers take them with it: earlier sessions are refused from then on."""
        assert move.engine is not None
        assert move.servers is not None
        assert self._make is not None
        try:
            found = self._make(move.servers, direct)
        except BaseException:  # workers refuse attempts before those of this run from now on
            self._servers = replace(self._servers, run=move.servers.run)
            raise
        before, started = self._servers.addresses, self._started
        self._servers, self._started, self._move = move.servers, move.started, None
        engine.close()
        if started is not None:
            self._background.submit(started.end)
        self._write(MoveReport(move.request.id, move.engine.figures))
        self._tell(
            f"tables moved from {_listed(before)} to {_listed(self._servers.addresses)}: {figures_text(move.engine.figures)}"
        )
        return found

    def _give_up(self, error: HeadraceError) -> None:
        """Give the move up, if there is one."""
        if self._move is not None and self._move.engine is not None:
            self._move.engine.give_up()
            self._end_without(error)

    def _end_without(self, error: BaseException) -> None:
        """The move has failed: say so, and end servers that were started for it."""
        move, self._move = self._move, None
        assert move is not None
        self._background.submit(_end_started, move)
        figures = MoveFigures() if move.engine is None else move.engine.figures
        problem = problem_of(error)
        if isinstance(error, ServerLost):  # of the other servers: training has not lost anything
            problem["next_step"] = "start the other servers, then ask again; training goes on with those before"
        self._write(MoveReport(move.request.id, replace(figures, stage=MoveStage.GIVEN_UP), problem))
        where = f" ({problem['where']})" if "where" in problem else ""
        self._tell(
            f"tables were not moved: {problem['what']}{where}; training goes on with {_listed(self._servers.addresses)}"
        )

    def _open_files(self) -> None:
        """Offer moves by the files of the run."""
        self._context.enter_context(self._files.offered())
        self._is_open = True
        self._files.discard_requests()
        self._write(None)

    def _write(self, report: MoveReport | None) -> None:
        """Say where the tables are, and what the newest move does. Training goes on where the disk is full."""
        servers = self._servers
        state = TrainingServers(
            self._training, servers.addresses, self._started is not None, servers.plan, report, servers.run
        )
        try:
            self._files.write_state(state)
        except OSError as error:
            self._tell(f"the state of the servers was not written: {error.strerror}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_up(MoveGivenUp("training has ended first"))
        if self._started is not None:
            self._started.end()  # before the thread in which it was started
        self._background.shutdown()
        self._context.close()


def figures_text(figures: MoveFigures) -> str:
    """What a move has done, in words."""
    return (
        f"{figures.copied_rows:,} rows copied while training went on, {figures.pause_rows:,} in a pause of {figures.pause_secs:.3f} s; "
        f"{figures.secs:.1f} s in all"
    )


def _end_started(move: _Move) -> None:
    if move.started is not None:
        move.started.end()


def _listed(addresses: Sequence[Address]) -> str:
    return listed([str(one) for one in addresses])
