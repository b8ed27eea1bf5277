"""Difficult columns for kernels, and operators over them as Arrow arrays."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from transforms.columns.arrow_types import arrow_type
from transforms.columns.columns import NUMPY_ELEMENT
from transforms.errors import TypeMismatch
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import Artifact, Node, Operation, RawColumn
from transforms.operators import REGISTRY, Operator
from transforms.operators.full_pass import FULL_PASS
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

#: The operators that have a meaning of their own; a full-pass operator stands for another one.
COMPUTABLE = [operator for operator in REGISTRY if operator.name not in FULL_PASS]

#: Of every vector, and of every artifact.
VECTOR_SIZE = 3

NASTY_TEXT = [
    "", " ", "a", "ab", "AbC dEf", "a\tb\n c", "x  y", " lead trail ", "aaa", "a,b,,c,", ",", "\x00", "a\x00b", "\x1f\x1c",
    "ΑΣ ΣΑΣ", "Σ", "İstanbul", "ẞß", "Å Å", "e\u0301", "ﬁn ﬀ", "Ａｂｃ　ｄ", "你好世界", "搜索 广告", "שלום עולם", "مرحبا",
    "👩‍👩‍👧 x", "𝔘𝔫𝔦", "\u0085a\u00a0b\u1680c\u2003d\u2028e\u202ff\u205fg\u3000h", "\u200bzero\u180ewidth", "\ufdfa", "\U0001e030",
    "12345678", "123456789", "12345678a", "12345678\x00", "0123456789abcdef", "0123456789abcdefg", "x" * 33, "y" * 65, "zé" * 200,
    "7", "-7", "+07", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1e3", "-", " 1",
]  # fmt: skip
INT64S = [0, 1, -1, 7, 10, 2**31, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 10**18, 999_999_999_999]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, math.nan, math.inf, -math.inf, 5e-324, 1e-300, 1e-17, 0.1, -0.3, 0.41, 1e22, 2.0**63,
          -(2.0**63), 9.3e18, 1.7976931348623157e308, 2.0**53, -1.0000000000000002, -0.9999999999999999]  # fmt: skip

ELEMENTS: dict[DType, st.SearchStrategy[Any]] = {
    DType.BOOL: st.booleans(),
    DType.INT64: st.sampled_from(INT64S) | st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1),
    DType.FLOAT32: st.sampled_from([float(np.float32(x)) for x in FLOATS if not math.isfinite(x) or abs(x) < 3e38])
    | st.floats(width=32),
    DType.FLOAT64: st.sampled_from(FLOATS) | st.floats(),
    DType.STRING: st.sampled_from(NASTY_TEXT) | st.text("ab \u00e9\u3000", max_size=12) | st.text(max_size=30),
    DType.TIMESTAMP: st.sampled_from(INT64S) | st.integers(-(10**16), 10**16),
}


def values_of(column_type: ColumnType) -> st.SearchStrategy[Any]:
    """One event's value; a dense one may be None."""
    if isinstance(column_type, Dense):
        return st.none() | ELEMENTS[column_type.dtype]
    if isinstance(column_type, Vector):
        return st.lists(ELEMENTS[column_type.dtype], min_size=column_type.size, max_size=column_type.size)
    if isinstance(column_type, Weighted):
        return st.lists(st.tuples(st.sampled_from(_samples(column_type.dtype)), ELEMENTS[DType.FLOAT32]), max_size=9)
    few = st.lists(ELEMENTS[column_type.dtype], max_size=6)
    repeating = st.lists(st.sampled_from(_samples(column_type.dtype)), min_size=30, max_size=80)
    return few | few | few | repeating


def _samples(dtype: DType) -> list[Any]:
    return {
        DType.STRING: [*NASTY_TEXT[:30], "prefix--a", "prefix--b", "prefix--", "prefix-"],
        DType.INT64: [*INT64S, *range(20)],
        DType.BOOL: [True, False],
        DType.TIMESTAMP: [0, 1, 2, 3],
    }.get(dtype, [0.0, 1.0, -0.0, 3.0])


@st.composite
def argument_types(draw: st.DrawFn, operator: Operator, params: dict[str, Any]) -> tuple[ColumnType, ...]:
    """Argument types that the operator takes together, or a list in place of one of them where it lifts."""
    types = draw(st.sampled_from(acceptable_types(operator, params)))
    lifted = [
        (*types[:i], Ragged(at.dtype), *types[i + 1 :])
        for i, at in enumerate(types)
        if operator.lifts and isinstance(at, Dense)
    ]
    lifted = [others for others in lifted if operator.lifted(others) is not None and _accepts(operator, others, params)]
    return draw(st.sampled_from([types, types, *lifted]))


def acceptable_types(operator: Operator, params: dict[str, Any]) -> list[tuple[ColumnType, ...]]:
    """All combinations of types for one to three arguments that ``infer`` accepts."""
    found: list[tuple[ColumnType, ...]] = []
    everything: list[ColumnType] = [kind(dtype) for kind in (Dense, Ragged, Weighted) for dtype in DType]
    everything += [Vector(dtype, VECTOR_SIZE) for dtype in DType]
    shapes = [()]
    for count in range(1, 4):
        position = min(count, len(operator.args)) - 1
        arg = operator.args[position]
        shapes = [(*shape, column_type) for shape in shapes for column_type in everything if arg.takes(column_type)]
        if count >= len(operator.args) and (count == len(operator.args) or operator.args[-1].variadic):
            found += [shape for shape in shapes if _accepts(operator, shape, params)]
    return found


