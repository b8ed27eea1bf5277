"""What the model's last layer predicts: its width, its loss, the link from logit to prediction, and the figures. Pure.

==============  =========================  =============================  ==========================================
task            labels                     outputs and loss               prediction
==============  =========================  =============================  ==========================================
``binary``      false and true, or 0, 1    1; binary cross entropy        the probability of 1
``multiclass``  0 to ``classes`` - 1       ``classes``; softmax           a probability a class
                                           cross entropy
``regression``  finite numbers             1; squared error of the        the number, in the label's own unit
                                           standardised label
==============  =========================  =============================  ==========================================

TensorFlow computes the losses in ``trainer/model/dlrm.py``; this module needs numpy alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.document_field import DocumentField
from trainer.errors import TornCheckpoint
from trainer.model.metrics import AnyCollector, ClassCollector, Collector, RegressionCollector, sigmoid, softmax
from transforms.analysis.target import MOST_CLASSES, TASKS, Target, Task

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Head:
    """The task of a model as its last layer has it.

    Attributes:
        task: which kind of label.
        classes: how many classes; 2 unless the task is ``multiclass``.
        center: what is subtracted from a regression's label before the loss; 0 for other tasks.
        scale: what a regression's label is then divided by, > 0; 1 for other tasks.
    """

    task: Task = "binary"
    classes: int = 2
    center: float = 0.0
    scale: float = 1.0

    @property
    def width(self) -> int:
        """Outputs of the last layer."""
        return self.classes if self.task == "multiclass" else 1

    @property
    def allowed(self) -> str:
        """Which labels there are, in words."""
        return {"binary": "0 or 1", "regression": "a finite number"}.get(self.task, f"0 to {self.classes - 1}")

    @property
    def remedy(self) -> str:
        """What to do about a label that is none of them."""
        if self.task == "binary":
            return ('say what is learned: an expression, as in label=hr.float32("relevance") > 2.3; or '
                    'task="multiclass", classes=n; or task="regression"')  # fmt: skip
        if self.task == "multiclass":
            return "give classes=n with n above the largest label, or an expression that numbers the classes from 0"
        return "keep it out in the label's expression, or make it null: an event without a label is skipped"

    def bad_labels(self, values: Array) -> Array:
        """Which of some labels (float64) are none of this task, bool of their shape; a NaN never is one."""
        if self.task == "binary":
            return np.asarray((values != 0) & (values != 1))
        with np.errstate(over="ignore", invalid="ignore"):
            if self.task == "multiclass":
                return np.asarray(~((values >= 0) & (values < self.classes) & (values == np.floor(values))))
            return np.asarray(~np.isfinite(values.astype(np.float32)))

    def fitted(self, labels: LabelFigures) -> Head:
        """This head with the center and the scale of a regression's labels; of other tasks, as it is."""
        if self.task != "regression" or not labels.events:
            return self
        return Head(self.task, self.classes, labels.mean, labels.deviation or 1.0)

    def targets(self, labels: Array) -> Array:
        """What the loss compares the output with, float32 [rows]: a class, or a standardised number."""
        if self.task != "regression":
            return labels
        return ((labels.astype(np.float64) - self.center) / self.scale).astype(np.float32)

    def predictions(self, logits: Array) -> Array:
        """From logits, [rows] or [rows, classes], to what the model says, float64 of their shape."""
        if self.task == "binary":
            return sigmoid(logits)
        if self.task == "multiclass":
            return softmax(logits)
        return np.asarray(np.asarray(logits, np.float64) * self.scale + self.center)

    def collector(self) -> AnyCollector:
        """What gathers labels and logits and gives this task's figures."""
        if self.task == "binary":
            return Collector()
        if self.task == "multiclass":
            return ClassCollector(self.classes)
        return RegressionCollector(self.center, self.scale)

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {"task": self.task, "classes": self.classes, "center": self.center, "scale": self.scale}

    @classmethod
    def read(cls, field: DocumentField) -> Head:
        """The head at ``field``. Raises :class:`TornCheckpoint` for one that no training has."""
        task, classes = field.at("task").text(), field.at("classes").count(most=MOST_CLASSES)
        center, scale = field.at("center").number(), field.at("scale").number()
        if task not in TASKS or classes < 2 or not (math.isfinite(center) and 0 < scale < math.inf):
            raise TornCheckpoint("a checkpoint must hold the head of a known task, got another", where=field.place,
                                 value=[task, classes, center, scale], allowed=", ".join(TASKS))  # fmt: skip
        return cls(task, classes, center, scale)


#: The head of a label of 0 and 1.
BINARY = Head()


def head_of(target: Target) -> Head:
    """The head of a model's target."""
    return Head(target.kind, target.classes or 2)


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """What is known of the labels of a range, once they were read.

    Attributes:
        events: events that have a label.
        unlabelled: events whose label is null.
        mean: mean of the labels; the rate of a binary label. 0 for no events.
        deviation: their standard deviation.
        counts: events of each class, of a binary or multi-class label; empty for a regression.
    """

    events: int = 0
    unlabelled: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    counts: tuple[int, ...] = ()
