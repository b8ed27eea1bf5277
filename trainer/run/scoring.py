"""Score the held-out events of a run after a pass over the older ones, and fit the calibration to them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np

from trainer.errors import NEXT_AFTER_DIVERGENCE, NonFiniteLoss
from trainer.model.calibration import fit_labels
from trainer.model.event_losses import event_losses
from trainer.run.preparation.preparation import PreparedRun
from trainer.run.progress.held_out import ScoredPass
from trainer.run.reading.batches import Batch, make_batches
from trainer.run.reading.stream import ReadFragment, fragment_stream
from transforms.arrays import Array


def score_held_out(
    prepared: PreparedRun, passes: int, epochs_done: int, predict: Callable[[Batch], Array], read: ReadFragment
) -> ScoredPass | None:
    """The figures of the held-out events after ``passes`` passes; None if none has a label.

    ``predict``: the logits of a batch, float32 [batch.rows] or [batch.rows, outputs]. Raises :class:`NonFiniteLoss` for predictions that
    are not finite, and the errors of reading a fragment.
    """
    layout, head, config = prepared.layout, prepared.head, prepared.config
    collector, losses = head.collector(), [np.zeros(0)]
    kept: list[tuple[Array, Array]] = []
    stream = fragment_stream(prepared.held_out_refs, read, layout, ahead=config.prefetch_fragments, head=head)
    with closing(stream):  # type: ignore[type-var]
        for batch in make_batches(stream, layout, batch_rows=config.batch_rows):
            labels, logits = batch.labels[: batch.rows], predict(batch)
            if not np.isfinite(logits).all():
                raise NonFiniteLoss("training diverged: a prediction of a held-out event must be finite",
                                    where=f"after pass {passes}", next_step=NEXT_AFTER_DIVERGENCE)  # fmt: skip
            collector.add(labels, logits)
            losses.append(event_losses(head, labels, logits, config.task_weights))
            if config.calibration != "none":
                kept.append((labels.copy(), logits.copy()))
    found = np.concatenate(losses)
    if not len(found):
        return None
    calibrations = {}
    if kept:
        every = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
        calibrations = fit_labels(config.calibration, head, *every)
    return ScoredPass.of(passes, epochs_done, collector.scores(), found, calibrations)