def _accepts(operator: Operator, types: Sequence[ColumnType], params: dict[str, Any]) -> bool:
    try:
        operator.infer(types, operator.bind_params(params))
    except TypeMismatch:
        return False
    return True


def arrow_column(values: Sequence[Any], column_type: ColumnType) -> pa.Array:
    """Python values as Arrow; timestamps are given as integers of microseconds, weighted items as pairs."""
    target = arrow_type(column_type)
    if isinstance(column_type, Dense):
        return (
            pa.array(values, pa.int64()).cast(target)
            if column_type.dtype is DType.TIMESTAMP
            else pa.array(values, target)
        )
    offsets = np.cumsum([0, *(len(row) for row in values)], dtype=np.int32)
    flat = [item for row in values for item in row]
    if isinstance(column_type, Weighted):
        ids = arrow_column([item for item, _ in flat], Dense(column_type.dtype))
        weights = pa.array([weight for _, weight in flat], pa.float32())
        items = pa.StructArray.from_arrays([ids, weights], fields=list(target.value_type.fields))
    else:
        items = arrow_column(flat, Dense(column_type.dtype))
    if isinstance(column_type, Vector):
        return pa.FixedSizeListArray.from_arrays(items, type=target)
    return pa.ListArray.from_arrays(offsets, items, type=target)


def displaced(array: pa.Array, junk: pa.Array, before: int, after: int) -> pa.Array:
    """The same values as a slice out of a longer array, with other rows around them."""
    around = pa.concat_arrays([junk] * (before + after)) if before + after else junk.slice(0, 0)
    longer = pa.concat_arrays([around.slice(0, before), array, around.slice(0, after)])
    return longer.slice(before, len(array))


def operation(name: str, operands: Sequence[Node], params: dict[str, Any]) -> Operation:
    operator = REGISTRY[name]
    bound = operator.bind_params(params)
    result = operator.infer([node.type for node in operands], bound)
    return Operation(result, name, operator.version, tuple(operands), tuple(sorted(bound.items())))


def columns_for(types: Sequence[ColumnType]) -> list[RawColumn]:
    return [RawColumn(column_type, f"c{i}") for i, column_type in enumerate(types)]


def operands_for(operator: Operator, types: Sequence[ColumnType]) -> list[Node]:
    """A raw column for each argument, or an artifact where the operator takes one."""
    args = [operator.args[min(i, len(operator.args) - 1)] for i in range(len(types))]
    return [
        Artifact(column_type, f"{i:064x}")
        if isinstance(column_type, Vector) and arg.constants
        else RawColumn(column_type, f"c{i}")
        for i, (arg, column_type) in enumerate(zip(args, types, strict=True))
    ]


def computed(root: Node, arrays: Sequence[pa.Array], rows: int, constants: Sequence[Any] = ()) -> pa.Array:
    """The component over columns c0, c1, ...; artifacts hold ``constants``. Raises if it failed."""
    batch = pa.table({f"c{i}": array for i, array in enumerate(arrays)})
    assert batch.num_rows == rows
    result = compile_plan({"it": root}, lambda digest: pa.array(constants)).run(batch)
    assert not result.failures, result.failures
    return result.columns["it"]


def bits(value: Any, column_type: ColumnType) -> Any:
    """A value in a form that is equal only to itself bit for bit: floats as bytes rounded to the type, -0.0 kept."""
    if isinstance(value, tuple):
        return bits(value[0], Dense(column_type.dtype)), bits(value[1], Dense(DType.FLOAT32))
    if isinstance(value, list):
        if isinstance(column_type, Weighted):
            return [bits(item, column_type) for item in value]  # rows are lists, pairs are tuples
        return [bits(item, Dense(column_type.dtype)) for item in value]
    if value is None or column_type.dtype not in (DType.FLOAT32, DType.FLOAT64):
        return value
    with np.errstate(over="ignore"):
        rounded = NUMPY_ELEMENT[column_type.dtype].type(float(value))
    return struct.pack("<d", math.nan) if math.isnan(rounded) else rounded.tobytes()


def python_values(array: pa.Array, column_type: ColumnType) -> list[Any]:
    """Timestamps as integers of microseconds, weighted items as pairs."""
    if isinstance(column_type, Dense):
        return array.cast(pa.int64()).to_pylist() if column_type.dtype is DType.TIMESTAMP else array.to_pylist()
    sizes = (
        array.value_lengths().to_pylist() if not isinstance(column_type, Vector) else [column_type.size] * len(array)
    )
    items = array.flatten()
    if isinstance(column_type, Weighted):
        ids, weights = items.flatten()
        flat = list(zip(python_values(ids, Dense(column_type.dtype)), weights.to_pylist(), strict=True))
    else:
        flat = python_values(items, Dense(column_type.dtype))
    ends = np.cumsum([0, *sizes])
    return [flat[start:end] for start, end in itertools.pairwise(ends)]
