"""Analyses in the catalog, and models whose full-pass operators they resolve.

The key of an analysis covers the operator, its expressions, and the digests of the columns that they read, by partition. So an
analysis is repeated exactly when the data of its range changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, select

from transforms.analysis.full_pass import PREPROCESSING, Analysis, AnalysisResult, analyses, resolve
from transforms.errors import InputError, listed
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Node, raw_columns
from transforms.joins.column_names import is_joined
from transforms.time_range import TimeRange, moment_text
from warehouse.catalog import schema
from warehouse.catalog.catalog import insert_absent
from warehouse.errors import ArtifactDamaged, NotAnalyzed
from warehouse.files.artifacts import artifact_path, read_artifact
from warehouse.models.joined_columns import require_joined
from warehouse.models.pinned_analyses import UsedAnalysis, analysis_identity
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import PlacedFragment, current_fragments
from warehouse.tables.table import Fragment
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
    """An analysis over the current data of its range; ``key`` is its identity with the data."""

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
        """The operator, its expression and its range, for errors."""
        return f"{_shown(self.analysis)} over {self.analysis.over}"

    def used(self, artifact: str) -> UsedAnalysis:
        """The analysis with its artifact over the current data."""
        over = self.analysis.over
        return UsedAnalysis(analysis_identity(self.analysis, self.table), self.key, artifact, self.analysis.operator,
                            self.analysis.text, moment_text(over.start), moment_text(over.end), self.rows,
                            self.rows)  # fmt: skip


def _shown(analysis: Analysis) -> str:
    text = analysis.text if len(analysis.text) <= 100 else f"{analysis.text[:99]}…"
    return f"{analysis.operator}({text})"


#: The fragments of ranges, cached.
_Ranges = dict[TimeRange, tuple[PlacedFragment, ...]]


def place(connection: Connection, table: str, analysis: Analysis, ranges: _Ranges | None = None) -> PlacedAnalysis:
    """An analysis over the partitions of ``table`` that start in its range. Raises :class:`InputError` if none does.

    ``ranges``: a cache of the fragments of ranges.
    """
    ranges = {} if ranges is None else ranges
    if analysis.over not in ranges:
        ranges[analysis.over] = current_fragments(connection, table, analysis.over.start, analysis.over.end)
    placed = ranges[analysis.over]
    if not placed:
        known = current_fragments(connection, table)
        there = f"{known[0].partition} to {known[-1].partition}" if known else "(no partition)"
        raise InputError("no partition starts in the range of an analysis",
                         where=f"table {table}, {_shown(analysis)}",
                         value=str(analysis.over), allowed=there)  # fmt: skip
    columns = _columns(analysis)
    require_joined([name for name in columns if is_joined(name)], placed, f"table {table}, {_shown(analysis)}",
                   "headrace analyze with the models' file computes them, and so does headrace work once a model is submitted")  # fmt: skip
    partitions = tuple(
        _partition(analysis, key, tuple(group), columns) for key, group in groupby(placed, lambda one: one.partition)
    )
    key = digest([analysis.fingerprint, [partition.contribution for partition in partitions]])
    return PlacedAnalysis(analysis, table, partitions, key)


def _columns(analysis: Analysis) -> tuple[str, ...]:
    return tuple(sorted({column.name for root in analysis.roots for column in raw_columns(root)}))


def _partition(
    analysis: Analysis, partition: str, placed: tuple[PlacedFragment, ...], columns: Iterable[str]
) -> PartitionData:
    fragments = tuple(one.fragment for one in placed)
    data = [[fragment.rows, [[name, fragment.digests[name]] for name in columns]] for fragment in fragments]
    return PartitionData(partition, fragments, digest([analysis.partial, data]))


def record_analysis(connection: Connection, placed: PlacedAnalysis, artifact: str, secs: float, now: float) -> None:
    """Record the artifact of an analysis, which must be written already: see :func:`record_written`."""
    analysis = placed.analysis
    over = analysis.over
    connection.execute(schema.analyses.delete().where(schema.analyses.c.key == placed.key))
    insert_absent(connection, schema.analyses, [{
        "key": placed.key, "fingerprint": analysis.fingerprint, "operator": analysis.operator,
        "expression": analysis.text, "table_name": placed.table,
        "start_at": over.start.timestamp(), "end_at": over.end.timestamp(),
        "partitions": [[one.partition, one.contribution] for one in placed.partitions], "rows": placed.rows,
        "artifact": artifact, "secs": secs, "created_at": now,
    }])  # fmt: skip


def record_written(
    connection: Connection, storage: Storage, placed: PlacedAnalysis, artifact: str, secs: float, now: float
) -> bool:
    """Call :func:`record_analysis` if the artifact exists; returns whether it does.

    ``gc`` deletes old unreferenced artifacts, and an artifact that exists is not written again. So its existence is checked under
    the write lock, which ``gc`` holds while it deletes.
    """
    if not storage.exists(artifact_path(artifact)):
        return False
    record_analysis(connection, placed, artifact, secs, now)
    return True


def find_analysis(connection: Connection, storage: Storage, key: str) -> AnalysisResult | None:
    """The result of an analysis; None if it is unknown or its artifact is damaged."""
    row: Any = connection.execute(
        select(schema.analyses.c.artifact, schema.analyses.c.operator).where(schema.analyses.c.key == key)
    ).first()
    if row is None:
        return None
    return _read_finding(storage, row.artifact, row.operator)


def _read_finding(storage: Storage, artifact: str, operator: str) -> AnalysisResult | None:
    try:
        return finding_of(artifact, read_artifact(storage, artifact), operator)
    except ArtifactDamaged:
        return None


def finding_of(artifact: str, values: pa.Array, operator: str = "") -> AnalysisResult:
    """An artifact of ``operator`` as an argument of :func:`transforms.analysis.full_pass.resolve`."""
    numbers = tuple(values.to_pylist()) if pa.types.is_floating(values.type) else ()
    graphs = tuple(values.to_pylist()) if operator == PREPROCESSING else ()
    return AnalysisResult(artifact, len(values), numbers, graphs)


@dataclass(frozen=True)
class Resolution:
    """Components, resolved by known analyses.

    Attributes:
        components: the components by name, with ordinary operators in place of known full-pass operators.
        missing: the analyses that are needed next.
        used: the analyses that were used, in order of use.
    """

    components: Mapping[str, Node]
    missing: tuple[PlacedAnalysis, ...]
    used: tuple[UsedAnalysis, ...] = ()


def resolve_components(
    warehouse: Warehouse, components: Mapping[str, Node], table: str, pinned: Mapping[str, UsedAnalysis] | None = None
) -> Resolution:
    """Resolve components by ``pinned`` analyses (by identity), and by known analyses of the current data.

    An analysis that reads another one's result is needed once that one is known.
    """
    current = dict(components)
    used: dict[str, UsedAnalysis] = {}
    while True:
        missing: dict[str, PlacedAnalysis] = {}
        found: dict[str, AnalysisResult] = {}
        known: dict[str, AnalysisResult] = {}
        ranges: _Ranges = {}
        with warehouse.catalog.read() as connection:
            for analysis in analyses(current.values()):
                identity = analysis_identity(analysis, table)
                if identity not in known and identity not in missing:
                    pin = (pinned or {}).get(identity)
                    match _known(connection, warehouse.storage, analysis, table, pin, ranges):
                        case PlacedAnalysis() as placed:
                            missing[identity] = placed
                        case one, finding:
                            used[identity], known[identity] = one, finding
                if identity in known:
                    found[analysis.node.identity] = known[identity]
        if not found:
            return Resolution(current, tuple(missing.values()), tuple(used.values()))
        current = {name: resolve(root, found) for name, root in current.items()}


def _known(
    connection: Connection,
    storage: Storage,
    analysis: Analysis,
    table: str,
    pin: UsedAnalysis | None,
    ranges: _Ranges,
) -> tuple[UsedAnalysis, AnalysisResult] | PlacedAnalysis:
    """The result of an analysis, the pinned one first; the analysis over current data if it is unknown."""
    if pin is not None and (finding := _read_finding(storage, pin.artifact, pin.operator)) is not None:
        return _compared(connection, analysis, table, pin, ranges), finding
    placed = place(connection, table, analysis, ranges)
    finding = find_analysis(connection, storage, placed.key)
    return placed if finding is None else (placed.used(finding.digest), finding)


def _compared(
    connection: Connection, analysis: Analysis, table: str, pin: UsedAnalysis, ranges: _Ranges
) -> UsedAnalysis:
    """A pinned analysis, compared with the current data of its range."""
    try:
        placed = place(connection, table, analysis, ranges)
    except InputError:  # no partition is left in the range; a pinned analysis is kept
        return replace(pin, rows_now=0, is_current=False)
    return replace(pin, rows_now=placed.rows, partitions=len(placed.partitions), is_current=placed.key == pin.key)


def refuse_missing(model: str, missing: Sequence[PlacedAnalysis]) -> None:
    """Raise :class:`NotAnalyzed`, naming each operator, if an analysis of the model is missing."""
    if missing:
        raise NotAnalyzed("the full-pass operators of a model must be analyzed first", where=f"model {model}",
                          value=listed([one.describe() for one in missing]),
                          next_step="headrace analyze MODEL_FILE, or submit it with --analyze")  # fmt: skip
