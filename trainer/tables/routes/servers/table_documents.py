"""Tables of a parameter server as a JSON document: what its rows are, and what they are drawn from. Strict when read.

Combiners and quantization are the engine's business, and learning rates come with each update: none of them is in the document.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainer.errors import ConfigError
from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.kernels.table_bytes import row_bytes
from trainer.tables.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, Optimizer, RowWiseAdagrad
from trainer.tables.spec import Constant, Initializer, Normal, TableSpec, Uniform
from trainer.tables.stores.hashed.limits import LIMIT_MEMBERS, TableLimits
from trainer.tables.stores.pruned.saved_parts import SavedPart, saved_parts
from transforms.errors import DataError, InputError

_OPTIMIZERS: dict[str, type[Optimizer]] = {
    one.__name__: one for one in (SGD, Adagrad, RowWiseAdagrad, AdagradMomentum, Adam, FTRL)
}
_INITIALIZERS: dict[str, type[Initializer]] = {one.__name__: one for one in (Constant, Uniform, Normal)}
_RATE = "learning_rate"
#: In place of a rate that is sent with each update.
_ANY_RATE = 1.0
_MOST_PARTS = 1 << 16
_MOST_ROWS, _MOST_DIM = 1 << 62, 1 << 16
#: In place of a budget, of which the groups are made.
_ANY_BUDGET = 1.0
#: Places have numbers of 32 bits; addresses have 4 bytes.
_MOST_PLACES, _MOST_PRUNED_ROWS = (1 << 31) - 16, 1 << 50
#: The ids of a hashed table.
_MOST_IDS = (1 << 63) - 1
#: Positions of all values stay far below 2^63. A table begins a cache line.
_MOST_BYTES, _LINE_BYTES = 1 << 60, 128


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A part of a table on a server.

    Attributes:
        table: its rows there as a table; of a hashed one the vocabulary limits its ids.
        origin: where they come from.
        limits: of a hashed table; None for one that has all its rows.
    """

    table: TableSpec
    origin: TableOrigin
    limits: TableLimits | None = None

    @property
    def most_rows(self) -> int:
        """The most rows that it may have."""
        return self.table.vocabulary_size if self.limits is None else self.limits.capacity


@dataclass(frozen=True, slots=True)
class HeldPruning:
    """How the tables of a server are pruned.

    Attributes:
        options: how rows are chosen; without a budget and groups.
        groups: of the tables that are not hashed, by their positions among all, with the places that they have on this server.
    """

    options: PruningOptions
    groups: tuple[RowGroup, ...]


@dataclass(frozen=True)
class HeldTables:
    """The parts of all tables on a server.

    Attributes:
        seed: of their initial values.
        tables: the parts.
        pruning: only the most important rows of the tables that are not hashed have places; None: all of their rows.
    """

    seed: int
    tables: tuple[HeldTable, ...]
    pruning: HeldPruning | None = None

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        found: dict[str, Any] = {"seed": self.seed, "tables": [_table_document(one) for one in self.tables]}
        if self.pruning is not None:
            groups = [{"tables": list(one.tables), "rows": one.rows} for one in self.pruning.groups]
            found["pruning"] = {"options": self.pruning.options.to_server_document(), "groups": groups}
        return found

    @cached_property  # requests to read and load ask for them
    def saved_parts(self) -> tuple[SavedPart, ...]:
        """What is saved and loaded of them, in its order: the parts, then what pruned ones have beside their rows."""
        numbered = [t for t, one in enumerate(self.tables) if one.limits is None]
        options = None if self.pruning is None else self.pruning.options
        return saved_parts([one.table for one in self.tables], options, numbered)

    @property
    def most_rows(self) -> int:
        """The rows that all of them may have."""
        if self.pruning is None:
            return sum(one.most_rows for one in self.tables)
        by_id = sum(one.most_rows for one in self.tables if one.limits is not None)
        return by_id + sum(one.rows for one in self.pruning.groups)

    @property
    def limits(self) -> dict[str, TableLimits]:
        """The limits of the hashed tables, by name."""
        return {one.table.name: one.limits for one in self.tables if one.limits is not None}

    @cached_property
    def digest(self) -> str:
        """Equal for equal tables: SHA-256 of the document."""
        return hashlib.sha256(json.dumps(self.to_document(), sort_keys=True).encode()).hexdigest()


