"""Reads the inputs of a model as tables, for notebooks and other trainers.

    features = hr.read("search_ctr", "2026-03-01", "2026-03-08")
    frame = hr.read("search_ctr@2", "2026-03-01", "2026-03-08", as_="polars", time=True)
    for part in hr.scan("search_ctr", "2026-01-01", "2027-01-01"):  # fragment by fragment, in bounded memory
        ...

Memos are loaded and the rest is computed, as by ``headrace train``; memos and files are pinned while they are read.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from headrace.data_frames import frame_library
from transforms.errors import InputError
from transforms.time_range import Moment, moment

if TYPE_CHECKING:
    import pyarrow as pa

    from warehouse.solution.parts import SolutionFragment
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

#: The forms of a result.
FORMS = ("arrow", "polars", "pandas")
#: The name of the label's column, and the one if an input is named ``label``.
LABEL, LABEL_BESIDE = "label", "__label__"
_VERSIONED = re.compile(r"(.+)@([1-9][0-9]{0,8})")


def read(
    model: str,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    home: str = ".headrace",
    catalog_url: str = "",
    as_: Literal["arrow", "polars", "pandas"] = "arrow",
    columns: Sequence[str] = (),
    label: bool = True,
    time: bool = False,
) -> Any:
    """A model's inputs for the partitions that start in ``[start, end)``, one row per event, as one table.

    Args:
        model: the name of a submitted model, at its newest version, or ``name@version``.
        start: a date, a time or its ISO 8601 text, in UTC unless it has an offset; None: from the first partition on.
        end: likewise, not included; None: to the last partition.
        home: the warehouse, as ``--home`` of the commands: a folder or a bucket.
        catalog_url: the catalog's, if it is not in the home.
        as_: ``"arrow"`` for a ``pyarrow.Table``, or ``"polars"`` or ``"pandas"`` for a data frame, if that is installed.
        columns: raw columns of the table to include, by name.
        label: whether to include the label: as ``label``, or ``__label__`` if an input has that name.
        time: whether to include the table's time column.

    Raises :class:`~transforms.errors.InputError` for a range without partitions, and
    :class:`~transforms.errors.NotFound` for an unknown model.

    >>> read("ctr", home=home, columns=["query"]).column_names
    ['overlap', 'price', 'label', 'query']
    """
    import pyarrow as pa

    convert = _conversion(as_)
    parts = scan(model, start, end, home=home, catalog_url=catalog_url, columns=columns, label=label, time=time)
    return convert(pa.concat_tables(parts))


def scan(
    model: str,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    home: str = ".headrace",
    catalog_url: str = "",
    columns: Sequence[str] = (),
    label: bool = True,
    time: bool = False,
) -> Iterator[pa.Table]:
    """The table of :func:`read` by fragment, one ``pyarrow.Table`` each, in order of time, one in memory at a time.

    >>> sum(part.num_rows for part in scan("ctr", home=home)) == read("ctr", home=home).num_rows
    True
    """
    name, version = parsed_name(model)
    first, last = (None if at is None else moment(at) for at in (start, end))
    with (
        opened_home(home, catalog_url) as warehouse,
        opened_reading(
            warehouse, name, version, first, last, columns=columns, label=label, time=time, holder="headrace.scan"
        ) as reading,
    ):
        yield from reading.tables()


@dataclass(frozen=True)
class Reading:
    """A pinned read of a model.

    Attributes:
        solution: the fragments, and how each column is read.
        columns: the raw columns that are included.
        label: the name of the label's column; "" without one.
        load: reads one fragment.
    """

    solution: ReadSolution
    columns: tuple[str, ...]
    label: str
    load: Callable[[SolutionFragment], pa.Table]

    def tables(self) -> Iterator[pa.Table]:
        """One table per fragment, in order, all of one schema; empty for a fragment without events."""
        schema: pa.Schema | None = None
        for fragment in self.solution.fragments:
            table = self._named(self.load(fragment))
            schema = schema or table.schema
            yield table.cast(schema)

    def _named(self, table: pa.Table) -> pa.Table:
        from warehouse.reading.reader import LABEL as STORED

        names = [item.name for item in self.solution.inputs]
        kept = [*names, *([STORED] if self.label else []), *self.columns]
        return table.select(kept).rename_columns([*names, *([self.label] if self.label else []), *self.columns])


@contextmanager
def opened_reading(
    warehouse: Warehouse,
    model: str,
    version: int | None,
    start: datetime | None,
    end: datetime | None,
    *,
    holder: str,
    columns: Sequence[str] = (),
    label: bool = True,
    time: bool = False,
    table_version: int | None = None,
) -> Iterator[Reading]:
    """The read of a model, pinned until the block ends. Damaged memos are computed on the fly and queued again."""
    from warehouse.memos.memos import damage_recorder
    from warehouse.reading.pinned import pinned_solution
    from warehouse.reading.reader import read_fragment

    described = f"{holder} on {socket.gethostname()}, process {os.getpid()}"
    with pinned_solution(
        warehouse, model, holder=described, version=version, start=start, end=end, table_version=table_version
    ) as solution:
        if not solution.partitions:
            asked = f"{start.isoformat() if start else '…'} to {end.isoformat() if end else '…'}"
            raise InputError("the range must hold partitions", where=f"model {model}, table {solution.table}", value=asked,
                             next_step=f"headrace table show {solution.table} lists the partitions")  # fmt: skip
        inputs = {item.name for item in solution.inputs}
        beside = _beside(warehouse, solution, inputs, columns, time)
        record = damage_recorder(warehouse)
        named = (LABEL_BESIDE if LABEL in {*inputs, *beside} else LABEL) if label else ""
        yield Reading(
            solution,
            beside,
            named,
            lambda fragment: read_fragment(warehouse.storage, solution, fragment, columns=beside, on_damage=record),
        )


def parsed_name(model: str) -> tuple[str, int | None]:
    """A model's name and version of ``name`` or ``name@version``; None is the newest."""
    if not isinstance(model, str) or not model:
        raise InputError("a model must be a name", value=model, allowed="name or name@version")
    found = _VERSIONED.fullmatch(model)
    return (found[1], int(found[2])) if found else (model, None)


