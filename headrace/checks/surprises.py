"""Warnings about an input's values, from its statistics and its type. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headrace.checks.statistics import Statistics
from transforms.graphs.graph import Node, Operation, topological
from transforms.types import ColumnType, Ragged, Weighted

Code = Literal["no_rows", "all_null", "mostly_null", "constant", "not_finite", "concentrated", "collisions", "null_label",
               "wrong_label", "untrainable", "early_label", "late_rows", "falls_with_delay"]  # fmt: skip

#: Shares from which a warning is given.
MOSTLY_NULL, CONCENTRATED, COLLIDING = 0.95, 0.9, 0.1
#: With fewer buckets one of them may hold most ids without a warning.
_FEW_BUCKETS = 10
_FEW_ROWS = 2


@dataclass(frozen=True, slots=True)
class Surprise:
    """A warning: its code, and a sentence with figures."""

    code: Code
    text: str


def surprises_of(found: Statistics, column_type: ColumnType, component: Node) -> tuple[Surprise, ...]:
    """The warnings about an input."""
    if found.rows == 0:
        return (Surprise("no_rows", "the sample holds no row"),)
    is_list = isinstance(column_type, Ragged | Weighted)
    if found.empty == found.rows:
        return (Surprise("all_null", "every list is empty" if is_list else "every value is null"),)
    surprises = []
    share = found.empty / found.rows
    if share >= MOSTLY_NULL:
        what = "lists are empty" if is_list else "values are null"
        surprises.append(Surprise("mostly_null", f"{_percent(share)} of {what}"))
    if found.distinct == 1 and found.rows >= _FEW_ROWS and found.empty == 0:
        surprises.append(Surprise("constant", f"every value is {found.top}"))
    if found.not_finite:
        what = "weights" if isinstance(column_type, Weighted) else "values"
        surprises.append(Surprise("not_finite", f"{found.not_finite:,} {what} are NaN or infinite, which training refuses: "
                                                ".fill_nan(0.0) and .clip(low, high) replace them"))  # fmt: skip
    return (*surprises, *_of_ids(found, column_type, component))


def surprises_of_label(found: Statistics) -> tuple[Surprise, ...]:
    """The warnings about a label."""
    if found.rows == 0:
        return (Surprise("no_rows", "the sample holds no row"),)
    surprises = []
    if found.empty:
        surprises.append(Surprise("null_label", f"{_percent(found.empty / found.rows)} of labels are null"))
    if found.distinct == 1:
        surprises.append(Surprise("constant", f"every label is {found.top}: there is nothing to learn in this sample"))
    return tuple(surprises)


def _of_ids(found: Statistics, column_type: ColumnType, component: Node) -> tuple[Surprise, ...]:
    buckets = column_type.buckets
    if buckets is None or found.top_share is None or found.distinct < _FEW_ROWS:
        return ()
    surprises = []
    if found.top_share >= CONCENTRATED and buckets >= _FEW_BUCKETS:
        surprises.append(Surprise("concentrated", f"{_percent(found.top_share)} of ids are {found.top}"))
    colliding = colliding_share(found.distinct, buckets)
    if _is_hashed(component, buckets) and colliding >= COLLIDING:
        surprises.append(Surprise("collisions", f"{found.distinct:,} of {buckets:,} buckets hold an id: about "
                                                f"{_percent(colliding)} of distinct values share a bucket; "
                                                "more buckets separate them"))  # fmt: skip
    return tuple(surprises)


def colliding_share(used: int, buckets: int) -> float:
    """The share of distinct values that share a bucket with another, if their hashes use ``used`` buckets.

    ``n`` values use ``buckets * (1 - exp(-n / buckets))`` buckets, which gives ``n``; another value is in the bucket of a
    given one with probability ``1 - exp(-n / buckets)``.
    """
    if used >= buckets:
        return 1.0
    load = -math.log1p(-used / buckets)  # values per bucket, the given one included
    return max(0.0, 1.0 - math.exp(-(load - 1 / buckets)))


def _is_hashed(component: Node, buckets: int) -> bool:
    """Whether the ids come from a hash into ``buckets``, not from counts or a vocabulary."""
    hashing = ("hash_buckets", "cross")
    return any(
        isinstance(node, Operation) and node.op in hashing and dict(node.params).get("buckets") == buckets
        for node in topological([component])
    )


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"
