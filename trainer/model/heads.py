"""The head of a model for each task: its width, loss, prediction from logits, and metrics. Pure.

==============  =========================  =============================  ==========================================
task            labels                     outputs and loss               prediction
==============  =========================  =============================  ==========================================
``binary``      false and true, or 0, 1    1; binary cross entropy        the probability of 1
``multiclass``  0 to ``classes`` - 1       ``classes``; softmax           a probability per class
                                           cross entropy
``regression``  finite numbers             1; squared error of the        the number, in the label's own unit
                                           standardised label
==============  =========================  =============================  ==========================================

A model of several labels has a head of each (:class:`~trainer.model.task_heads.TaskHeads`). TensorFlow computes the losses in ``trainer/model/dense_model.py``; this module needs numpy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from trainer.model.metrics import ClassCollector, Collector, RegressionCollector, TaskCollector, sigmoid, softmax
from trainer.options.document_field import OPEN, DocumentField
from transforms.analysis.target import MOST_CLASSES, Target, Task
from transforms.arrays import Array
from transforms.derived_documents import document_of, whole


@dataclass(frozen=True, slots=True)
class Head:
    """The task of a model.

    Attributes:
        task: the kind of label.
        classes: the number of classes; 2 unless the task is ``multiclass``.
        center: subtracted from a regression's label before the loss; 0 for other tasks.
        scale: divisor of a regression's label after ``center``, > 0; 1 for other tasks.
    """

    task: Task = "binary"
    classes: Annotated[int, whole(2, MOST_CLASSES)] = 2
    center: float = 0.0
    scale: float = 1.0

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for a scale that no labels have."""
        if self.scale <= 0:
            raise part.at("scale").refused("a number above 0")

    @property
    def width(self) -> int:
        """Outputs of the last layer."""
        return self.classes if self.task == "multiclass" else 1

    @property
    def each(self) -> tuple[tuple[str, Head], ...]:
        """The head of every label by name; "" is the name of the only one."""
        return (("", self),)

    def label_shape(self, rows: int) -> tuple[int, ...]:
        """The shape of the labels of some events."""
        return (rows,)

    def codes(self, labels: Array) -> Array:
        """What the ledger and the label record hold of labels: the labels, float32 [rows]."""
        return labels

    @property
    def allowed(self) -> str:
        """The allowed labels, in words."""
        return {"binary": "0 or 1", "regression": "a finite number"}.get(self.task, f"0 to {self.classes - 1}")

    @property
    def remedy(self) -> str:
        """The next step for a label that is not allowed."""
        if self.task == "binary":
            return (
                'declare the task: an expression, as in label=hr.float32("relevance") > 2.3; or '
                'task="multiclass", classes=n; or task="regression"'
            )
        if self.task == "multiclass":
            return "give classes=n with n above the largest label, or an expression that numbers the classes from 0"
        return "replace it in the label's expression, or make it null: an event without a label is skipped"

    def bad_labels(self, values: Array) -> Array:
        """The labels (float64) that are not allowed, bool of their shape; NaN never is allowed."""
        if self.task == "binary":
            return np.asarray((values != 0) & (values != 1))
        with np.errstate(over="ignore", invalid="ignore"):
            if self.task == "multiclass":
                return np.asarray(~((values >= 0) & (values < self.classes) & (values == np.floor(values))))
            return np.asarray(~np.isfinite(values.astype(np.float32)))

    def fitted(self, labels: LabelFigures) -> Head:
        """This head with the center and scale of a regression's labels; unchanged for other tasks."""
        if self.task != "regression" or not labels.events:
            return self
        return Head(self.task, self.classes, labels.mean, labels.deviation or 1.0)

    def targets(self, labels: Array) -> Array:
        """The targets of the loss, float32 [rows]: classes, or standardised numbers."""
        if self.task != "regression":
            return labels
        return ((labels.astype(np.float64) - self.center) / self.scale).astype(np.float32)

    def predictions(self, logits: Array) -> Array:
        """Predictions from logits, [rows] or [rows, classes], float64 of their shape."""
        if self.task == "binary":
            return sigmoid(logits)
        if self.task == "multiclass":
            return softmax(logits)
        return np.asarray(np.asarray(logits, np.float64) * self.scale + self.center)

    def collector(self) -> TaskCollector:
        """A collector of labels and logits for this task's metrics."""
        if self.task == "binary":
            return Collector()
        if self.task == "multiclass":
            return ClassCollector(self.classes)
        return RegressionCollector(self.center, self.scale)

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, field: DocumentField) -> Head:
        """The head at ``field``. Raises :class:`TornCheckpoint` for an invalid one."""
        return OPEN.read(cls, field)


#: The head of a label of 0 and 1.
BINARY = Head()


def head_of(target: Target) -> Head:
    """The head of a model's target."""
    return Head(target.task or "binary", target.classes or 2)


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """Statistics of the labels of a range.

    Attributes:
        events: events that have a label.
        unlabelled: events whose label is null.
        mean: mean of the labels; the rate of a binary label. 0 for no events.
        deviation: their standard deviation.
        counts: events of each class, of a binary or multi-class label; empty for a regression.
        tasks: the statistics of each of several labels, in order; then ``mean`` and the other members describe no single label.
    """

    events: int = 0
    unlabelled: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    counts: tuple[int, ...] = ()
    tasks: tuple[LabelFigures, ...] = ()
