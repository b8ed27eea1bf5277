"""A trained model that several hosts have together, for predictions of events without labels: each has its share of the tables, and tables of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trainer.job.host.sharded_weights import empty_batch
from trainer.job.scoring.shared_predictions import shared_predictions
from trainer.job.scoring.shared_scoring import ScoringChannels, agreed_run, check_agreed_events
from trainer.job.scoring.shared_weights import shared_weights
from trainer.model.calibration import calibrated
from trainer.model.inputs import InputLayout, lay_out
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import Batch, make_batches
from trainer.run.reading.columns import decode
from trainer.run.weights.run_state import Weights
from trainer.run.weights.saved_run import SavedRun
from transforms.arrays import Array
from transforms.errors import HeadraceError
from warehouse.solution.solution import ReadSolution

#: Predictions as :meth:`trainer.serving.trained.Trained.predict` returns them.
Predictions = Array | Mapping[str, Array]


@dataclass(slots=True, eq=False)
class _Table:
    """A table whose batches are predicted: how many are left, and the logits so far; or why it cannot be."""

    left: int
    logits: list[Array]
    error: HeadraceError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SharedModel:
    """One host's part of a trained model.

    Attributes:
        saved: the run, with this host's share of its tables.
    """

    saved: SavedRun
    _config: TrainConfig
    _layout: InputLayout
    _weights: Weights
    _channels: ScoringChannels

    def predict(self, tables: Iterator[pa.Table]) -> Iterator[Predictions | HeadraceError]:
        """The predictions of this host's tables, in order, with the bits of one process; all hosts iterate at once, to the end.

        ``tables``: with a column for each input. For one with a wrong value there is its :class:`~trainer.errors.BadFeature`.
        """
        begun: deque[_Table] = deque()
        head, rows = self.saved.head, self._config.batch_rows
        idle = empty_batch(self._layout, rows, head)

        def batches() -> Iterator[Batch]:
            for table in tables:
                try:
                    decoded = decode(table, self._layout, "given to predict", labelled=False)
                except HeadraceError as error:
                    begun.append(_Table(0, [], error))
                    continue
                begun.append(_Table(-(-decoded.rows // rows), []))
                yield from make_batches([decoded], self._layout, batch_rows=rows)

        for _, logits in shared_predictions(self._weights, batches(), idle, self._channels.steps):
            yield from self._ended(begun)
            begun[0].logits.append(logits)
            begun[0].left -= 1
        yield from self._ended(begun)

    def _ended(self, begun: deque[_Table]) -> Iterator[Predictions | HeadraceError]:
        """Those of the first tables that have no batch left."""
        head = self.saved.head
        none = np.zeros((0, head.width) if head.width > 1 else 0, np.float32)
        while begun and not begun[0].left:
            one = begun.popleft()
            logits = np.concatenate([none, *one.logits])
            yield one.error or head.predictions(calibrated(head, self.saved.progress.calibrations, logits))


def shared_model(
    run_dir: str,
    solution: ReadSolution,
    channels: ScoringChannels,
    *,
    on_skip: Callable[[str], None] = lambda reason: None,
) -> SharedModel:
    """This host's part of the newest intact checkpoint of a run. All hosts call it at once.

    Raises the errors of :func:`~trainer.job.scoring.shared_scoring.score_together`.
    """
    saved = agreed_run(run_dir, channels.steps, on_skip)
    config = TrainConfig.from_document(saved.identity.config, run_dir=run_dir)
    check_agreed_events(saved, solution, config, channels.steps)
    layout = lay_out(saved.identity.typed_inputs, config)
    weights = shared_weights(layout, config, saved.head, saved.arrays, channels.tables)
    return SharedModel(saved, config, layout, weights, channels)
