"""Three-valued logic as in SQL, where null is unknown, and membership in a fixed set of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transforms.errors import TypeMismatch
from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param, Params, Types
from transforms.operators.signatures import HASHABLE, always
from transforms.types import ColumnType, Dense, DType

_KERNELS = "transforms.kernels.logic"
_TWINS = "transforms.twins.logic"
_BOOL = frozenset({DType.BOOL})
_A = [True, True, True, False, False, None]
_B = [True, False, None, False, None, None]


def _and(*conditions: bool | None) -> bool | None:
    if any(condition is False for condition in conditions):
        return False
    return None if None in conditions else True


def _or(*conditions: bool | None) -> bool | None:
    if any(condition is True for condition in conditions):
        return True
    return None if None in conditions else False


def _is_in(value: int | str, *, whole: Sequence[int], texts: Sequence[str]) -> bool:
    return value in (texts if isinstance(value, str) else whole)


def _is_in_type(types: Types, params: Params) -> ColumnType:
    foreign = params["whole" if types[0].dtype is DType.STRING else "texts"]
    if foreign:
        raise TypeMismatch(
            "the values of is_in must have the column's type",
            value=foreign,
            allowed=f"values like those of {types[0]}",
        )
    return Dense(DType.BOOL)


def _connective(
    name: str, symbol: str, summary: str, reference: Callable[..., bool | None], gives: Sequence[bool | None]
) -> Operator:
    return Operator(
        name=name,
        version=1,
        family="logic",
        summary=summary,
        args=(Arg("conditions", dense=_BOOL, variadic=True),),
        result=always(Dense(DType.BOOL)),
        reference=reference,
        kernel=Imported(_KERNELS, f"{name}_"),
        laws=frozenset({Law.COMMUTATIVE, Law.ASSOCIATIVE, Law.IDEMPOTENT_ARGUMENTS}),
        nulls="see",
        cost_ns=1,
        lifts=True,
        twin=Imported(_TWINS, f"{name}_"),
        example=Example(f'hr.boolean("a") {symbol} hr.boolean("b")', {"a": _A, "b": _B}, gives),
    )


AND = _connective(
    "and", "&", "Whether all conditions hold: false if one is false, else null if one is null.", _and,
    [True, False, None, False, False, None],
)  # fmt: skip

OR = _connective(
    "or", "|", "Whether one of the conditions holds: true if one is true, else null if one is null.", _or,
    [True, True, True, False, None, None],
)  # fmt: skip

NOT = Operator(
    name="not",
    version=1,
    family="logic",
    summary="Whether the condition does not hold.",
    args=(Arg("condition", dense=_BOOL),),
    result=always(Dense(DType.BOOL)),
    reference=lambda condition: not condition,
    kernel=Imported(_KERNELS, "not_"),
    cost_ns=1,
    lifts=True,
    twin=Imported(_TWINS, "not_"),
    example=Example('~hr.boolean("clicked")', {"clicked": [True, False, None]}, [False, True, None]),
)

IS_IN = Operator(
    name="is_in",
    version=1,
    family="logic",
    summary="Whether the value is one of those given.",
    args=(Arg("value", dense=HASHABLE),),
    result=_is_in_type,
    reference=_is_in,
    kernel=Imported(_KERNELS, "is_in"),
    params=(
        Param("whole", tuple, (), item=int, doc="the values, for a column of int64"),
        Param("texts", tuple, (), item=str, doc="the values, for a column of text"),
    ),
    cost_ns=20,
    lifts=True,
    twin=Imported(_TWINS, "is_in"),
    example=Example(
        'hr.text("city").is_in(["Oslo", "Bergen"])', {"city": ["Oslo", "Paris", None]}, [True, False, None]
    ),
)

OPERATORS = (AND, OR, NOT, IS_IN)
