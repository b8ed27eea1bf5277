"""Comparisons of two values.

Numbers of different types meet in float64. Comparisons with a NaN are false, except ``not_equal``, which is true; text is
compared by its UTF-8 bytes, which is code point order. An int64 is compared with a float as float64.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Params, Types
from transforms.operators.signatures import ANY, promote
from transforms.types import ColumnType, Dense, DType

_COMPARED = (Arg("left", dense=ANY), Arg("right", dense=ANY))


def _compare(test: Callable[[object, object], bool]) -> Callable[[object, object], bool]:
    def reference(left: object, right: object) -> bool:
        if isinstance(left, float) or isinstance(right, float):
            return test(float(left), float(right))  # type: ignore[arg-type]
        return test(left, right)

    return reference


def _truth(types: Types, params: Params) -> ColumnType:
    promote(types)
    return Dense(DType.BOOL)


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
        kernel=Imported("transforms.kernels.comparisons", name),
        laws=frozenset(laws),
        cost_ns=3,
        lifts=True,
        twin=Imported("transforms.twins.comparisons", name),
        example=Example(f'hr.int64("age") {symbol} 18', {"age": [7, 18, 40, None]}, gives),
    )


OPERATORS = (
    _comparison("equal", "==", operator.eq, [False, True, False, None], Law.COMMUTATIVE),
    _comparison("not_equal", "!=", operator.ne, [True, False, True, None], Law.COMMUTATIVE),
    _comparison("less", "<", operator.lt, [True, False, False, None]),
    _comparison("less_equal", "<=", operator.le, [True, True, False, None]),
    _comparison("greater", ">", operator.gt, [False, False, True, None]),
    _comparison("greater_equal", ">=", operator.ge, [False, True, True, None]),
)
