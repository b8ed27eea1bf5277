"""What an analysis reads: the analysed expressions over the fragments of one partition, in batches of fixed size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms import documents
from transforms.documents import parse_document
from transforms.errors import DataError
from transforms.graph import Node, component_from_document
from transforms.operators.full_pass import VOCABULARIES
from transforms.plan import Plan, compile_plan
from transforms.types import Dense, Weighted
from warehouse.artifacts import ArtifactSource
from warehouse.reader import read_raw
from warehouse.storage import Storage
from warehouse.table import Fragment

LABEL = "label"

#: Events of a batch. TensorFlow reduces so few on one thread, in one order, whatever the machine has.
BATCH_EVENTS = 4096
_LABELS_MAX = 1000


class Part(NamedTuple):
    """One analyzer over one partition: the operator it works for, its expression, and the name of what comes of it."""

    contribution: str
    operator: str
    expression: Mapping[str, Any]


@dataclass(frozen=True)
class PartitionWork:
    """A partition to read once, and what is to be analyzed in it; all of it beside the same ``label``, or none."""

    partition: str
    fragments: tuple[Fragment, ...]
    parts: tuple[Part, ...]
    label: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        """The work as Beam carries it."""
        fragments = [fragment.to_document() for fragment in self.fragments]
        document = {"partition": self.partition, "fragments": fragments, "parts": self.parts, "label": self.label}
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> PartitionWork:
        """The inverse of :meth:`to_json`; expressions are looked at when they are compiled. Raises :class:`DataError`."""
        whole = parse_document(text, "work on a partition").fields(("partition", "fragments", "parts", "label"))
        label = whole.at("label")
        return cls(
            whole.at("partition").text(),
            tuple(Fragment.from_document(fragment) for fragment in whole.at("fragments").items()),
            tuple(_part_from(part) for part in whole.at("parts").items()),
            None if label.value is None else _expression(label),
        )

    @property
    def rows(self) -> int:
        """Events in the partition."""
        return sum(fragment.rows for fragment in self.fragments)


def _part_from(document: documents.Part) -> Part:
    contribution, operator, expression = document.items(least=3, most=3)
    return Part(contribution.text(), operator.text(), _expression(expression))


def _expression(document: documents.Part) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", document.fields((), None).value)


def values_name(position: int) -> str:
    """The column that holds what the part at ``position`` is about."""
    return f"values{position}"


def batches(home: str, work: PartitionWork) -> Iterator[pa.RecordBatch]:
    """What the analyzers see: a list of values a part and event, and the label where there is one, of events that have one.

    Batches are cut the same way whatever the fragments are. Raises what :func:`warehouse.reader.read_raw` raises, and
    :class:`DataError` when an expression fails.
    """
    roots = {values_name(i): component_from_document(part.expression) for i, part in enumerate(work.parts)}
    plan = compile_plan(roots | _label_root(work), ArtifactSource(home))
    pending: list[pa.RecordBatch] = []
    for fragment in work.fragments:
        computed = _computed(Storage(home), plan, fragment)
        columns = {
            name: _lists(computed[name], root, work.parts[i].operator) for i, (name, root) in enumerate(roots.items())
        }
        pending.append(_labelled(columns, computed[LABEL]) if work.label is not None else pa.record_batch(columns))
        whole = pa.Table.from_batches(pending)
        cut = whole.num_rows - whole.num_rows % BATCH_EVENTS
        yield from _cut(whole.slice(0, cut))
        pending = whole.slice(cut).combine_chunks().to_batches()
    if pending:
        yield from _cut(pa.Table.from_batches(pending))


def _label_root(work: PartitionWork) -> dict[str, Node]:
    return {} if work.label is None else {LABEL: component_from_document(work.label)}


def _cut(whole: pa.Table) -> Iterator[pa.RecordBatch]:
    for start in range(0, whole.num_rows, BATCH_EVENTS):
        (batch,) = whole.slice(start, BATCH_EVENTS).combine_chunks().to_batches()
        yield batch


def _computed(storage: Storage, plan: Plan, fragment: Fragment) -> Mapping[str, pa.Array]:
    names = sorted({column.name for column in plan.columns})
    result = plan.run(read_raw(storage, fragment, names, coded=names), checked=True)
    for failure in result.failures.values():
        raise DataError(f"operator {failure.operator} failed", where=f"{failure.expression}, {fragment.path}",
                        value=failure.error, next_step="repair the data or the expression")  # fmt: skip
    return result.columns


def _lists(values: pa.Array, root: Node, operator: str) -> pa.Array:
    """Lists of terms or of float64; null is no item, and neither are NaN and infinities among numbers."""
    if isinstance(root.type, Dense):
        offsets, items = np.arange(len(values) + 1), values
    else:
        offsets, items = np.asarray(values.offsets), values.values
        items = items.flatten()[0] if isinstance(root.type, Weighted) else items
    if operator in VOCABULARIES:
        items = items.cast(pa.string()).cast(pa.binary())
        kept = items.is_valid()
    else:
        items = items.cast(pa.float64(), safe=False)
        kept = pc.fill_null(pc.is_finite(items), False)
    places = np.concatenate([[0], np.cumsum(np.asarray(kept))])[offsets].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(places), items.filter(kept))


def _labelled(columns: Mapping[str, pa.Array], label: pa.Array) -> pa.RecordBatch:
    """The values of every event that has a label, and the labels."""
    label = label.cast(pa.int64())
    rows = label.is_valid()
    label = label.filter(rows)
    if pc.any(pc.or_(pc.less(label, 0), pc.greater(label, _LABELS_MAX)), min_count=0).as_py():
        raise DataError("a label is a class", value=pc.min_max(label).as_py(), allowed=f"0 to {_LABELS_MAX}")
    ones = pa.ListArray.from_arrays(np.arange(len(label) + 1, dtype=np.int32), label)
    return pa.record_batch({**{name: lists.filter(rows) for name, lists in columns.items()}, LABEL: ones})
