"""Hashing ids into buckets, bit-equal to TensorFlow.

``hash_buckets`` is FarmHash Fingerprint64 of the text's UTF-8 bytes, unsigned modulo ``buckets``: what
``tf.strings.to_hash_bucket_fast`` and tf.Transform's ``hash_strings`` give. Integers are hashed as their decimal text
(``tf.strings.as_string`` first). A ``salt`` is text put before each value: bit-equal to hashing ``salt + value``.

``cross`` is ``tf.sparse.cross_hashed`` with its default key: starting from 0xDECAFCAFFE, each argument's fingerprint is
folded in by FingerprintCat64, in argument order; text enters as its Fingerprint64, an integer as itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from transforms.operators.declaration import Arg, Example, Imported, Operator, Param, Params, Types
from transforms.operators.farmhash import fingerprint64, fingerprint_cat64
from transforms.operators.signatures import HASHABLE, at_least
from transforms.types import ColumnType, Dense, DType, Ragged, Weighted

#: TensorFlow's default key of hashed crosses.
CROSS_KEY = 0xDECAFCAFFE

_KERNELS = "transforms.kernels.hashing"
_VALUES = Arg("values", dense=HASHABLE, ragged=HASHABLE, weighted=HASHABLE)
_BUCKETS = Param("buckets", int, check=at_least(1), doc="ids lie in [0, buckets)")

Hashable = str | int


Pair = tuple[Hashable, float]


def _hash_buckets(values: Hashable | Sequence[Hashable | Pair], *, buckets: int, salt: str) -> object:
    if isinstance(values, str | int):
        return fingerprint64(f"{salt}{values}".encode()) % buckets
    return [_hash_item(value, buckets=buckets, salt=salt) for value in values]


def _hash_item(value: Hashable | Pair, *, buckets: int, salt: str) -> object:
    if isinstance(value, tuple):
        return _hash_buckets(value[0], buckets=buckets, salt=salt), value[1]
    return _hash_buckets(value, buckets=buckets, salt=salt)


def _cross(*values: Hashable | Sequence[Hashable], buckets: int) -> int | list[int]:
    lists = [[value] if isinstance(value, str | int) else value for value in values]
    ids = [_cross_one(row, buckets) for row in itertools.product(*lists)]
    return ids[0] if all(isinstance(value, str | int) for value in values) else ids


def _cross_one(row: Sequence[Hashable], buckets: int) -> int:
    hashed = CROSS_KEY
    for value in row:
        hashed = fingerprint_cat64(hashed, fingerprint64(value.encode()) if isinstance(value, str) else value % 2**64)
    return hashed % buckets


def _hashed(types: Types, params: Params) -> ColumnType:
    buckets = params["buckets"]
    assert isinstance(buckets, int)
    if isinstance(types[0], Weighted):
        return Weighted(DType.INT64, buckets)
    ragged = any(isinstance(column_type, Ragged) for column_type in types)
    return Ragged(DType.INT64, buckets) if ragged else Dense(DType.INT64, buckets)


HASH_BUCKETS = Operator(
    name="hash_buckets",
    version=1,
    family="hash",
    summary="FarmHash Fingerprint64 of salt + value, unsigned modulo buckets; integers are hashed as their decimal text. "
    "Weights stay with their ids.",
    args=(_VALUES,),
    result=_hashed,
    reference=_hash_buckets,
    kernel=Imported(_KERNELS, "hash_buckets"),
    params=(_BUCKETS, Param("salt", str, "", doc="text put before each value, to hash one column in several ways")),
    cost_ns=25,
    twin=Imported("transforms.twins.hashing", "hash_buckets"),
    example=Example('hr.text("city").hash_buckets(1000)', {"city": ["Oslo", "", None]}, [578, 263, None]),
)

CROSS = Operator(
    name="cross",
    version=1,
    family="hash",
    summary="Hashed combinations of one value of each argument, as tf.sparse.cross_hashed; the last argument varies fastest.",
    args=(Arg("first", dense=HASHABLE, ragged=HASHABLE), Arg("rest", dense=HASHABLE, ragged=HASHABLE, variadic=True)),
    result=_hashed,
    reference=_cross,
    kernel=Imported(_KERNELS, "cross"),
    params=(_BUCKETS,),
    cost_ns=60,
    twin=Imported("transforms.twins.hashing", "cross"),
    example=Example(
        'hr.cross(hr.text("query"), hr.int64("hour"), buckets=1000)',
        {"query": ["shoes", "shoes", None], "hour": [7, 23, 7]},
        [340, 35, None],
    ),
)

OPERATORS = (HASH_BUCKETS, CROSS)
