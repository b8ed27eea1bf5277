"""The heads of a model of several labels. Pure.

Labels are float32 [rows, tasks], NaN where an event has no label of a task; logits are [rows, width], the outputs of one task
after the other. An event that has any label is trained, with the losses of the labels that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from trainer.errors import ConfigError, TornCheckpoint
from trainer.model.heads import Head, LabelFigures, head_of
from trainer.model.metrics import TasksCollector
from trainer.options.config import TrainConfig
from trainer.options.document_field import OPEN, DocumentField
from transforms.analysis.target import MOST_TASKS, Target
from transforms.arrays import Array
from transforms.derived_documents import Named, document_of
from transforms.errors import nearest

#: Whole numbers below it are exact in float32.
_EXACT = 1 << 24


@dataclass(frozen=True)
class TaskHeads:
    """The heads of several labels; the interface is that of :class:`~trainer.model.heads.Head`.

    Attributes:
        each: the head of every label by name.
    """

    each: Annotated[tuple[tuple[str, Head], ...], Named("tasks")]

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` unless each task is held once, and several are."""
        if not 2 <= len(self.each) <= MOST_TASKS or len(dict(self.each)) != len(self.each):
            raise TornCheckpoint("a checkpoint must hold each task once, and several", where=part.place,
                                 value=[name for name, _ in self.each][:5])  # fmt: skip

    @property
    def width(self) -> int:
        """Outputs of all last layers."""
        return sum(head.width for _, head in self.each)

    @property
    def columns(self) -> dict[str, slice]:
        """The outputs of each task."""
        found, at = {}, 0
        for name, head in self.each:
            found[name] = slice(at, at + head.width)
            at += head.width
        return found

    def label_shape(self, rows: int) -> tuple[int, ...]:
        """The shape of the labels of some events."""
        return rows, len(self.each)

    def fitted(self, labels: LabelFigures) -> TaskHeads:
        """These heads, each fitted to the labels of its task."""
        return TaskHeads(
            tuple((name, head.fitted(own)) for (name, head), own in zip(self.each, labels.tasks, strict=True))
        )

    def targets(self, labels: Array) -> Array:
        """The targets of the losses, float32 [rows, tasks]; NaN where there is no label."""
        return np.stack([head.targets(labels[:, t]) for t, (_, head) in enumerate(self.each)], axis=1)

    def predictions(self, logits: Array) -> dict[str, Array]:
        """The predictions of each task from logits [rows, width]."""
        return {name: head.predictions(self.logits_of(name, logits)) for name, head in self.each}

    def logits_of(self, name: str, logits: Array) -> Array:
        """The logits of one task, [rows] or [rows, classes]."""
        own = logits[:, self.columns[name]]
        return own if dict(self.each)[name].width > 1 else own[:, 0]

    def collector(self) -> TasksCollector:
        """A collector of labels and logits for the metrics of all tasks."""
        return TasksCollector({name: (head.collector(), self.columns[name]) for name, head in self.each})

    def codes(self, labels: Array) -> Array:
        """What the ledger and the label record hold of labels [rows, tasks]: one number per event, float32 [rows].

        Events of other labels have other codes, exactly if all labels are classes and their combinations are fewer than 2**24;
        otherwise two of them have the same code with a probability of 2**-24.
        """
        if self._combinations <= _EXACT:
            code, factor = np.zeros(len(labels)), 1
            for t, (_, head) in enumerate(self.each):
                digits = np.where(np.isnan(labels[:, t]), 0.0, labels[:, t].astype(np.float64) + 1.0)
                code += factor * digits
                factor *= head.classes + 1
            return code.astype(np.float32)
        mixed = np.zeros(len(labels), np.uint64)
        for t in range(len(self.each)):
            column = np.where(np.isnan(labels[:, t]), np.float32("nan"), labels[:, t]).astype(np.float32)
            mixed = (mixed ^ column.view(np.uint32)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        return (mixed * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(40)).astype(np.float32)

    @cached_property
    def _combinations(self) -> int:
        found = 1
        for _, head in self.each:
            found *= _EXACT + 1 if head.task == "regression" else head.classes + 1
        return found

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :func:`read_head`."""
        document: dict[str, Any] = document_of(self)
        return document


#: The head of a model: of one label, or of several.
AnyHead = Head | TaskHeads


def heads_of(target: Target) -> AnyHead:
    """The head of a model's target."""
    if not target.tasks:
        return head_of(target)
    return TaskHeads(tuple((name, head_of(one)) for name, one in target.tasks))


def read_head(field: DocumentField) -> AnyHead:
    """The head at ``field``. Raises :class:`TornCheckpoint` for an invalid one."""
    return OPEN.read(TaskHeads, field) if field.has("tasks") else Head.read(field)


def check_task_options(config: TrainConfig, head: AnyHead) -> None:
    """Raise :class:`ConfigError` for an option of a task that the model does not have."""
    known = [name for name, _ in head.each if name]
    options: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("task_weights", config.task_weights),
        ("initial_biases", config.initial_biases),
    )
    for option, values in options:
        for name in values:
            if name not in known:
                raise ConfigError("an option must name a label of the model", where=option, value=name,
                                  allowed=nearest(name, known), next_step="a model of one label has no such option")  # fmt: skip
    if config.calibration != "none" and all(one.task != "binary" for _, one in head.each):
        raise ConfigError("calibration needs a model with a binary label", where="calibration", value=config.calibration,
                          allowed="none for other labels", next_step="leave it out")  # fmt: skip
    if config.task_mlp and not known:
        raise ConfigError("task_mlp needs a model with several labels", where="task_mlp", value=list(config.task_mlp),
                          next_step="leave it out, or add the layers to top_mlp")  # fmt: skip


def initial_logits(config: TrainConfig, head: AnyHead) -> tuple[float, ...]:
    """The logits of an event without any known input, one for each output."""
    if isinstance(head, Head):
        return (config.initial_bias,) * head.width
    return tuple(
        config.initial_biases.get(name, config.initial_bias) for name, one in head.each for _ in range(one.width)
    )
