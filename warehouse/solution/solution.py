"""The read solution: whether to load, compute or read raw, for every input and fragment.

It is an immutable JSON document, ``headrace.read_solution/2``, ``/3`` or ``/4`` (``docs/read-solution.md``), that a
trainer reads without the catalog.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transforms.analysis.target import Target, target_of
from transforms.derived_documents import document_of
from transforms.documents import document_part, parse_document
from warehouse.solution.loaded_columns import LoadedColumns
from warehouse.solution.parsing import FORMAT, KIND, TARGET_FORMAT, TASKS_FORMAT, solution_fields
from warehouse.solution.parts import Action, ReadPlan, SolutionFragment, SolutionInput, SolutionPartition


@dataclass(frozen=True)
class ReadSolution:
    """The data to train ``model`` at ``model_version`` on ``table``; partitions are in time order.

    ``label`` is a raw column, or an expression in one line with the document ``label_component``, which of several labels is
    that of all (:attr:`~transforms.analysis.target.Target.document`); ``task`` and ``classes`` are those of :class:`~transforms.analysis.target.Target`. Fragments refer to ``plans``, so that
    memory grows with fragments, not with inputs.
    """

    model: str
    model_version: int
    table: str
    table_version: int
    label: str
    inputs: tuple[SolutionInput, ...]
    plans: tuple[ReadPlan, ...]
    partitions: tuple[SolutionPartition, ...]
    label_component: Mapping[str, Any] | None = None
    task: str | None = None
    classes: int = 0

    @cached_property
    def target(self) -> Target:
        """The label and the task of the model."""
        document = None if self.label_component is None else dict(self.label_component)
        return target_of(self.label, document, self.task, self.classes)

    @cached_property
    def loaded(self) -> LoadedColumns:
        """The memos that were loaded last for several fragments."""
        return LoadedColumns(Counter(one.files for one in self.fragments if one.window is not None))

    @property
    def rows(self) -> int:
        """Events in all partitions that are not deleted."""
        return sum(partition.rows for partition in self.partitions)

    @property
    def fragments(self) -> Iterator[SolutionFragment]:
        """All fragments in reading order."""
        return (fragment for partition in self.partitions for fragment in partition.fragments)

    def count(self, action: Action) -> int:
        """The number of (input, fragment) pairs with this action."""
        of_plan = [plan.actions.count(action) for plan in self.plans]
        return sum(of_plan[fragment.plan] for fragment in self.fragments)

    def digest(self) -> str:
        """SHA-256 of the whole document with its plans: it changes when a memo becomes ready."""
        return _sha256(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """The solution as a JSON object, the inverse of :meth:`from_document`."""
        target = {"label_component": self.label_component, "task": self.task, "classes": self.classes}
        return {
            "format": FORMAT if self.target.is_plain else TASKS_FORMAT if self.target.tasks else TARGET_FORMAT,
            "model": self.model,
            "model_version": self.model_version,
            "table": self.table,
            "table_version": self.table_version,
            "label": self.label,
            **({} if self.target.is_plain else target),
            "inputs": [document_of(item) for item in self.inputs],
            "plans": [document_of(plan) for plan in self.plans],
            "partitions": [document_of(partition) for partition in self.partitions],
        }

    @classmethod
    def from_document(cls, document: object) -> ReadSolution:
        """The solution of a document (:mod:`warehouse.solution.parsing`).

        Raises :class:`~transforms.errors.DataError` with the place in an invalid document.
        """
        return cls(**solution_fields(document_part(document, KIND)))

    @classmethod
    def from_json(cls, text: str | bytes) -> ReadSolution:
        """:meth:`from_document` of JSON text, whose names must also be given once in each object."""
        return cls.from_document(parse_document(text, KIND))


def _sha256(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
