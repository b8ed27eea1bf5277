"""Column types: the values of an expression per event. :mod:`transforms.columns.arrow_types` has the Arrow layout of each.

``Dense`` is one value per event, ``Ragged`` any number, ``Weighted`` any number of ids, each with a float32 weight,
``Vector`` a fixed number. An integer type may have ``buckets``: every value lies in ``[0, buckets)``, the size of an
embedding table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from transforms.documents import document_part
from transforms.errors import InputError


class DType(StrEnum):
    """The element types. Their values are their names in documents, fingerprints and schema files."""

    BOOL = "bool"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    STRING = "string"
    TIMESTAMP = "timestamp"

    @property
    def is_numeric(self) -> bool:
        """Whether it is int64, float32 or float64."""
        return self in _NUMERIC


_DTYPES = frozenset(DType)
_NUMERIC = frozenset({DType.INT64, DType.FLOAT32, DType.FLOAT64})


def _element(dtype: DType | str) -> DType:
    """An element type, also by its name. Raises :class:`InputError`."""
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise InputError("unknown element type", value=dtype, allowed=", ".join(DType))
    return DType(dtype)


def _check_buckets(dtype: DType, buckets: int | None) -> None:
    if buckets is None:
        return
    if dtype is not DType.INT64 or type(buckets) is not int or not 1 <= buckets < 2**63:
        raise InputError(
            "buckets must be at least 1, and only of int64 ids",
            value=(str(dtype), buckets),
            allowed="int64 with 1 .. 2**63 - 1 buckets",
        )


@dataclass(frozen=True, slots=True)
class _Elements:
    """Elements of one type; ``buckets`` is the number of ids."""

    dtype: DType
    buckets: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _element(self.dtype))
        _check_buckets(self.dtype, self.buckets)

    def __str__(self) -> str:
        return _spell(type(self).__name__, self.dtype, self.buckets)


@dataclass(frozen=True, slots=True)
class Dense(_Elements):
    """One value per event, which may be null. Arrow: the element type itself.

    >>> text("query").type == Dense("string")
    True
    """


@dataclass(frozen=True, slots=True)
class Ragged(_Elements):
    """Any number of values per event; null is the empty list, and no item is null. Arrow: ``list<element>``.

    >>> text("query").unigrams().hash_buckets(100).type == Ragged("int64", 100)
    True
    """


@dataclass(frozen=True, slots=True)
class Weighted(_Elements):
    """Any number of (id, float32 weight) pairs per event. Arrow: ``list<struct<id, weight: float32>>``.

    >>> print(weighted("interests", "int64").type)
    Weighted[int64]
    """


@dataclass(frozen=True, slots=True)
class Vector:
    """Exactly ``size`` values per event. Arrow: ``fixed_size_list<element, size>``.

    >>> vector("picture", "float32", 64).type == Vector("float32", 64)
    True
    """

    dtype: DType
    size: int
    buckets: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _element(self.dtype))
        _check_buckets(self.dtype, self.buckets)
        if type(self.size) is not int or not 1 <= self.size < 2**31:
            raise InputError(
                "the size of a vector must be at least 1", value=self.size, allowed="1 .. 2**31 - 1 values"
            )

    def __str__(self) -> str:
        return f"Vector[{self.dtype}, {self.size}" + ("]" if self.buckets is None else f", buckets={self.buckets}]")


ColumnType = Dense | Ragged | Weighted | Vector


def _spell(kind: str, dtype: DType, buckets: int | None) -> str:
    return f"{kind}[{dtype}]" if buckets is None else f"{kind}[{dtype}, buckets={buckets}]"


def type_document(column_type: ColumnType) -> dict[str, object]:
    """``column_type`` as a JSON object, the inverse of :func:`type_from_document`."""
    document: dict[str, object] = {
        "kind": type(column_type).__name__.lower(),
        "dtype": column_type.dtype.value,
    }
    if isinstance(column_type, Vector):
        document["size"] = column_type.size
    if column_type.buckets is not None:
        document["buckets"] = column_type.buckets
    return document


_KINDS: dict[str, type[Dense] | type[Ragged] | type[Weighted]] = {
    "dense": Dense,
    "ragged": Ragged,
    "weighted": Weighted,
}
#: Arrow counts the values of a vector in 32 bits.
_LARGEST_VECTOR = 2**31 - 1
_MOST_BUCKETS = 2**63 - 1


def type_from_document(document: object) -> ColumnType:
    """The type that a document or a part of one describes. Raises :class:`~transforms.errors.DataError`."""
    part = document_part(document, "column type")
    spelled = part.value
    if isinstance(spelled, dict) and len(spelled) == 2:
        kind, dtype = spelled.get("kind"), spelled.get("dtype")
        if type(kind) is str and type(dtype) is str and kind in _KINDS and dtype in _DTYPES:
            return _plain(kind, dtype)
    is_vector = isinstance(spelled, Mapping) and spelled.get("kind") == "vector"
    part.fields(("kind", "dtype", "size") if is_vector else ("kind", "dtype"), ("buckets",))
    kind = part.at("kind").one_of((*_KINDS, "vector"))
    dtype = part.at("dtype").one_of(tuple(DType))
    buckets = None
    if part.has("buckets") and part.at("buckets").value is not None:
        buckets = part.at("buckets").integer(1, _MOST_BUCKETS)
        if dtype != DType.INT64:
            raise part.at("buckets").refused("absent: only int64 has buckets")
    if kind == "vector":
        return Vector(DType(dtype), part.at("size").integer(1, _LARGEST_VECTOR), buckets)
    return _plain(kind, dtype) if buckets is None else _KINDS[kind](DType(dtype), buckets)


@lru_cache(maxsize=64)
def _plain(kind: str, dtype: str) -> ColumnType:
    return _KINDS[kind](DType(dtype))
