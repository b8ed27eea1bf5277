"""The training option ``hot_rows``: how many rows of tables on parameter servers stay in the memory of the process that trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

from trainer.options.checks import refuse_option

#: The share of the bytes of all tables that "auto" stands for, as in ``headrace plan hot``.
AUTO_SHARE: Final = 0.1
#: The most hot rows of a table: frames are numbered in 32 bits.
MOST_HOT_ROWS: Final = (1 << 31) - 16
_ALLOWED = (
    '"auto", a whole number of rows of each table, a share in (0, 1) of the bytes of all tables, or the rows by table'
)


@dataclass(frozen=True, slots=True)
class HotOptions:
    """How many hot rows tables have. One of the attributes is given.

    Attributes:
        by_table: the hot rows of each table by its name, none of others; None: by another attribute.
        of_each: the hot rows of each table.
        share: of the bytes of all tables with their slots, which statistics share out among the tables.
    """

    by_table: Mapping[str, int] | None = None
    of_each: int = 0
    share: float = 0.0

    @classmethod
    def read(cls, option: object) -> HotOptions:
        """The option as it is given, or that was read.

        Rows by table are an object of numbers by name, or the document that ``headrace plan hot`` writes. Raises
        :class:`~trainer.errors.ConfigError`.
        """
        if isinstance(option, cls):
            return option
        if option == "auto":
            return cls(share=AUTO_SHARE)
        if isinstance(option, bool):
            _refuse("hot_rows", option, _ALLOWED)
        if isinstance(option, int):
            return cls(of_each=_count("hot_rows", option, least=1))
        if isinstance(option, float) and 0 < option < 1:
            return cls(share=option)
        if not isinstance(option, Mapping):
            _refuse("hot_rows", option, _ALLOWED)
        if isinstance(option.get("tables"), list | tuple):
            return cls(_rows_of_plan(option["tables"]))
        rows = {_name("hot_rows", name): _count(f"hot_rows[{name!r}]", option[name]) for name in option}
        return cls(MappingProxyType(dict(sorted(rows.items()))))

    def to_document(self) -> object:
        """What :meth:`read` takes."""
        if self.by_table is not None:
            return dict(self.by_table)
        return self.of_each or self.share


def _rows_of_plan(tables: list[Any]) -> Mapping[str, int]:
    """The rows by table of a document of ``headrace plan hot``."""
    found: dict[str, int] = {}
    for k, one in enumerate(tables):
        where = f"hot_rows.tables[{k}]"
        if not isinstance(one, Mapping) or not {"name", "hot_rows"} <= one.keys():
            _refuse(where, one, "an object with name and hot_rows, as headrace plan hot --output writes it")
        name = _name(f"{where}.name", one["name"])
        if name in found:
            _refuse(f"{where}.name", name, "another name than that of a table before")
        found[name] = _count(f"{where}.hot_rows", one["hot_rows"])
    return MappingProxyType(dict(sorted(found.items())))


def _name(where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        _refuse(where, value, "the name of a table")
    return value


def _count(where: str, value: object, *, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= MOST_HOT_ROWS:
        _refuse(where, value, f"an integer in [{least}, {MOST_HOT_ROWS:,}]")
    return value


def _refuse(where: str, value: Any, allowed: str) -> NoReturn:
    refuse_option(where, str(value)[:200], allowed, "docs/parameter-servers.md")
