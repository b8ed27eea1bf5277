"""Compute the analysed expressions over the fragments of one partition, in batches of fixed size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.analysis.batch import Batch
from pipelines.fragments.work import ComponentList
from transforms import documents
from transforms.documents import parse_document
from transforms.errors import DataError
from transforms.execution.plan import Plan, compile_plan
from transforms.graphs.graph import Node, component_from_document
from transforms.operators.full_pass import VOCABULARIES
from transforms.types import Dense, Weighted
from warehouse.files.artifacts import ArtifactSource
from warehouse.storage.storage import Storage
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Fragment

#: Events per batch, few enough that TensorFlow sums them in one order, which ``moments.ordered_sum`` uses too.
BATCH_EVENTS = 4096
#: Compiled plans that a process caches: most partitions of a job have the same analyses.
_PLANS = 16
_LISTS_OF_EXPRESSIONS = 4

_Document = Mapping[str, Any]


class Part(NamedTuple):
    """One analysis over one partition.

    Attributes:
        contribution: The name of its contribution.
        operator: The full-pass operator.
        expression: The analysed values.
        label: The label of an analysis by label.
        weight: The weight of each event, if not 1.
    """

    contribution: str
    operator: str
    expression: _Document
    label: _Document | None = None
    weight: _Document | None = None


@dataclass(frozen=True)
class PartitionWork:
    """A partition to read once, with all its analyses."""

    partition: str
    fragments: tuple[Fragment, ...]
    parts: tuple[Part, ...]

    def to_json(self, listed: ComponentList) -> str:
        """The work as an element of the pipeline; its expressions are added to the list of the job."""
        parts = [
            (part.contribution, part.operator, *(None if one is None else listed.place_of(one) for one in part[2:]))
            for part in self.parts
        ]
        fragments = [fragment.to_document() for fragment in self.fragments]
        return json.dumps({"partition": self.partition, "fragments": fragments, "parts": parts}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, listed: str) -> PartitionWork:
        """The inverse of :meth:`to_json`; expressions are parsed when they are compiled. Raises :class:`DataError`."""
        whole = parse_document(text, "work on a partition").fields(("partition", "fragments", "parts"))
        expressions = _expressions(listed)
        return cls(
            whole.at("partition").text(),
            tuple(Fragment.from_document(fragment) for fragment in whole.at("fragments").items()),
            tuple(_part_from(part, expressions) for part in whole.at("parts").items()),
        )

    @property
    def rows(self) -> int:
        """Events in the partition."""
        return sum(fragment.rows for fragment in self.fragments)


@lru_cache(maxsize=_LISTS_OF_EXPRESSIONS)
def _expressions(listed: str) -> Sequence[_Document]:
    items = parse_document(listed, "expressions of an analysis").items()
    return tuple(cast("_Document", item.fields((), None).value) for item in items)


def _part_from(document: documents.Part, expressions: Sequence[_Document]) -> Part:
    contribution, operator, *places = document.items(least=5, most=5)
    values, label, weight = (
        None if place.value is None else expressions[place.integer(most=len(expressions) - 1)] for place in places
    )
    if values is None:
        raise places[0].refused("the place of an expression")
    return Part(contribution.text(), operator.text(), values, label, weight)


class _Columns(NamedTuple):
    """The names of a part's columns."""

    lists: str
    label: str = ""
    weight: str = ""


@dataclass(frozen=True)
class _Reading:
    """A plan for the distinct expressions of several parts, and the columns that its outputs become.

    Attributes:
        plan: The compiled plan, with numbers as output names.
        roots: The expressions, by output name.
        columns: The names of each part's columns: a letter for the kind of column, then the name of an output.
    """

    plan: Plan
    roots: Mapping[str, Node]
    columns: tuple[_Columns, ...]


