"""A move of tables from the servers of one engine to those of another one, while training goes on.

All rows are copied in the background, then those that training has updated meanwhile, again and again as long as they become fewer. The
last of them are copied between two steps, with all rows of hashed and pruned tables, and the other engine takes over. Until then nothing is changed on the
earlier servers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from enum import StrEnum

from trainer.errors import MoveGivenUp
from trainer.servers.loads.copy_orders import CopySources
from trainer.servers.moves.table_copy import TableCopy
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.noted_rows import NotedRows

#: Passes over noted rows while training goes on.
_MOST_PASSES = 6
#: Noted rows that are copied between two steps without another pass.
_FEW_ROWS = 1 << 12
#: Another pass is made while the rows become fewer than this part of those of the pass before.
_SHRINKING = 0.8


class MoveStage(StrEnum):
    """Where a move is: the servers are opened, rows are copied, it has ended with the other servers, or without them."""

    OPENING = "opening"
    COPYING = "copying"
    DONE = "done"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class MoveFigures:
    """What a move has done.

    Attributes:
        stage: where it is.
        copied_rows: the rows that were copied while training went on, each as often as it was copied.
        passes: over all rows, and over noted ones.
        pause_rows: the rows that were copied while training waited.
        pause_secs: how long training waited for the end of the move.
        secs: since its begin.
    """

    stage: MoveStage = MoveStage.OPENING
    copied_rows: int = 0
    passes: int = 0
    pause_rows: int = 0
    pause_secs: float = 0.0
    secs: float = 0.0


class EngineMove:
    """A move from ``source``. The thread that uses the engine calls :meth:`advance` between its lookups and updates.

    Args:
        source: the engine, or that on the servers themselves which is beside one of embedding workers.
        open_target: makes the engine on the other servers, in the background. It is given :meth:`check`, to call while it waits.
        executor: the threads of the background; one is enough.
        sources: the servers of ``source``, as the other servers connect to them.
        finish: waits until the servers have made all updates of the engine that trains; None: ``source`` is that engine.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        source: PsEngine,
        open_target: Callable[[Callable[[], None]], PsEngine],
        executor: Executor,
        sources: CopySources,
        *,
        finish: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._finish = finish or source.finish
        self._source, self._open_target, self._executor, self._clock = source, open_target, executor, clock
        self._sources = sources
        self._began = clock()
        self._target: PsEngine | None = None
        self._copy: TableCopy | None = None
        self._noted: NotedRows | None = None
        self._pass_rows = 0
        self._ends = threading.Event()
        self._figures = MoveFigures()
        self._work: Future[None] = executor.submit(self._open)

    @property
    def figures(self) -> MoveFigures:
        """What it has done; any thread may ask."""
        is_over = self._figures.stage in (MoveStage.DONE, MoveStage.GIVEN_UP)
        return self._figures if is_over else replace(self._figures, secs=self._clock() - self._began)

    def check(self) -> None:
        """Raise :class:`MoveGivenUp` after :meth:`give_up`: what waits for the other servers ends by it."""
        if self._ends.is_set():
            raise MoveGivenUp("the move was given up")

    def advance(self, *, may_end: bool = True) -> PsEngine | None:
        """Go on without waiting for copies; returns the engine on the other servers once they have all rows.

        ``may_end``: whether the engine may be replaced now.

        Raises what the copy has raised; the move is given up then. Raises :class:`~trainer.errors.ServerLost` for the servers of the source.
        """
        if not self._work.done():
            return None
        noted, self._noted = self._noted, None
        try:
            self._work.result()
            is_end = noted is not None and may_end and self._is_short(noted)
            if noted is not None and not is_end and noted.count <= _FEW_ROWS:
                self._noted = noted  # until the engine may be replaced
                return None
        except BaseException:
            self.give_up()
            raise
        self._finish()  # what is read from now on has all updates that are not noted from now on
        if not is_end:
            self._begin_pass(noted)
            return None
        try:
            return self._end(noted)
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """End the move without the other servers, and the connections to them."""
        self._ends.set()
        self._source.note_updates(None)
        self._executor.submit(self._close_target)
        self._figures = replace(self.figures, stage=MoveStage.GIVEN_UP)

    def _open(self) -> None:
        self._target = self._open_target(self.check)
        self._copy = TableCopy(self._source, self._target, self._sources, self._add_rows)
        self._copy.begin()

    def _begin_pass(self, noted: NotedRows | None) -> None:
        """Note updates from now on, and copy in the background: noted rows, or all."""
        assert self._copy is not None
        unmarked = [name for names in self._source.whole_tables for name in names]
        self._noted = NotedRows(self._source.parts, unmarked=unmarked)
        self._source.note_updates(self._noted)
        self._figures = replace(self._figures, stage=MoveStage.COPYING, passes=self._figures.passes + 1)
        if noted is None:
            self._work = self._executor.submit(self._copy.copy_all)
        else:
            self._pass_rows = noted.count
            self._work = self._executor.submit(self._copy.copy_noted, noted)

    def _is_short(self, noted: NotedRows) -> bool:
        """Whether the noted rows are to be copied between two steps."""
        before = self._pass_rows or self._figures.copied_rows
        return noted.count <= _FEW_ROWS or noted.count > _SHRINKING * before or self._figures.passes > _MOST_PASSES

    def _end(self, noted: NotedRows | None) -> PsEngine:
        """Copy the last rows while training waits."""
        assert self._copy is not None
        assert self._target is not None
        assert noted is not None
        began, before = self._clock(), self._figures.copied_rows
        self._source.note_updates(None)
        self._copy.copy_noted(noted)
        self._copy.copy_whole()
        self._copy.end()
        self._copy.close()
        ended, rows = self._clock(), self._figures.copied_rows - before
        self._figures = replace(
            self._figures,
            stage=MoveStage.DONE,
            copied_rows=before,
            pause_rows=rows,
            pause_secs=ended - began,
            secs=ended - self._began,
        )
        return self._target

    def _add_rows(self, rows: int) -> None:
        self.check()
        self._figures = replace(self._figures, copied_rows=self._figures.copied_rows + rows)

    def _close_target(self) -> None:
        if self._copy is not None:
            self._copy.close()
        if self._target is not None:
            self._target.close()
