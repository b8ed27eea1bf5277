"""Changing the element type. A value without a counterpart in the new type becomes null.

========== ============= ==========================================================================================
from       to            rule
========== ============= ==========================================================================================
bool       number        0 or 1
number     bool          whether it differs from 0; NaN does
int64      float         the nearest float64, then the nearest of the result type
float      int64         the fraction is cut off; NaN and what int64 cannot hold become null
int64      string        decimal
string     int64         an optional sign and decimal digits, nothing else; other text and what does not fit becomes null.
                         Of components submitted before ``to_number`` was there, which ``text.cast(...)`` is now
timestamp  int64         microseconds since the epoch, and back
========== ============= ==========================================================================================
"""

from __future__ import annotations

import math
import re

from transforms.errors import TypeMismatch
from transforms.operators.declaration import Arg, Example, Imported, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import ANY, INT64_MAX, INT64_MIN
from transforms.types import ColumnType, Dense, DType

_NUMBERS = frozenset({DType.BOOL, DType.INT64, DType.FLOAT32, DType.FLOAT64})
_ALLOWED: dict[DType, frozenset[DType]] = {
    DType.BOOL: _NUMBERS,
    DType.INT64: _NUMBERS | {DType.STRING, DType.TIMESTAMP},
    DType.FLOAT32: _NUMBERS,
    DType.FLOAT64: _NUMBERS,
    DType.STRING: frozenset({DType.INT64, DType.STRING}),
    DType.TIMESTAMP: frozenset({DType.INT64, DType.TIMESTAMP}),
}
_INTEGER = re.compile("[+-]?[0-9]+")


def _cast(value: Scalar, *, dtype: str) -> Scalar | None:
    match DType(dtype), value:
        case (DType.STRING, str()) | (DType.TIMESTAMP, _):
            return value
        case DType.STRING, _:
            return str(value)
        case DType.BOOL, _:
            return value != 0
        case DType.INT64, str():
            return _in_int64(int(value)) if _INTEGER.fullmatch(value) else None
        case DType.INT64, float():
            return _in_int64(int(value)) if math.isfinite(value) else None
        case DType.INT64, int():
            return int(value)
        case _, int() | float():
            return float(value)
    raise TypeMismatch("cast has no rule for this", value=value)


def _in_int64(value: int) -> int | None:
    return value if INT64_MIN <= value <= INT64_MAX else None


def _cast_type(types: Types, params: Params) -> ColumnType:
    target = DType(str(params["dtype"]))
    if target not in _ALLOWED[types[0].dtype]:
        raise TypeMismatch(f"cast from {types[0].dtype} to {target} has no rule", value=str(types[0]),
                           allowed=", ".join(sorted(_ALLOWED[types[0].dtype])))  # fmt: skip
    kept = getattr(types[0], "buckets", None) if target is DType.INT64 else None
    return Dense(target, kept)


def _element_type(value: Scalar) -> str:
    return "" if value in set(DType) else ", ".join(DType)


CAST = Operator(
    name="cast",
    version=1,
    family="numeric",
    summary="The same value as another element type; what has none there becomes null. Float results are NaN in one way only.",
    args=(Arg("values", dense=ANY),),
    result=_cast_type,
    reference=_cast,
    kernel=Imported("transforms.kernels.casting", "cast"),
    params=(Param("dtype", str, check=_element_type, doc="bool, int64, float32, float64, string or timestamp"),),
    cost_ns=5,
    lifts=True,
    twin=Imported("transforms.twins.casting", "cast"),
    example=Example(
        'hr.float64("age").cast("int64")', {"age": [42.9, -7.5, math.nan, 1e300, None]}, [42, -7, None, None, None]
    ),
)

OPERATORS = (CAST,)
