"""Waits until a training has answered a request to move its tables."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.errors import MoveGivenUp
from trainer.run.progress.lock import is_locked
from trainer.servers.moves.engine_move import MoveFigures, MoveStage
from trainer.servers.moves.move_documents import MoveFiles, MoveRequest, TrainingServers

_LOOK_SECS = 0.2


def wait_for_move(
    files: MoveFiles,
    request: MoveRequest,
    on_figures: Callable[[MoveFigures], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> TrainingServers:
    """The servers of a training after the move of ``request``; ``on_figures`` is called while it goes on.

    Raises :class:`MoveGivenUp` for one that training has given up, and if training has ended.
    """
    while True:
        is_running = is_locked(files.folder)
        state = files.read_state()
        move = state.move if state.training == request.training else None
        if move is not None and move.id == request.id:
            if move.figures.stage is MoveStage.DONE:
                return state
            if move.is_over:
                problem = dict(move.problem)
                raise MoveGivenUp(f"tables were not moved: {problem.pop('what', '')}", **problem)
            on_figures(move.figures)
        if not is_running or state.training != request.training:
            files.withdraw(request)
            raise MoveGivenUp("tables were not moved: training has ended", where=str(files.folder),
                              next_step="start it with the servers that it is to have: it goes on from its newest checkpoint")  # fmt: skip
        sleep(_LOOK_SECS)
