"""Keys of joins: their values in both tables, and buckets of them, so that the rows of one bucket fit in memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.errors import DataError
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import Expr
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Node, component_from_document
from transforms.joins.definition import KeyPair
from transforms.joins.keys import number_keys
from transforms.types import DType

#: The hashes that keys may have.
HASHES = 2**32


class Keys:
    """The keys of joined columns, in order."""

    def __init__(self, pairs: Sequence[KeyPair]) -> None:
        self._own = [component_from_document(dict(pair.own)) for pair in pairs]
        self._other = [component_from_document(dict(pair.other)) for pair in pairs]

    def of_events(self, events: pa.Table) -> list[pa.Array]:
        """The values of each key for each event."""
        return _values(self._own, events)

    def of_rows(self, rows: pa.Table) -> list[pa.Array]:
        """The values of each key for each row of the other table."""
        return _values(self._other, rows)

    def buckets_of_events(self, events: pa.Table, count: int) -> Array:
        """A bucket of each event: those with equal keys have one, and so have rows with these keys."""
        return _buckets(self._own, events, count)

    def buckets_of_rows(self, rows: pa.Table, count: int) -> Array:
        """The bucket of each row of the other table."""
        return _buckets(self._other, rows, count)

    def hashes_of_events(self, events: pa.Table) -> Array:
        """A hash of the key of each event, uint32: those with equal keys have one, and so have rows with these keys."""
        return _buckets(self._own, events, HASHES).astype(np.uint32)

    def hashes_of_rows(self, rows: pa.Table) -> Array:
        """The hash of each row of the other table, uint32."""
        return _buckets(self._other, rows, HASHES).astype(np.uint32)

    @property
    def names(self) -> tuple[str, str]:
        """What hashes of events, and of rows, are made of."""
        own, other = (digest([node.identity for node in nodes]) for nodes in (self._own, self._other))
        return own, other


def are_among(keys: Sequence[pa.Array], others: Sequence[pa.Array]) -> Array:
    """Whether the keys of each place, which must not be null, are those of some place of ``others``."""
    found: Array = number_keys(others, keys).events >= 0
    return found


def _buckets(nodes: Sequence[Node], table: pa.Table, count: int) -> Array:
    hashed = _values([_hashed(node, count) for node in nodes], table)
    found: Array = np.sum([np.asarray(one.fill_null(0)) for one in hashed], axis=0) % count
    return found


def _hashed(node: Node, count: int) -> Node:
    key: Any = Expr(node)
    if key.type.dtype in (DType.BOOL, DType.TIMESTAMP):
        key = key.cast("int64")
    hashed: Node = key.hash_buckets(count).node
    return hashed


def _values(nodes: Sequence[Node], table: pa.Table) -> list[pa.Array]:
    named: Mapping[str, Node] = {str(at): node for at, node in enumerate(nodes)}
    result = compile_plan(named).run(table)
    for failure in result.failures.values():
        raise DataError(
            "a key of a join must be computed for every row", where=f"operator {failure.operator}", value=failure.error
        )
    return [result.columns[name] for name in named]