def held_tables(
    shards: Sequence[tuple[TableSpec, TableOrigin]], seed: int, limits: Mapping[str, TableLimits] | None = None,
    pruning: HeldPruning | None = None,
) -> HeldTables:  # fmt: skip
    """The parts of a server, reduced to what it uses of them; ``limits``: of its hashed tables, by name."""
    return HeldTables(
        seed,
        tuple(
            HeldTable(
                dataclasses.replace(
                    table,
                    optimizer=dataclasses.replace(table.optimizer, learning_rate=_ANY_RATE),
                    combiner="sum",
                    initializer=table.effective_initializer,
                    quantization=None,
                ),
                origin,
                (limits or {}).get(table.name),
            )
            for table, origin in shards
        ),
        pruning,
    )


def held_pruning(options: PruningOptions, groups: Sequence[RowGroup]) -> HeldPruning:
    """How the tables of a server with these groups are pruned."""
    return HeldPruning(dataclasses.replace(options.of_servers(), budget=_ANY_BUDGET, groups=()), tuple(groups))


def read_held_tables(document: object) -> HeldTables:
    """The tables of a document. Raises :class:`DataError`."""
    is_pruned = isinstance(document, dict) and "pruning" in document
    found = _members(document, {"seed", "tables"} | ({"pruning"} if is_pruned else set()), "tables of a server")
    if type(found["seed"]) is not int or not 0 <= found["seed"] < 1 << 63:
        raise DataError(
            "the seed of tables must be a whole number", value=str(found["seed"])[:80], allowed="0 to 2^63 - 1"
        )
    tables = found["tables"]
    if not isinstance(tables, list) or not 0 < len(tables) <= _MOST_PARTS:
        raise DataError(
            "tables of a server must be a list", value=type(tables).__name__, allowed=f"1 to {_MOST_PARTS} tables"
        )
    held = tuple(_read_table(one) for one in tables)
    repeated = [name for name, count in Counter(one.table.name for one in held).items() if count > 1]
    if repeated:
        raise DataError("the tables of a server must have different names", value=repeated[:4])
    if sum(one.most_rows * (row_bytes(one.table) + _LINE_BYTES) for one in held) > _MOST_BYTES:
        raise DataError("the tables of a server must have fewer rows", allowed=f"{_MOST_BYTES} bytes together")
    pruning = _read_pruning(found["pruning"], held) if is_pruned else None
    return HeldTables(found["seed"], held, pruning)


def _read_pruning(document: object, held: Sequence[HeldTable]) -> HeldPruning:
    where = "pruning of a server"
    found = _members(document, {"options", "groups"}, where)
    try:
        options = PruningOptions.read(found["options"])
    except ConfigError as error:
        raise DataError(error.what, where=where, value=error.value, allowed=error.allowed) from None
    if options.groups or not isinstance(found["groups"], list):
        raise DataError("pruned tables of a server must have groups beside the options", where=where)
    groups = tuple(_read_group(one, held, where) for one in found["groups"])
    members = [t for one in groups for t in one.tables]
    numbered = [t for t, one in enumerate(held) if one.limits is None]
    if not numbered or sorted(members) != numbered:
        raise DataError(
            "each table of a server that is not hashed must be in one group", where=where, value=str(members)[:80]
        )
    if sum(held[t].table.vocabulary_size for t in numbered) > _MOST_PRUNED_ROWS:
        raise DataError(
            "pruned tables of a server must have fewer rows", where=where, allowed=f"{_MOST_PRUNED_ROWS} together"
        )
    return HeldPruning(options, groups)


def _read_group(document: object, held: Sequence[HeldTable], where: str) -> RowGroup:
    found = _members(document, {"tables", "rows"}, where)
    tables, rows = found["tables"], found["rows"]
    if not isinstance(tables, list) or not tables or not all(type(t) is int and 0 <= t < len(held) for t in tables):
        raise DataError("the tables of a group must be positions", where=where, value=str(tables)[:80])
    kinds = {(held[t].table.dim, held[t].table.optimizer) for t in tables}
    if len(kinds) > 1 or tables != sorted(set(tables)):
        raise DataError(
            "the tables of a group must ascend, and have one width and optimizer", where=where, value=str(tables)[:80]
        )
    most = min(sum(held[t].table.vocabulary_size for t in tables), _MOST_PLACES)
    if type(rows) is not int or not 1 <= rows <= most:
        raise DataError(
            "the rows of a group must be a whole number, at most those of its tables",
            where=where,
            value=str(rows)[:80],
            allowed=f"1 to {most}",
        )
    return RowGroup(tuple(tables), rows)


