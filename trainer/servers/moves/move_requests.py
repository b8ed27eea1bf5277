"""Waits until a training has answered a request to move its tables."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.errors import MoveGivenUp
from trainer.servers.moves.engine_move import MoveFigures, MoveStage
from trainer.servers.moves.job_moves import MoveDocuments
from trainer.servers.moves.move_documents import MoveRequest, TrainingServers

#: Between looks at the files of a local run, and at the objects of one in a bucket, each of which is a request or two.
LOOK_SECS, LOOK_IN_BUCKET_SECS = 0.2, 2.0


def wait_for_move(
    files: MoveDocuments,
    request: MoveRequest,
    is_training: Callable[[], bool],
    on_figures: Callable[[MoveFigures], None],
    *,
    look_secs: float = LOOK_SECS,
    sleep: Callable[[float], None] = time.sleep,
) -> TrainingServers:
    """The servers of a training after the move of ``request``; ``on_figures`` is called while it goes on, ``is_training`` to see whether it does.

    Raises :class:`MoveGivenUp` for one that training has given up, and if training has ended.
    """
    while True:
        is_running = is_training()
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
            raise MoveGivenUp("tables were not moved: training has ended", where=files.place,
                              next_step="start it with the servers that it is to have: it goes on from its newest checkpoint")  # fmt: skip
        sleep(look_secs)
