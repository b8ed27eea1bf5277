"""What the batches of a stretch follow from, and the digest that names them.

A stretch is fragments in an order, of which certain events are trained, such as an epoch of a pass. The digest covers the content of the
fragments, the inputs and labels with their operators, and how batches are cut. So changed data, a late row or a deleted event give another
name, and equal stretches of passes, runs and machines have one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.run.batch_files.packed_batches import BatchLayout
from trainer.run.reading.stream import FragmentRef
from transforms.graphs.graph import raw_columns
from transforms.types import type_document
from warehouse.files.batch_files.origin import BatchOrigin
from warehouse.solution.solution import ReadSolution
from warehouse.tables.content import content_digest

#: Changes with whatever changes the bytes of a batch, or what a digest covers.
_FORMAT = "headrace.batches/1"


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """The batches of some fragments.

    Attributes:
        digest: SHA-256 of what they follow from.
        origin: what they are made from.
        layout: what they have in common.
    """

    digest: str
    origin: BatchOrigin
    layout: BatchLayout


class Stretches:
    """The stretches of a run, with batches of at most ``batch_rows`` events."""

    def __init__(self, solution: ReadSolution, layout: InputLayout, head: AnyHead, batch_rows: int) -> None:
        self._solution, self._layout, self._head, self._batch_rows = solution, layout, head, batch_rows
        read = {column.name for item in solution.inputs for column in raw_columns(item.root)}
        self._columns = tuple(sorted({*read, *solution.target.columns}))
        inputs = [[item.name, item.fingerprint, type_document(item.type)] for item in solution.inputs]
        label = [solution.label, solution.target.identity]
        cut = [_FORMAT, solution.model, solution.model_version, inputs, label, list(layout.bounds), batch_rows]
        taken = [[one.options.length, *one.inputs] for one in layout.sequences]
        self._cut = _sha256([*cut, taken] if taken else cut)
        self._content: dict[str, str] = {}

    def of(self, refs: Sequence[FragmentRef], cut: object = None) -> Stretch:
        """The stretch of some fragments.

        Args:
            cut: a JSON value of all else that its batches follow from; None: they are all labelled events, in order.
        """
        contents = tuple(self._content_of(ref) for ref in refs)
        solution = self._solution
        origin = BatchOrigin(solution.model, solution.model_version, solution.table, self._columns, contents)
        fragments = [(ref.key, ref.fragment.rows) for ref in refs]
        layout = BatchLayout.of(self._layout, self._head, self._batch_rows, fragments)
        return Stretch(_sha256([self._cut, contents, cut]), origin, layout)

    def _content_of(self, ref: FragmentRef) -> str:
        if ref.key not in self._content:
            self._content[ref.key] = content_digest(ref.fragment, self._columns)
        return self._content[ref.key]


def _sha256(document: object) -> str:
    return hashlib.sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()
