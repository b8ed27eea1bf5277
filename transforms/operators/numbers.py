"""Operators over one number, and the least and greatest of several.

Floats are computed in float64 and rounded once to the result type. A float result that is NaN is always the one
quiet NaN, so that memos are equal bit for bit on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param, Scalar
from transforms.operators.elementary import PERIOD_MIN, log, log1p, sine_of_period
from transforms.operators.signatures import NUMERIC, float_or_float64, promoted, same_dtype, wrap_int64

_KERNELS = "transforms.kernels.numbers"
_ELEMENTARY = "transforms.kernels.elementary"
_TWINS = "transforms.twins.numbers"
_NUMBER = Arg("number", dense=NUMERIC)
_FLOAT_RESULT = "float32 stays float32, all else gives float64."

Number = int | float


def _sqrt(x: Number) -> float:
    return math.sqrt(float(x)) if x >= 0 else math.nan


def _sign_log(x: Number) -> float:
    return math.copysign(log1p(abs(float(x))), x)


def _absolute(x: Number) -> Number:
    return wrap_int64(abs(x)) if isinstance(x, int) else abs(x)


def _floor(x: Number) -> Number:
    return x if isinstance(x, int) or not math.isfinite(x) else math.copysign(float(math.floor(x)), x)


def _ceil(x: Number) -> Number:
    return x if isinstance(x, int) or not math.isfinite(x) else math.copysign(float(math.ceil(x)), x)


def _in_order(numbers: Sequence[Number]) -> list[Number]:
    """By value, -0.0 before 0.0; floats if any is one."""
    whole = all(isinstance(number, int) for number in numbers)
    return sorted(numbers if whole else map(float, numbers), key=lambda x: (x, math.copysign(1.0, x)))


def _minimum(*numbers: Number) -> Number:
    return math.nan if any(math.isnan(number) for number in numbers) else _in_order(numbers)[0]


def _maximum(*numbers: Number) -> Number:
    return math.nan if any(math.isnan(number) for number in numbers) else _in_order(numbers)[-1]


def _period(value: Scalar) -> str:
    good = isinstance(value, float) and PERIOD_MIN <= value <= 1 / PERIOD_MIN
    return "" if good else "a number from 2**-256 to 2**256"


_PERIOD = Param("period", float, check=_period, doc="the period, in the unit of x")


def _of_float(
    name: str,
    summary: str,
    reference: Callable[..., float],
    gives: Sequence[float | None],
    cost_ns: float,
    x: Sequence[float | None] = (0.0, 1.5, None),
    arguments: str = "",
    params: tuple[Param, ...] = (),
) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="numeric",
        summary=f"{summary} {_FLOAT_RESULT}",
        args=(_NUMBER,),
        result=float_or_float64,
        reference=reference,
        kernel=Imported(_ELEMENTARY, name),
        params=params,
        cost_ns=cost_ns,
        lifts=True,
        twin=Imported(_TWINS, name),
        example=Example(f'hr.float64("x").{name}({arguments})', {"x": x}, gives),
    )


def _of_number(
    name: str,
    summary: str,
    reference: Callable[[Number], Number],
    function: str,
    example: tuple[Sequence[float | None], Sequence[float | None]],
) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="numeric",
        summary=summary,
        args=(_NUMBER,),
        result=same_dtype,
        reference=reference,
        kernel=Imported(_KERNELS, function),
        laws=frozenset({Law.IDEMPOTENT}),
        cost_ns=2,
        lifts=True,
        twin=Imported(_TWINS, function),
        example=Example(f'hr.float64("x").{name}()', {"x": example[0]}, example[1]),
    )


def _of_several(
    name: str,
    word: str,
    reference: Callable[..., Number],
    example: tuple[Mapping[str, Sequence[object]], Sequence[object]],
) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="numeric",
        summary=f"The {word} of the numbers; NaN if one of them is NaN. -0.0 is less than 0.0. Mixed numbers meet in float64.",
        args=(Arg("numbers", dense=NUMERIC, variadic=True),),
        result=promoted,
        reference=reference,
        kernel=Imported(_KERNELS, name),
        laws=frozenset({Law.COMMUTATIVE, Law.ASSOCIATIVE, Law.IDEMPOTENT_ARGUMENTS}),
        cost_ns=3,
        lifts=True,
        twin=Imported(_TWINS, name),
        example=Example(f'hr.{name}(hr.int64("a"), hr.int64("b"))', *example),
    )


LOG1P = _of_float(
    "log1p", "ln(1 + x). -1 gives -inf, below is NaN.", lambda x: log1p(float(x)),
    [0.0, 0.9162907318741551, None], 3,
)  # fmt: skip

LOG = _of_float(
    "log", "ln x. 0 gives -inf, below is NaN.", lambda x: log(float(x)),
    [0.0, 0.9162907318741551, None], 3, x=(1.0, 2.5, None),
)  # fmt: skip

SIGN_LOG = _of_float(
    "sign_log", "ln(1 + |x|) with the sign of x: a logarithm for numbers on both sides of zero.", _sign_log,
    [0.0, -0.9162907318741551, None], 3, x=(0.0, -1.5, None),
)  # fmt: skip

SQRT = _of_float(
    "sqrt", "The square root, correctly rounded. Below 0 is NaN.", _sqrt,
    [1.5, 0.0, None], 2, x=(2.25, 0.0, None),
)  # fmt: skip

SIN_PERIODIC = _of_float(
    "sin_periodic", "sin(2 pi x / period), within 2**-50, for periodic values such as hours of a day.",
    lambda x, period: sine_of_period(float(x), period, 0),
    [0.0, 1.0, -1.0, None], 8, x=(0.0, 6.0, 42.0, None), arguments="24", params=(_PERIOD,),
)  # fmt: skip

COS_PERIODIC = _of_float(
    "cos_periodic", "cos(2 pi x / period), within 2**-50; with sin_periodic, the place on the circle.",
    lambda x, period: sine_of_period(float(x), period, 1),
    [1.0, 0.0, -1.0, None], 8, x=(0.0, 6.0, 36.0, None), arguments="24", params=(_PERIOD,),
)  # fmt: skip

ABS = _of_number("abs", "|x|. The least int64 has no positive counterpart and stays.", _absolute, "absolute",
                 ([-1.5, 2.0, None], [1.5, 2.0, None]))  # fmt: skip
FLOOR = _of_number("floor", "The greatest whole number that is not above x, as the same type.", _floor, "floor",
                   ([1.7, -1.2, None], [1.0, -2.0, None]))  # fmt: skip
CEIL = _of_number("ceil", "The least whole number that is not below x, as the same type.", _ceil, "ceil",
                  ([1.2, -1.7, None], [2.0, -1.0, None]))  # fmt: skip

_PAIRS: Mapping[str, Sequence[object]] = {"a": [1, 5, None], "b": [3, 2, 4]}
MINIMUM = _of_several("minimum", "least", _minimum, (_PAIRS, [1, 2, None]))
MAXIMUM = _of_several("maximum", "greatest", _maximum, (_PAIRS, [3, 5, None]))

OPERATORS = (LOG1P, LOG, SIGN_LOG, SQRT, SIN_PERIODIC, COS_PERIODIC, ABS, FLOOR, CEIL, MINIMUM, MAXIMUM)