def _table_document(held: HeldTable) -> dict[str, Any]:
    table, origin = held.table, held.origin
    return {
        "name": table.name,
        "rows": table.vocabulary_size,
        "dim": table.dim,
        "optimizer": _typed(table.optimizer),
        "initializer": _typed(table.effective_initializer),
        "origin": dataclasses.asdict(origin),
        **({} if held.limits is None else {"hashed": held.limits.to_document()}),
    }


def _typed(value: Any) -> dict[str, Any]:
    return {"type": type(value).__name__, **{one.name: getattr(value, one.name) for one in dataclasses.fields(value)}}


def _read_table(document: object) -> HeldTable:
    members = {"name", "rows", "dim", "optimizer", "initializer", "origin"}
    is_hashed = isinstance(document, dict) and "hashed" in document
    found = _members(document, members | ({"hashed"} if is_hashed else set()), "a table of a server")
    where = f"table {str(found['name'])[:80]}"
    rows, dim = found["rows"], found["dim"]
    if not _is_name(found["name"]) or type(rows) is not int or type(dim) is not int:
        raise DataError("a table of a server must have a name, rows and columns", where=where)
    most_rows = _MOST_IDS if is_hashed else _MOST_ROWS
    if not (1 <= rows <= most_rows and 1 <= dim <= _MOST_DIM):
        raise DataError("a table of a server must have rows and columns", where=where, value=(rows, dim),
                        allowed=f"1 to {most_rows}, 1 to {_MOST_DIM}")  # fmt: skip
    optimizer = _read_typed(found["optimizer"], _OPTIMIZERS, f"{where}, optimizer")
    initializer = _read_typed(found["initializer"], _INITIALIZERS, f"{where}, initializer")
    table = TableSpec(found["name"], rows, dim, optimizer, "sum", initializer)
    limits = _read_limits(found["hashed"], table, where) if is_hashed else None
    return HeldTable(table, _read_origin(found["origin"], where), limits)


def _read_limits(document: object, table: TableSpec, where: str) -> TableLimits:
    found = _members(document, set(LIMIT_MEMBERS), f"{where}, hashed")
    wrong = [name for name, value in found.items() if type(value) is not int]
    if wrong or found["capacity"] < 1:
        raise DataError(
            "the limits of a hashed table must be whole numbers, its capacity >= 1", where=where, value=str(found)[:200]
        )
    limits = TableLimits(**found)
    try:
        limits.table(table)
    except ConfigError as error:
        raise DataError(error.what, where=where, value=error.value, allowed=error.allowed) from None
    return limits


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != "" and not any("\ud800" <= one <= "\udfff" for one in value)


def _read_origin(document: object, where: str) -> TableOrigin:
    found = _members(document, {"table", "row_stride", "row_first", "first_column"}, f"{where}, origin")
    numbers = [found[name] for name in ("row_stride", "row_first", "first_column")]
    if not _is_name(found["table"]) or not all(type(one) is int and 0 <= one < 1 << 62 for one in numbers):
        raise DataError("the origin of a table must be a name and numbers", where=where, value=str(found)[:200])
    return TableOrigin(found["table"], *numbers)


def _read_typed(document: object, types: dict[str, Any], where: str) -> Any:
    if not isinstance(document, dict) or str(document.get("type")) not in types:
        raise DataError(
            "an object must have a known type", where=where, value=str(document)[:80], allowed=", ".join(types)
        )
    kind = types[str(document["type"])]
    fields = {one.name: one.type for one in dataclasses.fields(kind)}
    found = _members(document, {"type", *fields}, where)
    for name, annotation in fields.items():
        if not _is_of(found[name], annotation):
            raise DataError(f"{name} must be {annotation}", where=where, value=str(found[name])[:80])
    try:
        return kind(**{name: found[name] for name in fields})
    except (InputError, TypeError, ValueError, OverflowError) as error:
        raise DataError("an object must have allowed values", where=where, value=str(error)[:200]) from None


def _is_of(value: object, annotation: Any) -> bool:
    """Whether a value of JSON may be that of a field: "bool", or a number with or without "None"."""
    if isinstance(value, bool) or annotation == "bool":
        return isinstance(value, bool) and annotation == "bool"
    return isinstance(value, int | float) or (value is None and "None" in annotation)


def _members(document: object, members: set[str], where: str) -> dict[str, Any]:
    if not isinstance(document, dict) or document.keys() != members:
        found = sorted(map(str, document))[:20] if isinstance(document, dict) else type(document).__name__
        raise DataError(
            "an object must have its members", where=where, value=str(found)[:200], allowed=", ".join(sorted(members))
        )
    return document
