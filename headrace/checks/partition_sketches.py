"""Sketches of a model's inputs and labels by partition: known ones from the catalog, and the others made from the fragments and recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.checks.column_sketch import ColumnSketch, merged_sketches, read_sketch, sketch_column
from headrace.checks.statistics import plain_type
from transforms.columns.arrays import one_array
from transforms.graphs.graph import raw_columns
from warehouse.models.value_sketches import ValueSketch, known_sketches, record_sketches

if TYPE_CHECKING:
    from transforms.types import ColumnType
    from warehouse.solution.parts import SolutionFragment
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

#: The name of a model's only label; one of several is ``label NAME``.
LABEL = "label"


@dataclass(frozen=True, slots=True)
class PartitionSketches:
    """The sketches of one partition, by the name of an input or a label."""

    partition: str
    start: datetime
    end: datetime
    sketches: Mapping[str, ColumnSketch]


@dataclass(frozen=True, slots=True)
class _Column:
    """What is sketched: its name, its component or what stands for a label, and the raw columns that it reads."""

    name: str
    fingerprint: str
    columns: tuple[str, ...]
    type: ColumnType | None


def partition_sketches(
    warehouse: Warehouse,
    solution: ReadSolution,
    load: Callable[[SolutionFragment], pa.Table],
    progress: Callable[[int, int], None],
) -> Iterator[PartitionSketches]:
    """The sketches of each partition of a read, in order of time. A partition whose sketches are known is not read.

    ``load``: the inputs of a fragment, and its labels under ``__label__``; ``progress``: is given the events that are done, and all.
    """
    columns, done = _columns_of(solution), 0
    keys = {
        (number, one.name): _key(one, fragment) for number, fragment in enumerate(solution.fragments) for one in columns
    }
    known = known_sketches(warehouse, list(keys.values()))
    number = 0
    for partition in solution.partitions:
        found: dict[str, list[ColumnSketch]] = {one.name: [] for one in columns}
        for fragment in partition.fragments:
            own = {one.name: keys[number, one.name] for one in columns}
            missing = [one for one in columns if own[one.name] not in known]
            made = _made(load(fragment), missing) if missing else {}
            record_sketches(
                warehouse, [ValueSketch(own[one.name], one.fingerprint, made[one.name].to_bytes()) for one in missing]
            )
            for one in columns:
                content = known.get(own[one.name])
                found[one.name].append(
                    made[one.name]
                    if content is None
                    else read_sketch(content, f"sketch {own[one.name][:12]} of {one.name}")
                )
            number += 1
            done += fragment.live_rows
            progress(done, solution.rows)
        merged = {name: merged_sketches(each) for name, each in found.items()}
        yield PartitionSketches(partition.key, partition.start, partition.end, merged)


def _columns_of(solution: ReadSolution) -> list[_Column]:
    inputs = [
        _Column(one.name, one.fingerprint, tuple(column.name for column in raw_columns(one.root)), one.type)
        for one in solution.inputs
    ]
    labels = [
        _Column(f"{LABEL} {name}".rstrip(), _digest(["label", one.identity]), one.columns, None)
        for name, one in solution.target.each
    ]
    return [*inputs, *labels]


def _key(column: _Column, fragment: SolutionFragment) -> str:
    """The identity of a column's values over the events of a fragment that are not deleted."""
    digests = [[name, fragment.digests[name]] for name in sorted(column.columns)]
    deleted = "" if fragment.deletions is None else fragment.deletions.checksum
    return _digest([column.fingerprint, digests, deleted])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _made(table: pa.Table, columns: list[_Column]) -> dict[str, ColumnSketch]:
    from warehouse.reading.reader import LABEL as STORED

    labels = table.column(STORED)
    found = {}
    for one in columns:
        if one.type is not None:
            found[one.name] = sketch_column(one_array(table.column(one.name)), one.type)
            continue
        name = one.name.removeprefix(LABEL).strip()
        values = one_array(labels)
        own = values.field(name) if name else values
        found[one.name] = sketch_column(own, plain_type(own.type))
    return found
