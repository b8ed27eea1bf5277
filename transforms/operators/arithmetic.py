"""Arithmetic on two numbers, and comparisons.

Numbers of different types meet in float64; two int64 or two float32 stay what they are, except that ``divide`` always
gives a float. int64 wraps around at 64 bits. Floats follow IEEE 754: 1/0 is inf, 0/0 is NaN, and nothing raises.
Comparisons with a NaN are false, except ``not_equal``, which is true; text is compared by its UTF-8 bytes, which is
code point order. An int64 is compared with a float as float64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Params, Types
from transforms.operators.signatures import ANY, NUMERIC, promote, promoted, wrap_int64
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.arithmetic"
_OPERANDS = (Arg("left", dense=NUMERIC), Arg("right", dense=NUMERIC))
_COMPARED = (Arg("left", dense=ANY), Arg("right", dense=ANY))

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


def _compare(test: Callable[[object, object], bool]) -> Callable[[object, object], bool]:
    def reference(left: object, right: object) -> bool:
        if isinstance(left, float) or isinstance(right, float):
            return test(float(left), float(right))  # type: ignore[arg-type]
        return test(left, right)

    return reference


def _quotient(types: Types, params: Params) -> ColumnType:
    dtype = promote(types)
    return Dense(DType.FLOAT64 if dtype is DType.INT64 else dtype)


def _truth(types: Types, params: Params) -> ColumnType:
    promote(types)
    return Dense(DType.BOOL)


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


def _comparison(
    name: str, symbol: str, test: Callable[..., bool], gives: Sequence[bool | None], *laws: Law
) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="comparison",
        summary=f"Whether left {symbol} right. Beside a timestamp, a date, a datetime or its text is a moment in UTC.",
        args=_COMPARED,
        result=_truth,
        reference=_compare(test),
        kernel=Imported("transforms.kernels.comparison", name),
        laws=frozenset(laws),
        cost_ns=3,
        lifts=True,
        twin=Imported("transforms.twins.comparisons", name),
        example=Example(f'hr.int64("age") {symbol} 18', {"age": [7, 18, 40, None]}, gives),
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
    _comparison("equal", "==", operator.eq, [False, True, False, None], Law.COMMUTATIVE),
    _comparison("not_equal", "!=", operator.ne, [True, False, True, None], Law.COMMUTATIVE),
    _comparison("less", "<", operator.lt, [True, False, False, None]),
    _comparison("less_equal", "<=", operator.le, [True, True, False, None]),
    _comparison("greater", ">", operator.gt, [False, False, True, None]),
    _comparison("greater_equal", ">=", operator.ge, [False, True, True, None]),
)
