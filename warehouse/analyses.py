"""Which analyses are known, and models resolved by what they found.

An analysis is known by what is sought, the analysed expressions, and the digests of the columns they read, partition by
partition. So it is asked again exactly when its range got other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, select

from transforms.encoding import digest
from transforms.errors import InputError
from transforms.full_pass import Analysis, Finding, analyses, resolve
from transforms.graph import Node, raw_columns
from transforms.model import Model, ModelInput
from transforms.render import expression_text
from transforms.time_range import TimeRange
from warehouse import schema
from warehouse.artifacts import artifact_path, read_artifact
from warehouse.catalog import insert_absent
from warehouse.errors import ArtifactDamaged, NotAnalyzed
from warehouse.manifests import PlacedFragment, current_fragments
from warehouse.storage import Storage
from warehouse.table import Fragment
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class PartitionData:
    """A partition of an analysis's range: its fragments in order, and the identity of what it contributes."""

    partition: str
    fragments: tuple[Fragment, ...]
    contribution: str

    @property
    def rows(self) -> int:
        """Events in the partition."""
        return sum(fragment.rows for fragment in self.fragments)


@dataclass(frozen=True)
class PlacedAnalysis:
    """An analysis over the data its range has now. ``key`` is its identity, data included."""

    analysis: Analysis
    table: str
    partitions: tuple[PartitionData, ...]
    key: str

    @property
    def rows(self) -> int:
        """Events in the range."""
        return sum(partition.rows for partition in self.partitions)

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns that the analysed expressions read, by name."""
        return _columns(self.analysis)

    def describe(self) -> str:
        """The operator, its expression and its range, as an error lists them."""
        return f"{self.analysis.operator}({expression_text(self.analysis.expression, 100)}) over {self.analysis.over}"


#: The fragments of ranges that were looked up already.
_Ranges = dict[TimeRange, tuple[PlacedFragment, ...]]


def place(connection: Connection, table: str, analysis: Analysis, ranges: _Ranges | None = None) -> PlacedAnalysis:
    """An analysis over the partitions of ``table`` that start in its range. Raises :class:`InputError` if none does.

    ``ranges``: analyses of one range share its fragments.
    """
    ranges = {} if ranges is None else ranges
    if analysis.over not in ranges:
        ranges[analysis.over] = current_fragments(connection, table, analysis.over.start, analysis.over.end)
    placed = ranges[analysis.over]
    if not placed:
        known = current_fragments(connection, table)
        there = f"{known[0].partition} to {known[-1].partition}" if known else "(no partition)"
        raise InputError("no partition starts in the range of an analysis",
                         where=f"table {table}, {analysis.operator}({expression_text(analysis.expression, 100)})",
                         value=str(analysis.over), allowed=there)  # fmt: skip
    columns = _columns(analysis)
    partitions = tuple(
        _partition(analysis, key, tuple(group), columns) for key, group in groupby(placed, lambda one: one.partition)
    )
    key = digest([analysis.fingerprint, [partition.contribution for partition in partitions]])
    return PlacedAnalysis(analysis, table, partitions, key)


def _columns(analysis: Analysis) -> tuple[str, ...]:
    roots = [root for root in (analysis.expression, analysis.label, analysis.weight) if root is not None]
    return tuple(sorted({column.name for root in roots for column in raw_columns(root)}))


def _partition(
    analysis: Analysis, partition: str, placed: tuple[PlacedFragment, ...], columns: Iterable[str]
) -> PartitionData:
    fragments = tuple(one.fragment for one in placed)
    data = [[fragment.rows, [[name, fragment.digests[name]] for name in columns]] for fragment in fragments]
    return PartitionData(partition, fragments, digest([analysis.partial, data]))


def record_analysis(connection: Connection, placed: PlacedAnalysis, artifact: str, secs: float, now: float) -> None:
    """Make known what an analysis found. The artifact is on storage already: see :func:`record_written`."""
    analysis = placed.analysis
    over = analysis.over
    connection.execute(schema.analyses.delete().where(schema.analyses.c.key == placed.key))
    insert_absent(connection, schema.analyses, [{
        "key": placed.key, "fingerprint": analysis.fingerprint, "operator": analysis.operator,
        "expression": expression_text(analysis.expression), "table_name": placed.table,
        "start_at": over.start.timestamp(), "end_at": over.end.timestamp(),
        "partitions": [[one.partition, one.contribution] for one in placed.partitions], "rows": placed.rows,
        "artifact": artifact, "secs": secs, "created_at": now,
    }])  # fmt: skip


def record_written(
    connection: Connection, storage: Storage, placed: PlacedAnalysis, artifact: str, secs: float, now: float
) -> bool:
    """:func:`record_analysis`, unless the artifact is not there; whether it was there.

    An artifact that no row names is deleted by ``gc`` once it is old, and one that is found again is not written again. So it
    is looked for under the write lock, which ``gc`` holds while it deletes.
    """
    if not storage.exists(artifact_path(artifact)):
        return False
    record_analysis(connection, placed, artifact, secs, now)
    return True


def find_analysis(connection: Connection, storage: Storage, key: str) -> Finding | None:
    """What an analysis found; None if nobody made it, or its artifact is damaged, so that it must be made again."""
    row: Any = connection.execute(select(schema.analyses.c.artifact).where(schema.analyses.c.key == key)).first()
    if row is None:
        return None
    try:
        return finding_of(row.artifact, read_artifact(storage, row.artifact))
    except ArtifactDamaged:
        return None


def finding_of(artifact: str, values: pa.Array) -> Finding:
    """An artifact as :func:`transforms.full_pass.resolve` takes it."""
    numbers = tuple(values.to_pylist()) if pa.types.is_floating(values.type) else ()
    return Finding(artifact, len(values), numbers)


@dataclass(frozen=True)
class Resolution:
    """Components as far as known analyses resolve them, and the analyses that are missing next."""

    components: Mapping[str, Node]
    missing: tuple[PlacedAnalysis, ...]


def resolve_components(warehouse: Warehouse, components: Mapping[str, Node], table: str) -> Resolution:
    """Put in place what is known. An analysis over another one's outcome is asked for once that one is known."""
    current = dict(components)
    while True:
        missing: list[PlacedAnalysis] = []
        found: dict[str, Finding] = {}
        ranges: _Ranges = {}
        with warehouse.catalog.read() as connection:
            for analysis in analyses(current.values()):
                placed = place(connection, table, analysis, ranges)
                finding = find_analysis(connection, warehouse.storage, placed.key)
                if finding is None:
                    missing.append(placed)
                else:
                    found[analysis.node.identity] = finding
        if not found:
            return Resolution(current, tuple(missing))
        current = {name: resolve(root, found) for name, root in current.items()}


def resolve_model(warehouse: Warehouse, model: Model, table: str) -> Model:
    """``model`` with ordinary operators in place of its full-pass operators.

    Raises :class:`NotAnalyzed`, naming each operator, if an analysis is missing.
    """
    components = {item.name: item.component for item in model.inputs.values()}
    resolution = resolve_components(warehouse, components, table)
    if resolution.missing:
        raise NotAnalyzed("a model has full-pass operators that nobody analyzed yet", where=f"model {model.name}",
                          value="; ".join(one.describe() for one in resolution.missing),
                          next_step="headrace analyze MODEL_FILE, or submit it with --analyze")  # fmt: skip
    resolved = Model(model.name, client=model.client, label=model.label, priority=model.priority, table=model.table)
    for name, root in resolution.components.items():
        resolved.inputs[name] = ModelInput(name, root, root.identity)
    return resolved
