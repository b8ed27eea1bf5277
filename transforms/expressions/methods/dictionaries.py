"""A Python dictionary as parameters of ``lookup``."""

from __future__ import annotations

from collections.abc import Mapping

from transforms.errors import TypeMismatch
from transforms.types import ColumnType, DType

_KINDS = {DType.STRING: str, DType.INT64: int}


def lookup_params(
    column_type: ColumnType, table: Mapping[str, object] | Mapping[int, object], default: object
) -> dict[str, object]:
    """The parameters, sorted by key, so that equal dictionaries are one operation.

    Raises :class:`TypeMismatch` for keys that are not of the column's type and for values of mixed types.
    """
    kind = _KINDS.get(column_type.dtype)
    if kind is None:
        raise TypeMismatch(f"operator lookup does not take {column_type} here", where="argument 1 (values)",
                           value=str(column_type), allowed="Dense[int64 | string]")  # fmt: skip
    if not isinstance(table, Mapping):
        raise TypeMismatch("lookup must be given a dictionary", where="operator lookup", value=table,
                           next_step="give each key its value, as in {'phone': 1, 'tablet': 2}")  # fmt: skip
    for key in table:
        if type(key) is not kind:
            raise TypeMismatch("a key of the dictionary must have the column's type", where="operator lookup", value=key,
                               allowed=f"{kind.__name__}, since the column is {column_type}")  # fmt: skip
    pairs = sorted(((str(key), value) for key, value in table.items()), key=lambda pair: pair[0])
    values = [value for _, value in pairs]
    return {
        "keys": tuple(key for key, _ in pairs),
        "values": tuple(values),
        "dtype": _dtype(values if default is None else [*values, default]).value,
        "default": () if default is None else (default,),
    }


def _dtype(values: list[object]) -> DType:
    kinds = {type(value) for value in values}
    if kinds <= {int}:
        return DType.INT64
    if kinds <= {int, float}:
        return DType.FLOAT64
    if kinds == {str}:
        return DType.STRING
    raise TypeMismatch("the values of a dictionary must have one type", where="operator lookup",
                       value=", ".join(sorted(kind.__name__ for kind in kinds)), allowed="int, float or str")  # fmt: skip
