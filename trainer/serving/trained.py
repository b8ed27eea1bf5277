"""Load a trained model from its run directory, predict and evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trainer.model.calibration import Calibration, calibrated
from trainer.model.inputs import lay_out
from trainer.model.scores import AnyScores
from trainer.options.config import TrainConfig
from trainer.run.preparation.preparation import fragment_refs
from trainer.run.progress.identity import RunIdentity, check_inputs, identity_of, in_time_order
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import DecodedFragment, decode
from trainer.run.reading.stream import ReadFragment, fragment_stream
from trainer.run.weights.frozen_weights import frozen_weights
from trainer.run.weights.run_state import RunProgress, Weights
from trainer.run.weights.saved_run import read_newest_run
from transforms.arrays import Array
from transforms.errors import NotFound
from warehouse.solution.parts import SolutionFragment
from warehouse.solution.solution import ReadSolution


@dataclass(frozen=True)
class Trained:
    """A model from its newest intact checkpoint. Predicting never changes it.

    Attributes:
        checkpoint: its place.
        epochs, commit: the number in its name, and the SHA-256 of its manifest.
    """

    config: TrainConfig
    identity: RunIdentity
    progress: RunProgress
    checkpoint: str
    epochs: int
    commit: str
    weights: Weights

    @property
    def calibrations(self) -> Mapping[str, Calibration]:
        """By label, the map of its logits that predictions and figures apply; empty without one."""
        return self.progress.calibrations

    def predict(self, table: pa.Table) -> Array | dict[str, Array]:
        """Predict a table with one column per input, laid out as in training; no label needed.

        float64: [rows] probabilities of 1; [rows, classes] probabilities; or [rows] numbers, by the model's task; of
        several labels the predictions of each by name.

        Raises :class:`BadFeature` naming the input and the row.
        """
        layout = self.weights.layout
        decoded = decode(table, layout, "given to predict", labelled=False)
        parts = [
            self.weights.predict(batch) for batch in make_batches([decoded], layout, batch_rows=self.config.batch_rows)
        ]
        head = self.weights.head
        none = np.zeros((0, head.width) if head.width > 1 else 0, np.float32)
        return head.predictions(calibrated(head, self.calibrations, np.concatenate([none, *parts])))

    def evaluate(
        self, solution: ReadSolution, read: ReadFragment, *, progress: Callable[[int, int], None] | None = None
    ) -> AnyScores:
        """Metrics over the labelled events of ``solution``. ``progress(done events, all events)`` is called every batch.

        Raises :class:`RunMismatch` if the solution has other inputs than the model.
        """
        collector = self.weights.head.collector()
        for labels, logits in self.scored(solution, read, progress=progress):
            collector.add(labels, logits)
        return collector.scores()

    def scored(
        self,
        solution: ReadSolution,
        read: ReadFragment,
        *,
        progress: Callable[[int, int], None] | None = None,
        note: Callable[[SolutionFragment, DecodedFragment], None] | None = None,
    ) -> Iterator[tuple[Array, Array]]:
        """The labels and the calibrated logits of the labelled events of ``solution``, batch by batch, in time order.

        ``note`` is called with each fragment and its events before they are scored; the rest is as for :meth:`evaluate`.
        """
        check_inputs(self.identity, identity_of(solution, self.config))
        layout, head, done = self.weights.layout, self.weights.head, 0
        parts = in_time_order(solution)
        fragments = [one for part in parts for one in part.fragments]
        refs = [ref for part in parts for ref in fragment_refs(part.key, part.fragments)]

        def noted(stream: Iterable[DecodedFragment]) -> Iterator[DecodedFragment]:
            for fragment, decoded in zip(fragments, stream, strict=True):
                if note:
                    note(fragment, decoded)
                yield decoded

        stream = fragment_stream(refs, read, layout, ahead=self.config.prefetch_fragments, head=head)
        with closing(stream):  # type: ignore[type-var]
            for batch in make_batches(noted(stream), layout, batch_rows=self.config.batch_rows):
                yield batch.labels[: batch.rows], calibrated(head, self.calibrations, self.weights.predict(batch))
                done += batch.rows
                if progress:
                    progress(done, solution.rows)


def load_trained(run_dir: str, *, on_skip: Callable[[str], None] | None = None) -> Trained:
    """Load the model of a run directory. ``on_skip`` is called with each torn checkpoint that is skipped.

    Raises :class:`NotFound` if there is no checkpoint, :class:`TornCheckpoint` if none is intact.
    """
    saved = read_newest_run(run_dir, on_skip=on_skip or _ignore)
    if saved is None:
        raise NotFound("the run directory must hold a checkpoint", where=run_dir, next_step="train first")
    identity = saved.identity
    config = TrainConfig.from_document(identity.config, run_dir=run_dir)
    weights = frozen_weights(lay_out(identity.typed_inputs, config), config, saved.head, saved.arrays)
    return Trained(config, identity, saved.progress, saved.path, saved.number, saved.digest, weights)


def evaluate(
    run_dir: str,
    solution: ReadSolution,
    read: ReadFragment,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> AnyScores:
    """Metrics of the run's newest checkpoint over ``solution``: see :class:`Trained`."""
    return load_trained(run_dir).evaluate(solution, read, progress=progress)


def _ignore(reason: str) -> None:
    """The default ``on_skip``."""
