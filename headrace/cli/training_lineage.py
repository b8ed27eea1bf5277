"""The lineage of a training that ``headrace train`` runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from transforms.errors import HeadraceError

if TYPE_CHECKING:
    from trainer.run.loop import TrainReport
    from warehouse.lineage.documents import EventKind
    from warehouse.lineage.recording import TrainingLineage
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)


class RecordedTraining:
    """Writes the events of a training into the catalog, from which they are sent. A catalog that is away ends no training.

    Args:
        warehouse: the warehouse.
        training: what it reads and writes; None: nothing is written.
    """

    def __init__(self, warehouse: Warehouse, training: TrainingLineage | None) -> None:
        self._warehouse, self._training = warehouse, training
        self._has_ended = False

    def look(self) -> None:
        """There may be a newer commit."""
        if self._training is None:
            return
        from trainer.checkpoints.open_run import open_run
        from trainer.checkpoints.run_files import newest_first
        from warehouse.lineage.documents import EventKind

        try:
            newest = newest_first(open_run(self._training.folder))[:1]
        except (HeadraceError, OSError) as error:
            _LOG.warning("a commit is not in the lineage: %s", error)
            return
        if newest:
            self.write(EventKind.RUNNING, checkpoint=newest[0])

    def end(self, report: TrainReport) -> None:
        """The training is over, or stops before its end."""
        from warehouse.lineage.documents import EventKind

        kind = EventKind.COMPLETE if report.finished else EventKind.ABORT
        self.write(kind, events=report.events, checkpoint=report.checkpoint.rpartition("/")[2])

    def write(self, kind: EventKind, *, events: int | None = None, checkpoint: str = "", error: str = "") -> None:
        """Write an event, unless the training has ended before; see :func:`warehouse.lineage.recording.record_training`."""
        if self._training is None or self._has_ended:
            return
        from warehouse.lineage.documents import EventKind
        from warehouse.lineage.recording import record_training

        self._has_ended = kind not in (EventKind.START, EventKind.RUNNING)
        try:
            record_training(self._warehouse, self._training, kind, events=events, checkpoint=checkpoint, error=error)
        except HeadraceError as failed:
            _LOG.warning("the %s of this training is not in the lineage: %s", kind, failed)


@contextmanager
def recorded_training(warehouse: Warehouse, solution: ReadSolution, folder: str) -> Iterator[RecordedTraining]:
    """Write the START of a training, and its end if it fails or is interrupted in the block; nothing without a receiver."""
    if not warehouse.config.lineage:
        yield RecordedTraining(warehouse, None)
        return
    from warehouse.lineage.documents import EventKind

    recorded = RecordedTraining(warehouse, _lineage_of(solution, folder))
    recorded.write(EventKind.START)
    try:
        yield recorded
    except (KeyboardInterrupt, SystemExit):
        recorded.write(EventKind.ABORT)
        raise
    except BaseException as error:
        recorded.write(EventKind.FAIL, error=error.what if isinstance(error, HeadraceError) else repr(error))
        raise


def _lineage_of(solution: ReadSolution, folder: str) -> TrainingLineage:
    from warehouse.lineage.recording import TrainingLineage

    return TrainingLineage(
        folder,
        solution.model,
        solution.model_version,
        solution.table,
        solution.table_version,
        solution.partitions[-1].key if solution.partitions else "",
        {one.name: one.root for one in solution.inputs},
        sorted({fingerprint for plan in solution.plans for fingerprint in plan.loads}),
    )
