"""States of a small table, link by link."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import transforms.expressions.expression as hr
from transforms.expressions.tables import table
from transforms.joins.column import joined_columns_of
from transforms.joins.definition import JoinDefinition
from transforms.online.joined_table import JoinedTable
from warehouse.states.exact_rows import row_difference
from warehouse.states.folder import TableChange, link_names, locked_folder, read_states, write_link
from warehouse.states.link import DELTA, FULL, FileDigest, LinkTable, StatesLink, joined_tables

NOTHING = FileDigest(0, "0" * 64)


def definitions() -> tuple[JoinDefinition, ...]:
    """A few joined columns, of two tables."""
    clicks = table("clicks", available_after="1m").where(hr.boolean("good")).by("id", equals=hr.int64("user"))
    users = table("users", known_at="known").by("id", equals=hr.int64("user"))
    columns = [clicks.count(window="7d"), clicks.sum(hr.float64("paid"), window="1h"), clicks.ratio(hr.boolean("good"), prior=(1, 50)),
               users.latest(hr.text("country")), users.last(3, hr.int64("n"))]  # fmt: skip
    return tuple(sorted(joined_columns_of([one.node for one in columns]).values(), key=lambda one: one.column))


def tables() -> tuple[JoinedTable, ...]:
    return joined_tables(definitions(), {"clicks": "time", "users": "time"})


def rows(number: int) -> dict[str, pa.Table]:
    """The computed rows of each table after link ``number``: some stay, some go, some come."""
    draw = np.random.default_rng(5)
    at = pa.array(1_767_225_600_000_000 + np.arange(60) * 10**7).cast(pa.timestamp("us"))
    whole = pa.table({
        "id": draw.integers(0, 4, 60), "time": at, "known": at, "good": draw.random(60) < 0.8, "paid": draw.random(60).round(1),
        "country": draw.choice(["de", "fr"], 60), "n": np.arange(60),
    })  # fmt: skip
    part = whole.slice(number * 5, 20 + number * 3)
    return {one.name: one.table_of(one.computed(part)) for one in tables()}


def add_link(folder: Path, number: int) -> StatesLink:
    """Write link ``number`` of a chain that has those before it."""
    with locked_folder(folder):
        before = read_states(folder) if link_names(folder) else None
        after = rows(number)
        changes = {}
        for name, new in after.items():
            removed, added = (
                (np.empty(0, np.int64), np.arange(new.num_rows))
                if before is None
                else row_difference(before.rows[name], new)
            )
            changes[name] = TableChange(number + 1, new.take(pa.array(added)), removed)
        each = tuple(
            LinkTable(name, number + 1, "time", 0, 0, new.num_rows, NOTHING, NOTHING) for name, new in after.items()
        )
        kind, previous = (FULL, "") if before is None else (DELTA, before.hash)
        return write_link(folder, StatesLink(number, kind, previous, "ctr", 1, number, definitions(), each), changes)


def as_set(table: pa.Table) -> list[str]:
    """The rows of a table, in no order."""
    return sorted(map(str, table.to_pylist()))
