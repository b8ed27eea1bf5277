"""Train the candidates of a trial on a sample, slice by slice, and keep the losses of each.

Candidates that differ in rates alone share one traced network. Deterministic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from trainer.errors import NonFiniteLoss
from trainer.model.event_losses import event_losses
from trainer.model.inputs import InputLayout, lay_out
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.run.choosing.candidates import Candidate
from trainer.run.choosing.losses import constant_logits
from trainer.run.choosing.selection import Trial, still_possible
from trainer.run.choosing.slices import TimeSlice
from trainer.run.reading.batches import Batch, make_batches
from trainer.run.reading.columns import DecodedFragment
from trainer.run.weights.run_state import Weights, build_dense, build_weights
from transforms.arrays import Array

if TYPE_CHECKING:
    from trainer.run.weights.dense_step import HostDense

#: Called with a sentence about the current candidate.
Tell = Callable[[str], None]

#: The loss of an event that a diverged candidate predicts.
_DIVERGED = 1e6
#: The share of its loss by which a further pass must lower it, for one more.
_LEAST_GAIN = 0.001
#: Options that change no shape and no operation of the dense part.
_OF_TABLES = ("linear_learning_rate", "linear_optimizer", "linear_initial_accumulator", "embedding_learning_rate", "dense_learning_rate", "embedding_initial_stddev",
              "embedding_weight_decay", "admit_after")  # fmt: skip


@dataclass(frozen=True, eq=False)
class TrialData:
    """What all candidates of a trial have in common.

    Attributes:
        config: their other options, with the most passes of a network.
        linear_passes: the most passes of a linear model.
        batches: of the slices.
        layout, head: of the model.
        slices: of the sample.
    """

    config: TrainConfig
    layout: InputLayout
    head: AnyHead
    slices: tuple[TimeSlice, ...]
    linear_passes: int = 1
    batches: TrialBatches = field(default_factory=lambda: TrialBatches())

    def labels(self, k: int) -> Array:
        """The labels of a slice."""
        return np.concatenate([part.labels for part in self.slices[k].validated])

    def base_losses(self) -> list[Array]:
        """The losses of predicting the mean of the labels before each slice, of each slice."""
        before: list[Array] = []
        found = []
        for k, one in enumerate(self.slices):
            before += [part.labels for part in one.gap]
            labels = self.labels(k)
            logits = constant_logits(self.head, before, len(labels))
            found.append(event_losses(self.head, labels, logits, self.config.task_weights))
        return found


class TrialBatches:
    """The batches of a trial's events, made once: no option of a candidate changes them."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], list[Batch]] = {}

    def of(
        self, name: tuple[object, ...], events: Sequence[DecodedFragment], layout: InputLayout, batch_rows: int
    ) -> Sequence[Batch]:
        """The batches of the events of this name."""
        if name not in self._made:
            self._made[name] = list(make_batches(events, layout, batch_rows=batch_rows))
        return self._made[name]


class TrialModels:
    """Models in their initial state; networks of one structure are traced once."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[HostDense, Mapping[str, Array]]] = {}

    def initial(self, layout: InputLayout, config: TrainConfig, head: AnyHead) -> Weights:
        """A model in its initial state. One that was given before must not be used any more."""
        plain = dataclasses.replace(
            config, chosen={}, **{name: getattr(TrainConfig("run"), name) for name in _OF_TABLES}
        )
        key = repr(sorted(plain.to_document().items()))
        if key not in self._made:
            dense = build_dense(layout, config, head)
            self._made[key] = dense, dense.state()
        dense, state = self._made[key]
        dense.load_state(state)
        dense.set_learning_rate(config.dense_learning_rate)
        return build_weights(layout, config, head, dense=dense)


def try_candidates(
    candidates: Sequence[Candidate],
    data: TrialData,
    models: TrialModels,
    base: Sequence[Array],
    tell: Tell,
    *,
    noun: str = "candidates",
) -> list[Trial]:
    """The trials of candidates, in their order; those that are far behind after a slice have no further ones."""
    if not candidates:
        return []
    runs = [_CandidateRun(candidate, data, models) for candidate in candidates]
    going = runs
    for k in range(len(data.slices)):
        tell(f"trying {noun} on slice {k + 1} of {len(data.slices)}: {len(going)} of {len(runs)}")
        for run in going:
            run.advance(k)
        possible = still_possible([run.trial() for run in going], base[: k + 1])
        going = [run for run in going if any(run.candidate is one.candidate for one in possible)]
    return [run.trial() for run in runs]


class _CandidateRun:
    """A candidate's training over the slices."""

    def __init__(self, candidate: Candidate, data: TrialData, models: TrialModels) -> None:
        self.candidate = candidate
        self._data, self._models = data, models
        passes = data.linear_passes if candidate.is_linear else data.config.passes
        self._config = dataclasses.replace(data.config, **candidate.options, passes=passes)
        self._layout = lay_out((*data.layout.embedded, *data.layout.dense), self._config)
        self._state: dict[str, Array] | None = None
        self._losses: list[tuple[Array, ...]] = []
        self._logits: list[tuple[Array, ...]] = []

    def trial(self) -> Trial:
        """The losses so far."""
        return Trial(self.candidate, tuple(self._losses), tuple(self._logits))

    def advance(self, k: int) -> None:
        """Train on the events before slice ``k``, and validate it after each pass until one hardly lowers the loss."""
        data, most = self._data, self._config.passes
        weights = self._models.initial(self._layout, self._config, data.head)
        if self._state is not None:
            weights.load(self._state)
        # One pass goes on from the slice before; several begin again, since each pass has all events.
        gaps = data.slices[k : k + 1] if most == 1 else data.slices[: k + 1]
        trained = [part for one in gaps for part in one.gap]
        losses: list[Array] = []
        logits: list[Array] = []
        for _ in range(most):
            found = self._pass(weights, trained, k)
            losses.append(found[0])
            logits.append(found[1])
            if len(losses) > 1 and losses[-1].mean() > (1 - _LEAST_GAIN) * losses[-2].mean():
                break
        self._losses.append(tuple(losses))
        self._logits.append(tuple(logits))
        if most == 1 and k + 1 < len(data.slices):
            self._state = weights.arrays()

    def _pass(self, weights: Weights, trained: Sequence[DecodedFragment], k: int) -> tuple[Array, Array]:
        """The losses and logits of a slice after a pass; a candidate that diverges loses the trial."""
        data, rows = self._data, self._config.batch_rows
        labels = data.labels(k)
        try:
            for batch in data.batches.of(("trained", k, self._config.passes == 1), trained, self._layout, rows):
                weights.train(batch)
            validated = data.batches.of(("validated", k), data.slices[k].validated, self._layout, rows)
            parts = [weights.predict(batch) for batch in validated]
        except NonFiniteLoss:
            return np.full(len(labels), _DIVERGED), constant_logits(data.head, [labels], len(labels))
        logits = np.concatenate(parts)
        with np.errstate(invalid="ignore", over="ignore"):
            losses = event_losses(data.head, labels, logits, self._config.task_weights)
        return np.where(np.isfinite(losses), losses, _DIVERGED), logits
