"""The names of joined columns, and what each is an aggregate of. It imports no column, so that commands that only read the catalog start quickly."""

from __future__ import annotations

import re
from enum import StrEnum

from transforms.names import is_name

#: Digits of the digest in a column's name: 64 bits among the columns of a table.
_DIGITS = 16
_COLUMN = re.compile(rf"@(.+)\.([a-z]+)#[0-9a-f]{{{_DIGITS}}}")


class Aggregate(StrEnum):
    """The result of the visible rows. ``ratio`` is the mean of numbers or of false and true with a prior."""

    LATEST = "latest"
    FIRST = "first"
    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    RATIO = "ratio"
    LAST = "last"
    AGES = "ages"
    DECAYED = "decayed"
    DISTINCT = "distinct"


def joined_name(table: str, aggregate: Aggregate, digest: str) -> str:
    """The name of a column that is joined from ``table`` by a definition with this digest."""
    return f"@{table}.{aggregate}#{digest[:_DIGITS]}"


def is_joined(column_name: str) -> bool:
    """Whether a name is that of a joined column: ``@TABLE.AGGREGATE#`` and 16 hexadecimal digits."""
    found = _COLUMN.fullmatch(column_name)
    return found is not None and is_name(found.group(1)) and found.group(2) in set(Aggregate)
