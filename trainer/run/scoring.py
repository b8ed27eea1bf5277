"""Score the held-out events of a run after a pass over the older ones, and fit the calibration to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from trainer.errors import NEXT_AFTER_DIVERGENCE, NonFiniteLoss
from trainer.evaluation.shared_arrays import shuffled
from trainer.model.calibration import fit_labels
from trainer.model.event_losses import event_losses
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.run.batch_files.epoch_batches import RunFiles
from trainer.run.predictions import Predictor
from trainer.run.preparation.preparation import PreparedRun
from trainer.run.progress.held_out import ScoredPass
from trainer.run.reading.batches import Batch, make_batches
from trainer.run.reading.stream import ReadFragment, fragment_stream
from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array


def score_held_out(
    prepared: PreparedRun,
    passes: int,
    epochs_done: int,
    predict: Predictor,
    read: ReadFragment,
    files: RunFiles | None = None,
) -> ScoredPass | None:
    """The figures of the held-out events after ``passes`` passes; None if none has a label. ``files``: of their batches.

    Raises :class:`NonFiniteLoss` for predictions that are not finite, and the errors of reading a fragment.
    """
    layout, head, config = prepared.layout, prepared.head, prepared.config
    labels: list[Array] = []
    logits: list[Array] = []
    refs = prepared.held_out_refs

    def assemble() -> Iterator[Batch]:
        stream = fragment_stream(refs, read, layout, ahead=config.prefetch_fragments, head=head)
        with closing(stream):  # type: ignore[type-var]
            yield from make_batches(stream, layout, batch_rows=config.batch_rows)

    with closing(assemble() if files is None else files.batches(refs, assemble, assemble)) as batches:  # type: ignore[type-var]
        for batch, scores in predict(batches):
            if not np.isfinite(scores).all():
                raise NonFiniteLoss("training diverged: a prediction of a held-out event must be finite",
                                    where=f"after pass {passes}", next_step=NEXT_AFTER_DIVERGENCE)  # fmt: skip
            labels.append(batch.labels[: batch.rows].copy())
            logits.append(scores.copy())
    if not labels:
        return None
    return scored_pass(passes, epochs_done, head, config, np.concatenate(labels), np.concatenate(logits))


def scored_pass(
    passes: int,
    epochs_done: int,
    head: AnyHead,
    config: TrainConfig,
    labels: Array,
    logits: Array,
    exchange: Exchange | None = None,
) -> ScoredPass | None:
    """The figures of held-out events of all hosts, which call it at once; None if there are none. Calibrations are fitted on the first host.

    Args:
        passes: how often the older events were trained.
        epochs_done: epochs of the run at that moment.
        head: the model's task.
        config: the run's options.
        labels: of this host's events, in time order after those of the hosts before it.
        logits: of them, without a calibration.
        exchange: of the hosts; None: this process alone.
    """
    collector = head.collector()
    collector.add(labels, logits)
    scores = collector.scores(exchange)
    if not scores.events:
        return None
    calibrations = {}
    if config.calibration != "none":  # a fit needs all events in the order of their logits
        every = (labels, logits) if exchange is None else _on_first_host(exchange, head, labels, logits)
        if exchange is None or not exchange.rank:
            calibrations = fit_labels(config.calibration, head, *every)
    losses = event_losses(head, labels, logits, config.task_weights)
    return ScoredPass.of(passes, epochs_done, scores, losses, calibrations, exchange)


def _on_first_host(exchange: Exchange, head: AnyHead, labels: Array, logits: Array) -> tuple[Array, Array]:
    """Those of all hosts, in time order; on other hosts none."""
    own = [np.asarray(one, np.float32).reshape(-1) for one in (labels, logits)]
    parts = [own if not rank else [one[:0] for one in own] for rank in range(exchange.hosts)]
    every, scores = (np.concatenate(one) for one in shuffled(exchange, parts))
    width = int(np.prod(head.label_shape(1)))
    shaped = scores.reshape(-1, head.width) if head.width > 1 else scores
    return every.reshape(head.label_shape(len(every) // width)), shaped
