"""Numbers from text, by the rules of TensorFlow's ``tf.strings.to_number``.

White space around the number means nothing: space, tab, line feed, vertical tab, form feed, carriage return. Then a sign,
or none. An int64 is decimal digits, nothing else, that fit int64. A float is one of

- decimal digits with or without a point, and an exponent or none: ``12``, ``.5``, ``1.``, ``1e-3``;
- hexadecimal digits after ``0x``, with or without a point, and a power of two or none: ``0x1F``, ``0x1.8p3``;
- ``inf``, ``infinity``, ``nan``, ``nan(...)`` in any case.

It is rounded once, to the nearest of the type, ties to even: beyond the largest is inf, below the least is zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from transforms.operators.declaration import Arg, Example, Imported, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import INT64_MAX, INT64_MIN, TEXT
from transforms.types import ColumnType, Dense, DType

#: What a number's text may be, for Python's and for RE2's expressions alike.
WHOLE = "[+-]?[0-9]+"
DECIMAL = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
HEXADECIMAL = r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
NAMED = r"[+-]?(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN](?:\([0-9a-zA-Z_]*\))?)"
#: The white space that a number may have around it.
SPACES = " \t\n\v\f\r"

TARGETS = (DType.INT64, DType.FLOAT32, DType.FLOAT64)
#: Of an int64, without leading zeros.
_MOST_DIGITS = len(str(INT64_MAX))
#: Halfway between the largest float32 and 2**128, which would be the next one.
_LARGEST_TIE = 2.0**128 - 2.0**103
_WHOLE, _DECIMAL, _HEXADECIMAL, _NAMED = map(re.compile, (WHOLE, DECIMAL, HEXADECIMAL, NAMED))


def _to_number(text: str, *, dtype: str) -> int | float | None:
    text = text.strip(SPACES)
    if DType(dtype) is DType.INT64:
        return _whole(text) if _WHOLE.fullmatch(text) else None
    return float_of(text, single=DType(dtype) is DType.FLOAT32)


def _whole(text: str) -> int | None:
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    value = int(digits or "0") * (-1 if text[0] == "-" else 1)
    return value if INT64_MIN <= value <= INT64_MAX else None


def float_of(text: str, *, single: bool) -> float | None:
    """The float that a text without white space around it writes, rounded once; None if it writes none.

    With ``single`` it is a float32 as a float64.
    """
    if _DECIMAL.fullmatch(text):
        nearest = float(text)
        return _as_single(nearest, lambda: Fraction(Decimal(text))) if single else nearest
    if _HEXADECIMAL.fullmatch(text):
        nearest = _from_hexadecimal(text)
        return _as_single(nearest, lambda: _exact_hexadecimal(text)) if single else nearest
    if not _NAMED.fullmatch(text):
        return None
    if text.lstrip("+-")[0].lower() == "n":
        return math.nan
    return -math.inf if text[0] == "-" else math.inf


def _from_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text[0] == "-" else math.inf


def _exact_hexadecimal(text: str) -> Fraction:
    digits, _, power = text.lower().partition("p")
    whole, _, rest = digits.replace("0x", "", 1).partition(".")
    return Fraction(int(whole + rest, 16)) * Fraction(2) ** (int(power or 0) - 4 * len(rest))


def _as_single(nearest: float, exact: Callable[[], Fraction]) -> float:
    """The float32 nearest to the exact number, whose nearest float64 is known.

    Where that float64 lies halfway between two float32 and the exact number does not, it is moved to the right side.
    """
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        if _is_tie(nearest):
            off = exact() - Fraction(nearest)
            nearest = math.nextafter(nearest, math.copysign(math.inf, off)) if off else nearest
        return float(np.float32(nearest))


def _is_tie(x: float) -> bool:
    """Whether a float64 lies halfway between two float32, or between the largest and what is beyond it."""
    import numpy as np

    single = np.float32(x)
    if not math.isfinite(x) or x == float(single):
        return False
    if np.isinf(single):
        return abs(x) == _LARGEST_TIE
    other = np.nextafter(single, np.float32(math.copysign(math.inf, x - float(single))))
    return x == (float(single) + float(other)) / 2 or abs(x) == _LARGEST_TIE


def _to_number_type(types: Types, params: Params) -> ColumnType:
    return Dense(DType(str(params["dtype"])))


def _target(value: Scalar) -> str:
    return "" if value in set(TARGETS) else ", ".join(TARGETS)


TO_NUMBER = Operator(
    name="to_number",
    version=1,
    family="numeric",
    summary="The number that a text writes, by the rules of TensorFlow's string_to_number; null where it writes none, "
    "and an item of a list that writes none is left out. White space around it means nothing. An int64 is decimal digits; "
    "a float may have a point, an exponent, 0x, inf or nan, and is rounded once. text.cast(dtype) is this operator.",
    args=(Arg("texts", dense=TEXT),),
    result=_to_number_type,
    reference=_to_number,
    kernel=Imported("transforms.kernels.number_text", "to_number"),
    params=(Param("dtype", str, check=_target, doc="int64, float32 or float64"),),
    cost_ns=25,
    lifts=True,
    twin=Imported("transforms.twins.number_text", "to_number"),
    example=Example(
        'hr.text("price").cast("float64")',
        {"price": ["12.50", " 7 ", "1e-3", "cheap", "", None]},
        [12.5, 7.0, 0.001, None, None, None],
    ),
)

OPERATORS = (TO_NUMBER,)
