"""Missing values: nulls, and NaN, which is a value and not a null."""

from __future__ import annotations

import math

from transforms.errors import TypeMismatch
from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import ANY, always, not_nan, same_dtype
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.conditional"
_TWINS = "transforms.twins.missing"
_VALUES = (Arg("values", dense=ANY),)
_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})

_FILLS: dict[DType, tuple[type, ...]] = {
    DType.BOOL: (bool,),
    DType.INT64: (int,),
    DType.FLOAT32: (int, float),
    DType.FLOAT64: (int, float),
    DType.STRING: (str,),
    DType.TIMESTAMP: (int,),
}


def _fill_null(x: Scalar | None, *, value: Scalar) -> Scalar:
    return value if x is None else x


def _fill_type(types: Types, params: Params) -> ColumnType:
    value, dtype = params["value"], types[0].dtype
    kinds = _FILLS[dtype]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeMismatch(f"fill_null cannot put this value into {types[0]}", value=value,
                           allowed=" or ".join(kind.__name__ for kind in kinds))  # fmt: skip
    buckets = getattr(types[0], "buckets", None)
    inside = buckets is not None and isinstance(value, int) and 0 <= value < buckets
    return Dense(dtype, buckets if inside else None)


FILL_NULL = Operator(
    name="fill_null",
    version=1,
    family="numeric",
    summary="value where there is none. NaN is a value and stays.",
    args=_VALUES,
    result=_fill_type,
    reference=_fill_null,
    kernel=Imported(_KERNELS, "fill_null"),
    params=(Param("value", (bool, int, float, str), doc="of the column's type; microseconds for a timestamp"),),
    laws=frozenset({Law.IDEMPOTENT}),
    nulls="see",
    cost_ns=2,
    twin=Imported(_TWINS, "fill_null"),
    example=Example('hr.float32("price").fill_null(0)', {"price": [1.5, None]}, [1.5, 0.0]),
)

FILL_NAN = Operator(
    name="fill_nan",
    version=1,
    family="numeric",
    summary="value where the number is NaN. Null stays null.",
    args=(Arg("number", dense=_FLOATS),),
    result=same_dtype,
    reference=lambda x, value: value if math.isnan(x) else x,
    kernel=Imported(_KERNELS, "fill_nan"),
    params=(Param("value", float, check=not_nan, doc="rounded to the column's type"),),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=2,
    lifts=True,
    twin=Imported(_TWINS, "fill_nan"),
    example=Example('hr.float64("ratio").fill_nan(0)', {"ratio": [0.5, math.nan, None]}, [0.5, 0.0, None]),
)

IS_NAN = Operator(
    name="is_nan",
    version=1,
    family="numeric",
    summary="Whether the number is NaN.",
    args=(Arg("number", dense=_FLOATS),),
    result=always(Dense(DType.BOOL)),
    reference=math.isnan,
    kernel=Imported(_KERNELS, "is_nan"),
    cost_ns=2,
    lifts=True,
    twin=Imported(_TWINS, "is_nan"),
    example=Example('hr.float64("ratio").is_nan()', {"ratio": [0.5, math.nan, None]}, [False, True, None]),
)

IS_NULL = Operator(
    name="is_null",
    version=1,
    family="numeric",
    summary="Whether there is no value; never null itself.",
    args=_VALUES,
    result=always(Dense(DType.BOOL)),
    reference=lambda x: x is None,
    kernel=Imported(_KERNELS, "is_null"),
    nulls="see",
    cost_ns=1,
    twin=Imported(_TWINS, "is_null"),
    example=Example('hr.text("query").is_null()', {"query": ["shoes", "", None]}, [False, False, True]),
)

MISSING_INDICATOR = Operator(
    name="missing_indicator",
    version=1,
    family="numeric",
    summary="The id 1 where there is no value, 0 where there is one: an input that tells a model what was filled in.",
    args=_VALUES,
    result=always(Dense(DType.INT64, 2)),
    reference=lambda x: int(x is None),
    kernel=Imported(_KERNELS, "missing_indicator"),
    nulls="see",
    cost_ns=1,
    twin=Imported(_TWINS, "missing_indicator"),
    example=Example('hr.float32("price").missing_indicator()', {"price": [1.5, None]}, [0, 1]),
)

OPERATORS = (FILL_NULL, FILL_NAN, IS_NAN, IS_NULL, MISSING_INDICATOR)
