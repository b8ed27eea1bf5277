"""Random components over hostile values; canonical form must not change a bit of their output."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.transforms.adversarial import (
    COMPUTABLE,
    FLOATS,
    INT64S,
    NASTY_TEXT,
    acceptable_types,
    arrow_column,
    operation,
)
from tests.transforms.odd_nans import with_odd_nans
from tests.transforms.operators.parameters import ALIGNED, params_of
from transforms.errors import InputError
from transforms.graphs.graph import Literal, Node, RawColumn
from transforms.operators import REGISTRY, Law, Operator
from transforms.operators.declaration import Arg
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

ROWS = 24
_ITEMS: dict[DType, Sequence[Any]] = {
    DType.BOOL: [True, False, True],
    DType.INT64: INT64S,
    DType.FLOAT32: [0.0, -0.0, math.nan, 1.5, math.nan, 1e-45, -1e-40, math.inf, -math.inf, 3.4e38],
    DType.FLOAT64: [*FLOATS, math.nan],
    DType.STRING: NASTY_TEXT,
    DType.TIMESTAMP: [0, -1, 1_763_717_486_123_456, 2**53 + 1],
}
_TYPES: tuple[ColumnType, ...] = (
    *(Dense(dtype) for dtype in DType for _ in range(2)),
    *(Ragged(dtype) for dtype in DType for _ in range(2)),
    Weighted(DType.STRING),
    Weighted(DType.INT64),
    Vector(DType.FLOAT32, 3),
)
COLUMNS: tuple[RawColumn, ...] = tuple(RawColumn(at, f"c{i}") for i, at in enumerate(_TYPES))
LITERALS: tuple[Literal, ...] = tuple(
    Literal(Dense(dtype), value)
    for dtype, values in {
        DType.BOOL: [True, False],
        DType.INT64: [0, -1, 2**63 - 1, -(2**63), 2**53 + 1],
        DType.FLOAT32: [0.1, -0.0, math.nan, 0.0],
        DType.FLOAT64: [0.1, -0.0, math.nan, math.inf, 5e-324],
        DType.STRING: ["", "a", "a|b c", "7"],
    }.items()
    for value in values
)
#: Operators that rules are about, drawn more often than the others.
_REWRITTEN = [
    operator for operator in COMPUTABLE if operator.laws or operator.name in ("cast", "concat", "unique", "head")
]
_OTHERS = [
    operator
    for operator in COMPUTABLE
    if operator.name not in {*ALIGNED, "python_function", "tensorflow_graph", "vocabulary_lookup", "cross"}
]


def batch() -> pa.Table:
    """Every column, with nulls, NaNs with payloads, both zeros, the ends of int64, empty text and empty lists."""
    return pa.table(
        {
            column.name: with_odd_nans(arrow_column(_values(column.type, i), column.type))
            for i, column in enumerate(COLUMNS)
        }
    )


def _values(column_type: ColumnType, seed: int) -> list[Any]:
    source = itertools.cycle(_ITEMS[column_type.dtype][seed % 3 :] or _ITEMS[column_type.dtype])
    rows: list[Any] = []
    for row in range(ROWS):
        match column_type:
            case Dense():
                rows.append(None if (row + seed) % 5 == 0 else next(source))
            case Vector(size=size):
                rows.append([next(source) for _ in range(size)])
            case Weighted():
                rows.append([(next(source), [math.nan, -0.0, 1.5][i % 3]) for i in range((row + seed) % 4)])
            case _:
                rows.append([next(source) for _ in range((row + seed) % 4)])
    return rows


@st.composite
def components(draw: st.DrawFn, steps: int = 8) -> Node:
    """A component of a few operations, many of which rules apply to."""
    pool: list[Node] = [*COLUMNS, *LITERALS]
    made: list[Node] = []
    for _ in range(draw(st.integers(1, steps))):
        if draw(st.integers(0, 3)) == 0:
            found = draw(st.sampled_from(identities_of(draw(st.sampled_from(made or COLUMNS)))))
        else:
            operator = draw(st.sampled_from(_REWRITTEN) | st.sampled_from(_OTHERS))
            found = _applied(draw, operator, pool + made * 6)
        if found is not None:
            made.append(found)
    return made[-1] if made else draw(st.sampled_from(COLUMNS))


def identities_of(node: Node) -> list[Node | None]:
    """Operations that should give the node's values as they are."""
    found: list[Node | None] = []
    for name in ("cast", "concat", "coalesce", "minimum", "maximum", "and", "or"):
        params = {"dtype": node.type.dtype.value} if name == "cast" else {}
        try:
            found.append(operation(name, [node], params))
            found.append(operation(name, [node, node], params))
        except InputError:  # not for this type
            continue
    return found or [None]


def _applied(draw: st.DrawFn, operator: Operator, pool: Sequence[Node]) -> Node | None:
    params = draw(params_of(operator.name))
    args = operator.args
    if args[-1].variadic:
        args = args + args[-1:] * draw(st.integers(0, 2))
    operands: list[Node] = []
    for arg in args:
        fitting = [node for node in pool if _takes(operator, arg, node.type)]
        if not fitting:
            return None
        operands.append(draw(st.sampled_from(fitting)))
    try:
        return operation(operator.name, operands, params)
    except InputError:  # these types, or these parameters, do not go together
        return None


def _takes(operator: Operator, arg: Arg, column_type: ColumnType) -> bool:
    lists = operator.lifts and isinstance(column_type, Ragged) and arg.takes(Dense(column_type.dtype))
    return arg.takes(column_type) or lists


ASSOCIATIVE = [operator for operator in REGISTRY if Law.ASSOCIATIVE in operator.laws]


@st.composite
def spellings(draw: st.DrawFn) -> tuple[Node, Node]:
    """One associative operation written twice: other brackets, and another order and repetitions where laws allow them."""
    operator = draw(st.sampled_from(ASSOCIATIVE))
    params = draw(params_of(operator.name))
    (at,) = draw(st.sampled_from([types for types in acceptable_types(operator, params) if len(types) == 1]))
    family = [at.dtype] if at.dtype not in (DType.INT64, DType.FLOAT64) else [DType.INT64, DType.FLOAT64]
    alike = type(at) is not Dense
    pool = [
        node
        for node in (*COLUMNS, *LITERALS)
        if type(node.type) is type(at) and node.type.dtype in ([at.dtype] if alike else family)
    ]
    leaves = draw(st.lists(st.sampled_from(pool), min_size=2, max_size=7))
    other = list(leaves)
    if Law.IDEMPOTENT_ARGUMENTS in operator.laws:
        other += draw(st.lists(st.sampled_from(leaves), max_size=3))
    if Law.COMMUTATIVE in operator.laws:
        other = draw(st.permutations(other))
    return _bracketed(draw, operator, leaves, params), _bracketed(draw, operator, other, params)


def _bracketed(draw: st.DrawFn, operator: Operator, leaves: Sequence[Node], params: dict[str, Any]) -> Node:
    parts = list(leaves)
    while len(parts) > 1:
        first = draw(st.integers(0, len(parts) - 2))
        last = draw(st.integers(first + 2, len(parts)))
        parts[first:last] = [operation(operator.name, parts[first:last], params)]
    return parts[0]
