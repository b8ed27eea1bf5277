"""A plan of TorchRec's planner as a :class:`PartitionPlan`, and back; its document is checked when it is read. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.planning.plan import MOST_CORES, PartitionPlan, Slice, TablePlan
from trainer.planning.tables import TableFacts

_REPLICATED = "data_parallel"
_SHARDED = ("table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard")
_NEXT = "benchmarks/support/side_of_torchrec_planner.py writes the document"


@dataclass(frozen=True, slots=True)
class TorchrecAnswer:
    """What TorchRec's planner answered.

    Attributes:
        blocks: its plan, in which each core has a block of a table's rows; None if it found none.
        refused: why it found none, else "".
        secs: that it took.
        shardings: the sharding of each table.
    """

    blocks: PartitionPlan | None
    refused: str
    secs: float
    shardings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shard:
    first_column: int
    columns: int
    first_row: int
    rows: int
    core: int


def read_answer(data: bytes, where: str, tables: Sequence[TableFacts], cores: int) -> TorchrecAnswer:
    """The answer at ``where`` for ``tables`` on ``cores`` cores. Raises :class:`ConfigError` for bytes that are not such a document."""
    try:
        document = DocumentField(json.loads(data.decode("utf-8")), where)
        secs = document.at("secs").number()
        members = document.members()
        if "refused" in members:
            return TorchrecAnswer(None, members["refused"].text(), secs, ())
        found = {}
        for item in document.at("tables").items():
            found[item.at("name").text()] = item
        if len(found) != len(document.at("tables").items()) or set(found) != {one.name for one in tables}:
            raise ConfigError("a plan must have the tables of its request, once each", where=f"{where}.tables",
                              value=sorted(found)[:8], allowed=", ".join(one.name for one in tables)[:200])  # fmt: skip
        planned = tuple(_table(found[one.name], one, cores) for one in tables)
        shardings = tuple(found[one.name].at("sharding").text() for one in tables)
        return TorchrecAnswer(PartitionPlan(cores, planned), "", secs, shardings)
    except (ConfigError, TornCheckpoint) as error:
        place = error.where if error.where.startswith(where) else f"{where}: {error.where}".removesuffix(": ")
        raise ConfigError(error.what, where=place, value=error.value, allowed=error.allowed, next_step=_NEXT) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "a plan of TorchRec must be JSON in UTF-8", where=where, value=str(error)[:120], next_step=_NEXT
        ) from error


def with_rows_spread(plan: PartitionPlan) -> PartitionPlan:
    """The plan with the rows of each slice spread cyclically over the cores of its blocks.

    As blocks of hashed ids: frequent rows stand in all of them, and not in the first one.
    """
    tables = []
    for table in plan.tables:
        slices = tuple(Slice(one.first_column, one.columns, one.cores) for one in table.slices)
        tables.append(TablePlan(table.name, table.rows, table.columns, slices, table.is_replicated))
    return PartitionPlan(plan.cores, tuple(tables), plan.stacks)


def sharding_of(table: TablePlan, cores: int, host_cores: int) -> str:
    """The sharding that is this partition of a table; "" if TorchRec has none.

    It spreads rows over all cores or over those of one host, and cuts columns at places of its own.
    """
    if table.is_replicated:
        return _REPLICATED
    places = sorted(table.slices[0].cores)
    if len(table.slices) > 1:
        return ""
    if len(places) == 1:
        return "table_wise"
    if len(places) == cores:
        return "row_wise"
    is_host = places == list(range(places[0], places[0] + host_cores)) and places[0] % host_cores == 0
    return "table_row_wise" if is_host else ""


def read_millis(data: bytes, where: str, plans: int) -> tuple[float, ...]:
    """What TorchRec's estimator says of so many plans. Raises :class:`ConfigError` for bytes that say nothing."""
    try:
        found = [item.number() for item in DocumentField(json.loads(data.decode("utf-8")), where).at("millis").items()]
    except (TornCheckpoint, ValueError, RecursionError) as error:
        raise ConfigError("an estimate of TorchRec must be JSON with numbers", where=where, value=str(error)[:120],
                          next_step=_NEXT) from error  # fmt: skip
    if len(found) != plans or min(found) <= 0:
        raise ConfigError("an estimate must be above 0, one of each plan", where=where, value=found, next_step=_NEXT)
    return tuple(found)


def _table(field: DocumentField, facts: TableFacts, cores: int) -> TablePlan:
    sharding = field.at("sharding").text()
    shards = [_shard(item) for item in field.at("shards").items()]
    if sharding == _REPLICATED and not shards:
        everywhere = (Slice(0, facts.columns, tuple(range(cores))),)
        return TablePlan(facts.name, facts.rows, facts.columns, everywhere, is_replicated=True)
    if sharding not in _SHARDED:
        raise ConfigError("the sharding of a table must be one of TorchRec's", where=field.place, value=sharding[:80],
                          allowed=", ".join((*_SHARDED, f"{_REPLICATED} without shards")))  # fmt: skip
    shards.sort(key=lambda one: (one.first_column, one.first_row, one.rows))
    slices = [_slice(list(group), field.place) for _, group in groupby(shards, key=lambda one: one.first_column)]
    return TablePlan(facts.name, facts.rows, facts.columns, tuple(slices))


def _slice(shards: Sequence[_Shard], where: str) -> Slice:
    """The shards of some columns, which must follow each other; empty ones are left out."""
    row = 0
    for one in shards:
        if one.first_row != row or one.columns != shards[0].columns:
            raise ConfigError("the shards of the same columns must follow each other", where=where,
                              value=f"rows from {one.first_row}, {one.columns} columns",
                              allowed=f"rows from {row}, {shards[0].columns} columns")  # fmt: skip
        row += one.rows
    kept = [one for one in shards if one.rows]
    ends = tuple(one.first_row + one.rows for one in kept)
    return Slice(shards[0].first_column, shards[0].columns, tuple(one.core for one in kept), ends)


def _shard(field: DocumentField) -> _Shard:
    counts = {name: field.at(name).count() for name in ("first_column", "columns", "first_row", "rows")}
    return _Shard(**counts, core=field.at("core").count(most=MOST_CORES))
