"""A partition plan as a JSON document, which is checked when it is read. Pure; no I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from trainer.document_field import DocumentField
from trainer.errors import ConfigError, TornCheckpoint
from trainer.planning.plan import MOST_CORES, PartitionPlan, Slice, TablePlan

PLAN_FORMAT: Final = "headrace.plan/1"
_MOST_BYTES = 64 << 20
_MOST_SHARDS = 4_000_000
_MOST_COLUMNS = 1 << 20
_MOST_ROWS = 1 << 48
_NEXT = "headrace plan make writes a plan"


def plan_bytes(plan: PartitionPlan, about: Mapping[str, Any] | None = None) -> bytes:
    """The document of a plan; equal plans give equal bytes. ``about``: further members, which engines do not read."""
    document = {"format": PLAN_FORMAT, "fingerprint": plan_fingerprint(plan), **plan_members(plan), **(about or {})}
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def plan_fingerprint(plan: PartitionPlan) -> str:
    """The identity of a plan: the SHA-256 of its tables, cores and stacks, in hexadecimal."""
    return hashlib.sha256(json.dumps(plan_members(plan), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_plan(data: bytes, where: str) -> PartitionPlan:
    """The plan of a document at ``where``. Raises :class:`ConfigError` for bytes that are none."""
    return _plan_of(_document_of(data, where), where)


def read_about(data: bytes, where: str) -> Mapping[str, Any]:
    """The further members of a document; its plan is checked too. Raises :class:`ConfigError`."""
    document = _document_of(data, where)
    own = {"format", "fingerprint", *plan_members(_plan_of(document, where))}
    return {name: member.value for name, member in document.members().items() if name not in own}


def _document_of(data: bytes, where: str) -> DocumentField:
    if len(data) > _MOST_BYTES:
        raise ConfigError("the document of a plan must not be larger than a plan is", where=where, value=f"{len(data)} bytes",
                          allowed=f"<= {_MOST_BYTES}", next_step=_NEXT)  # fmt: skip
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "the document of a plan must be JSON in UTF-8", where=where, value=str(error)[:120], next_step=_NEXT
        ) from error
    return DocumentField(value, where)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _plan_of(document: DocumentField, where: str) -> PartitionPlan:
    try:
        form = document.at("format").text()
        if form != PLAN_FORMAT:
            raise ConfigError("the format of a plan must be one that this release reads", where=where, value=form[:80],
                              allowed=PLAN_FORMAT, next_step=_NEXT)  # fmt: skip
        plan = plan_at(document)
        fingerprint = document.at("fingerprint").text()
    except (TornCheckpoint, ConfigError) as error:
        place = error.where if error.where.startswith(where) else f"{where}: {error.where}".removesuffix(": ")
        raise ConfigError(error.what, where=place, value=error.value, allowed=error.allowed, next_step=_NEXT) from error
    if fingerprint != plan_fingerprint(plan):
        raise ConfigError("the fingerprint of a plan must be that of its tables", where=where, value=fingerprint[:64],
                          allowed=plan_fingerprint(plan), next_step=_NEXT)  # fmt: skip
    return plan


def plan_at(document: DocumentField) -> PartitionPlan:
    """The plan of the members at ``document``. Raises :class:`ConfigError` and :class:`TornCheckpoint` for others."""
    shards = 0
    tables = []
    for item in document.at("tables").items():
        table = _table(item)
        shards += sum(len(one.cores) for one in table.slices)
        if shards > _MOST_SHARDS:
            raise ConfigError(
                "a plan must have a number of shards", where=item.place, value=shards, allowed=f"<= {_MOST_SHARDS}"
            )
        tables.append(table)
    stacks = tuple(stack.texts() for stack in document.at("stacks").items())
    return PartitionPlan(document.at("cores").count(most=MOST_CORES), tuple(tables), stacks)


def plan_members(plan: PartitionPlan) -> dict[str, Any]:
    """The members of a document that say where tables stand; the inverse of :func:`plan_at`."""
    return {
        "cores": plan.cores,
        "tables": [
            {
                "name": table.name,
                "rows": table.rows,
                "columns": table.columns,
                "replicated": table.is_replicated,
                "slices": [
                    {
                        "first_column": one.first_column,
                        "columns": one.columns,
                        "cores": [list(run) for run in _runs(one.cores)],
                        "row_ends": list(one.row_ends),
                    }
                    for one in table.slices
                ],
            }
            for table in plan.tables
        ],
        "stacks": [list(stack) for stack in plan.stacks],
    }


def _table(field: DocumentField) -> TablePlan:
    replicated = field.at("replicated").value
    if not isinstance(replicated, bool):
        raise TornCheckpoint("a document's value must be a boolean", where=f"{field.place}.replicated",
                             value=repr(replicated)[:80], allowed="true or false")  # fmt: skip
    return TablePlan(
        field.at("name").text(),
        field.at("rows").count(most=_MOST_ROWS),
        field.at("columns").count(most=_MOST_COLUMNS),
        tuple(_slice(item) for item in field.at("slices").items()),
        replicated,
    )


def _slice(field: DocumentField) -> Slice:
    cores: list[int] = []
    for run in field.at("cores").items():
        numbers = [one.count(most=MOST_CORES) for one in run.items()]
        if len(numbers) != 2 or len(cores) + numbers[1] > MOST_CORES:
            raise TornCheckpoint("a run of cores must be the first one and their number", where=run.place,
                                 value=repr(run.value)[:80], allowed=f"[first, number], {MOST_CORES} in all")  # fmt: skip
        cores.extend(range(numbers[0], numbers[0] + numbers[1]))
    return Slice(
        field.at("first_column").count(most=_MOST_COLUMNS),
        field.at("columns").count(most=_MOST_COLUMNS),
        tuple(cores),
        tuple(item.count(most=_MOST_ROWS) for item in field.at("row_ends").items()),
    )


def _runs(cores: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending runs of consecutive cores, each as its first one and their number."""
    first, number = 0, 0
    for core in cores:
        if number and core == first + number:
            number += 1
            continue
        if number:
            yield first, number
        first, number = core, 1
    if number:
        yield first, number