def _beside(
    warehouse: Warehouse, solution: ReadSolution, inputs: set[str], columns: Sequence[str], time: bool
) -> tuple[str, ...]:
    """The included raw columns. Raises :class:`InputError` for one with the name of an input."""
    from warehouse.tables.manifests import get_table

    with warehouse.catalog.read() as connection:
        table = get_table(connection, solution.table)
    if isinstance(columns, str):
        raise InputError("columns must be a list of names", value=columns, next_step=f"write [{columns!r}]")
    asked = [*columns]
    if time and table.time_column is None:
        raise InputError("the table has no time column", where=f"table {table.name}",
                         next_step="name raw columns instead, as columns=[...] or --column")  # fmt: skip
    if time and table.time_column is not None:
        asked.append(table.time_column)
    for name in asked:
        table.column(name)  # raises for one that the table does not have
        if name in inputs:
            raise InputError("a raw column must not have the name of an input", where=f"model {solution.model}", value=name,
                             next_step="leave it out; the input is the column of this name")  # fmt: skip
    return tuple(dict.fromkeys(asked))


@contextmanager
def opened_home(home: str, catalog_url: str) -> Iterator[Warehouse]:
    """The warehouse of a home that exists, until the block ends; ``catalog_url``: "" for the catalog in it."""
    from warehouse.homes import check_exists
    from warehouse.settings import given_settings, settings_of
    from warehouse.warehouse import Warehouse

    if "://" not in home:
        home = os.path.abspath(home)
    config = settings_of(home, given_settings(catalog_url=catalog_url), {}).config
    check_exists(config)
    with Warehouse.open(config) as warehouse:
        yield warehouse


def _conversion(form: str) -> Callable[[pa.Table], Any]:
    """The function that converts a table. Raises :class:`InputError` before anything is read."""
    if form not in FORMS:
        raise InputError("as_ must be a known form", where="as_", value=form, allowed=", ".join(FORMS))
    if form == "arrow":
        return lambda table: table
    library = frame_library("polars" if form == "polars" else "pandas", where="as_", otherwise="read as arrow")
    if form == "polars":
        return lambda table: library.from_arrow(table)
    return lambda table: table.to_pandas()  # pyarrow makes the frame
