"""Predict on several hosts, of which each has its share of the tables' rows and batches of its own.

All hosts look rows up together, batch by batch, and each computes the dense part of its own batches while the next rows come. A host without a batch looks
up none of its own, and answers the others. Rows, not sums, come from other hosts, so that equal batches have the predictions of one process, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from trainer.evaluation.shared_arrays import gather_numbers
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import LookedUp
from trainer.run.weights.run_state import Weights
from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array


def shared_predictions(
    weights: Weights,
    batches: Iterator[Batch],
    idle: Batch,
    steps: Exchange,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[tuple[Batch, Array]]:
    """This host's batches with their logits; all hosts iterate at once, to the end.

    Args:
        weights: with a share of the rows.
        batches: of this host.
        idle: a batch without events.
        progress: called with the events that all hosts have scored.
    """
    weights.predict(idle)  # compiles the model before hosts wait for each other in a step
    done = 0
    with ThreadPoolExecutor(1, "lookups") as lookups:
        before: tuple[Batch, Future[LookedUp]] | None = None  # its rows were looked up, or are meanwhile
        batch = next(batches, None)
        while True:
            said = gather_numbers(steps, [batch is not None, done])
            goes_on = bool(said[:, 0].any())
            progress(int(said[:, 1].sum()))
            if not goes_on and before is None:
                return
            ahead = (batch or idle, lookups.submit(weights.look_up, batch or idle)) if goes_on else None
            if before is not None:
                found = before[1].result()
                if before[0].rows:
                    yield before[0], weights.predict_looked_up(before[0], found)
                    done += before[0].rows
            before, batch = ahead, next(batches, None) if batch else None
