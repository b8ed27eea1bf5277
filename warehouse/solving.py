"""Build read solutions from the catalog."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby

from sqlalchemy import Connection

from transforms.graph import component_document
from warehouse.enqueue import Survey, survey
from warehouse.manifests import PlacedFragment, current_fragments, get_table
from warehouse.matching import Action, Match
from warehouse.models import ModelRecord, StoredInput, get_model, stored_inputs
from warehouse.solution import Read, ReadSolution, SolutionFragment, SolutionInput, SolutionPartition
from warehouse.warehouse import Warehouse

_RAW = Read("raw")
_COMPUTE = Read("compute")


def solve(
    warehouse: Warehouse,
    model_name: str,
    *,
    version: int | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> ReadSolution:
    """See :func:`warehouse.solution.read_solution`."""
    with warehouse.catalog.read() as connection:
        model = get_model(connection, model_name, version)
        fragments = current_fragments(connection, model.table, start, end)
        found = survey(connection, model.table, stored_inputs(connection, model.id), fragments)
        return build_solution(connection, model, found)


def build_solution(connection: Connection, model: ModelRecord, found: Survey) -> ReadSolution:
    """The read solution that a survey amounts to: load what is ready, compute the rest."""
    reads = [_reads_of(item, found) for item in found.inputs]
    names = [item.name for item in found.inputs]
    fragments = [
        _solution_fragment(placed, {name: column[i] for name, column in zip(names, reads, strict=True)})
        for i, placed in enumerate(found.fragments)
    ]
    placed_fragments = zip(found.fragments, fragments, strict=True)
    return ReadSolution(
        model=model.name,
        model_version=model.version,
        table=model.table,
        table_version=get_table(connection, model.table).version,
        label=model.label,
        inputs=tuple(_solution_input(item) for item in found.inputs),
        partitions=tuple(_partition(list(group)) for _, group in groupby(placed_fragments, lambda p: p[0].partition)),
    )


def _reads_of(item: StoredInput, found: Survey) -> list[Read]:
    """One read per fragment."""
    if item.is_raw:
        return [_RAW] * len(found.fragments)
    return [_read_of(one) for one in found.matches[item.fingerprint]]


def _read_of(one: Match) -> Read:
    if one.action is not Action.LOAD or one.record is None:
        return _COMPUTE
    return Read("load", one.record.file, one.record.column, one.record.checksum)


def _solution_input(item: StoredInput) -> SolutionInput:
    return SolutionInput(item.name, item.fingerprint, item.component.type, component_document(item.component))


def _solution_fragment(placed: PlacedFragment, reads: dict[str, Read]) -> SolutionFragment:
    raw = placed.fragment
    return SolutionFragment(raw.fragment_id, raw.path, raw.row_groups, raw.rows, raw.size_bytes, raw.digests, reads)


def _partition(group: list[tuple[PlacedFragment, SolutionFragment]]) -> SolutionPartition:
    first = group[0][0]
    fragments = tuple(fragment for _, fragment in group)
    return SolutionPartition(first.partition, first.start, first.end, first.partition_version, fragments)
