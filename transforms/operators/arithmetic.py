"""Arithmetic on two numbers.

Numbers of different types meet in float64; two int64 or two float32 stay what they are, except that ``divide`` always
gives a float. int64 wraps around at 64 bits. Floats follow IEEE 754: 1/0 is inf, 0/0 is NaN, and nothing raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Params, Types
from transforms.operators.signatures import NUMERIC, promote, promoted, wrap_int64
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.arithmetic"
_OPERANDS = (Arg("left", dense=NUMERIC), Arg("right", dense=NUMERIC))

Number = int | float


def _add(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        return wrap_int64(left + right)
    return float(left) + float(right)


def _subtract(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        return wrap_int64(left - right)
    return float(left) - float(right)


def _multiply(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        return wrap_int64(left * right)
    return float(left) * float(right)


def _divide(left: Number, right: Number) -> float:
    a, b = float(left), float(right)
    if b != 0.0:
        return a / b
    if a == 0.0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _quotient(types: Types, params: Params) -> ColumnType:
    dtype = promote(types)
    return Dense(DType.FLOAT64 if dtype is DType.INT64 else dtype)


def _arithmetic(
    name: str,
    symbol: str,
    summary: str,
    reference: Callable[[Number, Number], Number],
    gives: Sequence[float | None],
    *laws: Law,
) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="arithmetic",
        summary=summary,
        args=_OPERANDS,
        result=_quotient if name == "divide" else promoted,
        reference=reference,
        kernel=Imported(_KERNELS, name),
        laws=frozenset(laws),
        cost_ns=2,
        lifts=True,
        twin=Imported("transforms.twins.arithmetic", name),
        example=Example(
            f'hr.float64("price") {symbol} hr.float64("weight")',
            {"price": [6.0, 1.0, None], "weight": [1.5, 0.0, 2.0]},
            gives,
        ),
    )


OPERATORS = (
    _arithmetic(
        "add",
        "+",
        "left + right. int64 wraps around: 2**63 - 1 and 1 give -2**63.",
        _add,
        [7.5, 1.0, None],
        Law.COMMUTATIVE,
    ),
    _arithmetic(
        "subtract", "-", "left - right. int64 wraps around: -2**63 and 1 give 2**63 - 1.", _subtract, [4.5, 1.0, None]
    ),
    _arithmetic(
        "multiply",
        "*",
        "left * right. int64 wraps around: 2**62 and 2 give -2**63.",
        _multiply,
        [9.0, 0.0, None],
        Law.COMMUTATIVE,
    ),
    _arithmetic("divide", "/", "left / right, always a float.", _divide, [4.0, math.inf, None]),
)
