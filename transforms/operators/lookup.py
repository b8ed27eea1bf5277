"""Looking values up in a dictionary of the model, or in a vocabulary that a full pass found.

Integers are looked up as their decimal text, as they are hashed. A value outside the vocabulary gets one of ``oov_buckets``
ids after the vocabulary's own: FarmHash Fingerprint64, unsigned modulo ``oov_buckets``, which is what
``tf.lookup.StaticVocabularyTable`` and ``tft.apply_vocabulary`` give.
"""

from __future__ import annotations

from collections.abc import Sequence

from transforms.errors import TypeMismatch
from transforms.operators.declaration import Arg, Example, Imported, Operator, Param, Params, Scalar, Types
from transforms.operators.farmhash import fingerprint64
from transforms.operators.signatures import HASHABLE, INT64_MAX, TEXT, at_least
from transforms.types import ColumnType, Dense, DType, Vector, Weighted

_KERNELS, _TWINS = "transforms.kernels.lookup", "transforms.twins.lookup"

#: Integers up to here are whole in a parameter, which holds numbers as float64.
WHOLE_MAX = 2.0**53

Value = str | int


def _lookup(
    value: Value, *, keys: Sequence[str], values: Sequence[float | str], dtype: str, default: Sequence[float | str]
) -> object:
    text = str(value)
    if text not in keys:
        return held(default[0], dtype) if default else None
    return held(values[keys.index(text)], dtype)


def held(value: float | str, dtype: str) -> Scalar:
    """A value of the dictionary as a column of ``dtype`` holds it."""
    return int(value) if dtype == DType.INT64 else value


def _looked_up(types: Types, params: Params) -> ColumnType:
    keys, values, dtype, default = (params[name] for name in ("keys", "values", "dtype", "default"))
    assert isinstance(keys, tuple)
    assert isinstance(values, tuple)
    assert isinstance(default, tuple)
    where = "operator lookup"
    if len(values) != len(keys):
        raise TypeMismatch("a dictionary must have one value per key", where=where, value=(len(keys), len(values)))
    if len(default) > 1:
        raise TypeMismatch("a dictionary must have at most one default", where=where, value=default)
    kind, allowed = (str, "text") if dtype == DType.STRING else (float, "numbers")
    for value in (*values, *default):
        if not isinstance(value, kind):
            raise TypeMismatch(
                "a value of the dictionary must have the dictionary's type", where=where, value=value, allowed=allowed
            )
        if dtype == DType.INT64 and not (float(value).is_integer() and abs(float(value)) <= WHOLE_MAX):
            raise TypeMismatch("a value of the dictionary must be a whole number", where=where, value=value,
                               allowed="whole numbers from -2**53 to 2**53")  # fmt: skip
    return Dense(DType(str(dtype)))


def _distinct(value: Scalar) -> str:
    good = isinstance(value, tuple) and len(value) > 0 and len(set(value)) == len(value)
    return "" if good else "at least one key, each once"


def _value_type(value: Scalar) -> str:
    allowed = (DType.INT64, DType.FLOAT64, DType.STRING)
    return "" if value in allowed else ", ".join(allowed)


def _vocabulary_lookup(
    values: Value | Sequence[tuple[Value, float]], terms: Sequence[str], *, oov_buckets: int
) -> int | list[tuple[int, float]]:
    if isinstance(values, str | int):
        return _term_id(values, terms, oov_buckets)
    return [(_term_id(value, terms, oov_buckets), weight) for value, weight in values]


def _term_id(value: Value, terms: Sequence[str], oov_buckets: int) -> int:
    text = str(value)
    return terms.index(text) if text in terms else len(terms) + fingerprint64(text.encode()) % oov_buckets


def _term_ids(types: Types, params: Params) -> ColumnType:
    terms, oov_buckets = types[1], params["oov_buckets"]
    assert isinstance(terms, Vector)
    assert isinstance(oov_buckets, int)
    ids = terms.size + oov_buckets
    if ids > INT64_MAX:
        raise TypeMismatch("the ids of a vocabulary must fit int64", value=ids, allowed="fewer oov_buckets")
    return Weighted(DType.INT64, ids) if isinstance(types[0], Weighted) else Dense(DType.INT64, ids)


LOOKUP = Operator(
    name="lookup",
    version=1,
    family="lookup",
    summary="The dictionary's value for each key; where it has none, the default, or null (no item in a list).",
    args=(Arg("values", dense=HASHABLE),),
    result=_looked_up,
    reference=_lookup,
    kernel=Imported(_KERNELS, "lookup"),
    params=(
        Param("keys", tuple, check=_distinct, item=str, doc="the keys; integers as decimal text"),
        Param("values", tuple, doc="the value of each key: numbers or text"),
        Param("dtype", str, check=_value_type, doc="the element type of the values: int64, float64 or string"),
        Param("default", tuple, (), doc="the value of an unknown key: one value, or empty for null"),
    ),
    cost_ns=30,
    lifts=True,
    twin=Imported(_TWINS, "lookup"),
    example=Example(
        'hr.text("device").lookup({"phone": 1, "tablet": 2}, default=0)',
        {"device": ["tablet", "phone", "tv", None]},
        [2, 1, 0, None],
    ),
)

VOCABULARY_LOOKUP = Operator(
    name="vocabulary_lookup",
    version=1,
    family="lookup",
    summary="The position of each value among the terms; others get their fingerprint modulo oov_buckets after these.",
    args=(Arg("values", dense=HASHABLE, weighted=HASHABLE), Arg("terms", constants=TEXT)),
    result=_term_ids,
    reference=_vocabulary_lookup,
    kernel=Imported(_KERNELS, "vocabulary_lookup"),
    params=(Param("oov_buckets", int, 1, check=at_least(1), doc="ids for values that are not in the vocabulary"),),
    cost_ns=40,
    lifts=True,
    twin=Imported(_TWINS, "vocabulary_lookup"),
)

OPERATORS = (LOOKUP, VOCABULARY_LOOKUP)
