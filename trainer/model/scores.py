"""The figures of a set of predictions, and their documents; :mod:`trainer.model.metrics` computes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from trainer.options.document_field import OPEN, DocumentField
from transforms.derived_documents import Form, Later, document_of


@dataclass(frozen=True, slots=True)
class TaskScores:
    """The metrics of a set of predictions; None for an undefined one (one class only, no events)."""

    #: The field of the loss divided by that of the best constant prediction.
    normalized: ClassVar[str] = "normalized_entropy"

    events: int

    @property
    def normalized_loss(self) -> float | None:
        """The loss divided by that of the best constant prediction; below 1 is better than that constant."""
        loss: float | None = getattr(self, self.normalized)
        return loss


@dataclass(frozen=True, slots=True)
class Scores(TaskScores):
    """The figures of binary predictions.

    Attributes:
        positives: events whose label is 1.
        auc: the probability that a positive outranks a negative.
        log_loss: mean of ``-ln`` of the probability of the label, in nats.
        normalized_entropy: log loss divided by that of the events' mean rate.
        calibration: the sum of the probabilities divided by ``positives``; None in checkpoints of earlier releases.
        normalized_entropy_error: the standard error of the difference between ``normalized_entropy`` and 1; likewise.
    """

    positives: int
    auc: float | None
    log_loss: float | None
    normalized_entropy: float | None
    calibration: Later[float | None] = None
    normalized_entropy_error: Later[float | None] = None

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for more positives than events."""
        if self.positives > self.events:
            raise part.at("positives").refused(f"at most {self.events}")


@dataclass(frozen=True, slots=True)
class ClassScores(TaskScores):
    """The figures of multi-class predictions.

    Attributes:
        accuracy: the share of events whose most probable class is the label; the lowest of equal ones.
        log_loss: mean of ``-ln`` of the probability of the label's class, in nats.
        normalized_entropy: log loss divided by that of the events' class frequencies.
    """

    accuracy: float | None
    log_loss: float | None
    normalized_entropy: float | None


@dataclass(frozen=True, slots=True)
class RegressionScores(TaskScores):
    """The figures of predicted numbers, in the label's own unit.

    Attributes:
        mean_absolute_error: mean distance of prediction and label.
        mean_squared_error: mean of its square.
        normalized_error: mean squared error over the labels' variance.
    """

    normalized: ClassVar[str] = "normalized_error"

    mean_absolute_error: float | None
    mean_squared_error: float | None
    normalized_error: float | None


@dataclass(frozen=True, slots=True)
class TasksScores:
    """The figures of several labels.

    Attributes:
        events: events with any label.
        tasks: the figures of each label, over the events that have it, by name.
    """

    events: int
    tasks: Mapping[str, Annotated[Scores | ClassScores | RegressionScores, Form(_read_task, document_of)]]


AnyScores = Scores | ClassScores | RegressionScores | TasksScores


def read_scores(field: DocumentField) -> AnyScores:
    """The figures at ``field``, of the task whose names it has. Raises :class:`TornCheckpoint` for figures that no predictions give."""
    return OPEN.read(TasksScores, field) if field.has("tasks") else _read_task(field)


def _read_task(field: DocumentField) -> Scores | ClassScores | RegressionScores:
    if field.has("accuracy"):
        return OPEN.read(ClassScores, field)
    return OPEN.read(RegressionScores, field) if field.has("mean_squared_error") else OPEN.read(Scores, field)


#: The figures in a document.
StoredScores = Annotated[AnyScores, Form(read_scores, document_of)]
