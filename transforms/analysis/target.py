"""The target of a model: its label, a raw column or an expression, and the kind of task; or several of them by name. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from transforms.errors import InputError, TypeMismatch
from transforms.graphs.graph import Node, component_document, component_from_document, raw_columns
from transforms.graphs.subgraphs import subgraphs
from transforms.operators.full_pass import FULL_PASS
from transforms.types import Dense, DType

Task = Literal["binary", "multiclass", "regression"]
TASKS: tuple[Task, ...] = get_args(Task)
#: The largest number of classes of a multi-class label: each class is one output of the model.
MOST_CLASSES = 65_536
#: The largest number of labels of one model.
MOST_TASKS = 64
#: The kind of a target of several labels.
MULTITASK = "multitask"


@dataclass(frozen=True)
class Target:
    """A label and the kind of task.

    Attributes:
        label: a raw column's name, or the expression in one line; of several labels, each with its name.
        component: the canonical expression; None for a raw column, which is read as it is stored.
        task: the kind as given; None means ``binary``.
        classes: the number of classes of a multi-class label; 0 for other tasks.
        tasks: the targets of several labels by name, in their order; empty for one label.
    """

    label: str
    component: Node | None = None
    task: Task | None = None
    classes: int = 0
    tasks: tuple[tuple[str, Target], ...] = ()

    @classmethod
    def of_tasks(cls, tasks: Sequence[tuple[str, Target]]) -> Target:
        """The target of several labels."""
        texts = (f"{name}: {one.label}{one.task_text}" for name, one in tasks)
        return cls(", ".join(texts), tasks=tuple(tasks))

    @property
    def task_text(self) -> str:
        """The task in brackets, "" for the default one."""
        classes = f", {self.classes} classes" if self.classes else ""
        return "" if self.kind == "binary" else f" ({self.kind}{classes})"

    @property
    def each(self) -> tuple[tuple[str, Target], ...]:
        """Every label by name; "" is the name of a model's only label."""
        return self.tasks or (("", self),)

    @property
    def is_plain(self) -> bool:
        """Whether it is a raw column of the default task, which documents hold as its name."""
        return self.component is None and self.task is None and not self.tasks

    @property
    def is_computed(self) -> bool:
        """Whether a label is an expression."""
        return any(one.component is not None for _, one in self.each)

    @property
    def kind(self) -> str:
        """The task, ``binary`` where none was given, :data:`MULTITASK` for several labels."""
        return MULTITASK if self.tasks else self.task or "binary"

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns that the label reads, by name."""
        if self.tasks:
            return tuple(sorted({column for _, one in self.tasks for column in one.columns}))
        if self.component is None:
            return (self.label,)
        return tuple(column.name for column in raw_columns(self.component))

    @property
    def identity(self) -> str | list[object]:
        """The identity of the target: the column's name, or a document."""
        if self.tasks:
            return [MULTITASK, [[name, one.identity] for name, one in self.tasks]]
        if self.is_plain:
            return self.label
        return [
            self.label if self.component is None else ["component", self.component.identity],
            self.kind,
            self.classes,
        ]

    @property
    def document(self) -> dict[str, object] | None:
        """The component's document, or that of all tasks; None for a raw column."""
        if not self.tasks:
            return None if self.component is None else component_document(self.component)
        return {
            "tasks": [
                {
                    "name": name,
                    "label": one.label,
                    "label_component": one.document,
                    "task": one.task,
                    "classes": one.classes,
                }
                for name, one in self.tasks
            ]
        }


def target_of(label: str, document: object, task: str | None, classes: int) -> Target:
    """The target of stored values: ``document`` is :attr:`Target.document`."""
    if isinstance(document, Mapping) and "tasks" in document:
        return Target.of_tasks([(one["name"], _stored_task(one)) for one in document["tasks"]])
    component = None if document is None else component_from_document(document)
    return Target(label, component, None if task is None else check_task(task, classes, "the catalog"), classes)


def _stored_task(stored: Mapping[str, Any]) -> Target:
    return target_of(stored["label"], stored["label_component"], stored["task"], stored["classes"])


def check_task(task: object, classes: object, where: str) -> Task:
    """The task, checked against the number of classes. Raises :class:`InputError`."""
    if task not in TASKS:
        raise InputError(f"a task must be one of {', '.join(TASKS)}", where=where, value=task, allowed=", ".join(TASKS))
    if task == "multiclass":
        if not isinstance(classes, int) or isinstance(classes, bool) or not 2 <= classes <= MOST_CLASSES:
            raise InputError("a multi-class task must have a number of classes", where=where, value=classes,
                             allowed=f"2 to {MOST_CLASSES}",
                             next_step='Model(..., task="multiclass", classes=n), its labels are 0 to n - 1')  # fmt: skip
    elif classes:
        raise InputError(f"a {task} task must have no number of classes", where=where, value=classes,
                         next_step='leave classes out, or give task="multiclass"')  # fmt: skip
    return task


def check_label(component: Node, where: str) -> None:
    """Raise unless a label is one boolean or number per event, reads a column and needs no full pass."""
    kind = component.type
    if not isinstance(kind, Dense) or not (kind.dtype.is_numeric or kind.dtype is DType.BOOL):
        raise TypeMismatch("a label must be one boolean or number per event", where=where, value=str(kind),
                           allowed="dense bool, int64, float32 or float64",
                           next_step='compare or convert it, as in hr.text("verdict") == "bought"')  # fmt: skip
    if not raw_columns(component):
        raise InputError("a label must read a column, got an expression that is the same for every event",
                         where=where, next_step='as in hr.float32("relevance") > 2.3')  # fmt: skip
    for node in subgraphs(component):
        if node.op in FULL_PASS:
            raise InputError("a label must need no full pass over the data", where=where, value=node.op,
                             next_step="compute it from the event's own columns")  # fmt: skip
