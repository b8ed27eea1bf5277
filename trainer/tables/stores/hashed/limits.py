"""The limits of a table of an unbounded vocabulary, apart from the table: what a training run states, and what a server is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from trainer.errors import ConfigError
from trainer.options.combinations import Setup, check_setup
from trainer.options.hashed import MOST_PLACES, HashedOptions
from trainer.tables.spec import TableSpec
from trainer.tables.stores.hashed.options import HashedTable, bytes_per_row

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TableLimits:
    """What :class:`~trainer.tables.stores.hashed.options.HashedTable` has beside its table; the attributes are described there."""

    capacity: int
    admit_after: int = 1
    expire_after_steps: int = 0
    candidates: int = 0
    candidate_steps: int = 1 << 16

    @classmethod
    def of(cls, options: HashedOptions, tables: Sequence[TableSpec]) -> TableLimits:
        """The limits of each of the tables of an input, which share a budget: that of the deep part and that of the linear part.

        Raises :class:`ConfigError` for a budget without space for a row.
        """
        admit_after = options.admit_after
        row_bytes = sum(bytes_per_row(HashedTable(one, capacity=1, admit_after=admit_after)) for one in tables)
        capacity = options.capacity or min(options.budget_mib * _MIB // row_bytes, MOST_PLACES)
        if not capacity:
            raise ConfigError("budget_mib must have space for a row", where=f"hashed[{tables[0].name!r}]", value=options.budget_mib,
                              allowed=f"at least {-(-row_bytes // _MIB)}", next_step="correct this training option")  # fmt: skip
        return cls(capacity, admit_after, options.expire_after_steps, options.candidates, options.candidate_steps)

    def table(self, spec: TableSpec) -> HashedTable:
        """The hashed table of a table with these limits. Raises :class:`ConfigError` for limits that are out of range."""
        return HashedTable(spec, **asdict(self))

    def divided(self, servers: int, table: str) -> TableLimits:
        """The limits of each of some servers or hosts, which have the capacity together, rounded up.

        Raises :class:`ConfigError` for fewer places than these.
        """
        if self.capacity < servers:
            raise ConfigError("a hashed table must have a place on each server or host", where=f"table {table}", value=f"capacity {self.capacity}",
                              allowed=f">= {servers}", next_step="give the table a larger capacity or budget_mib, or use fewer servers or hosts")  # fmt: skip
        capacity, candidates = -(-self.capacity // servers), -(-self.candidates // servers)
        return replace(self, capacity=capacity, candidates=candidates)

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return asdict(self)


def divided_limits(
    limits: Mapping[str, TableLimits], tables: Sequence[TableSpec], owners: int, *, is_planned: bool
) -> dict[str, TableLimits]:
    """The limits of hashed tables on each of some servers or hosts. Raises :class:`ConfigError` for other tables, and for those of a plan."""
    names = [one.name for one in tables]
    for name in limits:
        if name not in names:
            raise ConfigError("a hashed table must be one of the engine's", value=name, allowed=", ".join(names))
    check_setup(Setup(hashed=bool(limits), plan=is_planned))
    found = {name: one.divided(owners, name) for name, one in limits.items()}
    for table in tables:
        if table.name in found:
            found[table.name].table(table)  # raises for limits that are out of range
    return found


#: The members of the document of limits.
LIMIT_MEMBERS = frozenset(one.name for one in fields(TableLimits))
