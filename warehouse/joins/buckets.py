"""Keys of joins in buckets, so that the rows of one bucket fit in memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.errors import DataError
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import Expr
from transforms.graphs.graph import Node, component_from_document
from transforms.joins.definition import KeyPair
from transforms.types import DType


class KeyBuckets:
    """Buckets of the values of keys: those of one value are in one bucket, in both tables; nulls are in some."""

    def __init__(self, keys: Sequence[KeyPair], count: int) -> None:
        self.count = count
        self._own = {str(at): _hashed(pair.own, count) for at, pair in enumerate(keys)}
        self._other = {str(at): _hashed(pair.other, count) for at, pair in enumerate(keys)}

    def of_events(self, events: pa.Table) -> Array:
        """The bucket of each event."""
        return self._of(self._own, events)

    def of_rows(self, rows: pa.Table) -> Array:
        """The bucket of each row of the other table."""
        return self._of(self._other, rows)

    def _of(self, nodes: Mapping[str, Node], table: pa.Table) -> Array:
        result = compile_plan(nodes).run(table)
        for failure in result.failures.values():
            raise DataError(
                "a key of a join must be computed for every row",
                where=f"operator {failure.operator}",
                value=failure.error,
            )
        parts = [np.asarray(column.fill_null(0)) for column in result.columns.values()]
        found: Array = np.sum(parts, axis=0) % self.count
        return found


def _hashed(document: Mapping[str, Any], count: int) -> Node:
    key = Expr(component_from_document(dict(document)))
    if key.type.dtype in (DType.BOOL, DType.TIMESTAMP):
        key = key.cast("int64")
    return key.hash_buckets(count).node
