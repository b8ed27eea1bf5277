"""Arithmetic on two numbers, and comparisons.

Numbers of different types meet in float64; two int64 or two float32 stay what they are, except that ``divide`` always
gives a float. int64 wraps around at 64 bits. Floats follow IEEE 754: 1/0 is inf, 0/0 is NaN, and nothing raises.
Comparisons with a NaN are false, except ``not_equal``, which is true; text is compared by its UTF-8 bytes, which is
code point order. An int64 is compared with a float as float64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from transforms.operators.declaration import Arg, KernelAt, Law, Operator, Params, Types
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


def _arithmetic(name: str, summary: str, reference: Callable[[Number, Number], Number], *laws: Law) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="arithmetic",
        summary=summary,
        args=_OPERANDS,
        result=_quotient if name == "divide" else promoted,
        reference=reference,
        kernel=KernelAt(_KERNELS, name),
        laws=frozenset(laws),
        cost_ns=2,
    )


def _comparison(name: str, symbol: str, test: Callable[..., bool], *laws: Law) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="comparison",
        summary=f"Whether left {symbol} right.",
        args=_COMPARED,
        result=_truth,
        reference=_compare(test),
        kernel=KernelAt("transforms.kernels.comparison", name),
        laws=frozenset(laws),
        cost_ns=3,
    )


OPERATORS = (
    _arithmetic("add", "left + right.", _add, Law.COMMUTATIVE),
    _arithmetic("subtract", "left - right.", _subtract),
    _arithmetic("multiply", "left * right.", _multiply, Law.COMMUTATIVE),
    _arithmetic("divide", "left / right, always a float.", _divide),
    _comparison("equal", "==", operator.eq, Law.COMMUTATIVE),
    _comparison("not_equal", "!=", operator.ne, Law.COMMUTATIVE),
    _comparison("less", "<", operator.lt),
    _comparison("less_equal", "<=", operator.le),
    _comparison("greater", ">", operator.gt),
    _comparison("greater_equal", ">=", operator.ge),
)