def read_batches(home: str, work: PartitionWork) -> Iterator[tuple[Batch, ...]]:
    """The batches of a partition in order: a tuple with one batch per part, all of the same events.

    The bounds of batches do not depend on the fragments. Raises the errors of :func:`warehouse.tables.raw.read_raw`, and
    :class:`DataError` if an expression fails.
    """
    reading = _reading(home, tuple(_key(part) for part in work.parts))
    pending: list[pa.RecordBatch] = []
    for fragment in work.fragments:
        pending.append(_read(Storage(home), reading, fragment))
        whole = pa.Table.from_batches(pending)
        cut = whole.num_rows - whole.num_rows % BATCH_EVENTS
        yield from _cut(whole.slice(0, cut), reading)
        pending = whole.slice(cut).combine_chunks().to_batches()
    if pending:
        yield from _cut(pa.Table.from_batches(pending), reading)


def _key(part: Part) -> tuple[str, ...]:
    kind = "t" if part.operator in VOCABULARIES else "n"
    return kind, *("" if one is None else json.dumps(one, sort_keys=True) for one in part[2:])


@lru_cache(maxsize=_PLANS)
def _reading(home: str, keys: tuple[tuple[str, ...], ...]) -> _Reading:
    names: dict[str, str] = {}
    columns = []
    for kind, *texts in keys:
        places = [names.setdefault(text, str(len(names))) if text else "" for text in texts]
        columns.append(
            _Columns(*(letter + place if place else "" for letter, place in zip((kind, "l", "w"), places, strict=True)))
        )
    roots = {name: component_from_document(json.loads(text)) for text, name in names.items()}
    return _Reading(compile_plan(roots, ArtifactSource(home)), roots, tuple(columns))


def _cut(whole: pa.Table, reading: _Reading) -> Iterator[tuple[Batch, ...]]:
    for start in range(0, whole.num_rows, BATCH_EVENTS):
        (batch,) = whole.slice(start, BATCH_EVENTS).combine_chunks().to_batches()
        yield tuple(Batch(*(batch[name] if name else None for name in columns)) for columns in reading.columns)


def _read(storage: Storage, reading: _Reading, fragment: Fragment) -> pa.RecordBatch:
    names = sorted({column.name for column in reading.plan.columns})
    result = reading.plan.run(read_raw(storage, fragment, names, coded=names), checked=True)
    for failure in result.failures.values():
        raise DataError(f"operator {failure.operator} failed", where=f"{failure.expression}, {fragment.path}",
                        value=failure.error, next_step="repair the data or the expression")  # fmt: skip
    columns: dict[str, pa.Array] = {}
    for name in dict.fromkeys(name for names in reading.columns for name in names if name):
        values = result.columns[name[1:]]
        columns[name] = _dense(values, name[0]) if name[0] in "lw" else _lists(values, reading.roots[name[1:]], name[0])
    return pa.record_batch(columns)


def _lists(values: pa.Array, root: Node, kind: str) -> pa.Array:
    """Lists of terms or of float64, without nulls, NaN and infinities."""
    if isinstance(root.type, Dense):
        offsets, items = np.arange(len(values) + 1), values
    else:
        offsets, items = np.asarray(values.offsets), values.values
        items = items.flatten()[0] if isinstance(root.type, Weighted) else items
    if kind == "t":
        kept = items.is_valid()
    else:
        items = items.cast(pa.float64(), safe=False)
        kept = pc.fill_null(pc.is_finite(items), False)
    places = np.concatenate([[0], np.cumsum(np.asarray(kept))])[offsets].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(places), items.filter(kept))


def _dense(values: pa.Array, kind: str) -> pa.Array:
    """A label as int64; a weight rounded to float32, as float64. Raises :class:`DataError` for a bad weight."""
    if kind == "l":
        return values.cast(pa.int64())
    weights = values.cast(pa.float32(), safe=False).cast(pa.float64())
    wrong = pc.invert(pc.and_(pc.is_finite(weights), pc.greater_equal(weights, 0.0)))
    if pc.any(wrong).as_py():
        raise DataError("a weight must be a finite number >= 0", value=weights.filter(wrong)[0].as_py(),
                        next_step="repair the data, or the expression of the weight")  # fmt: skip
    return weights
