"""The declaration of an operator: name, version, signature, laws, reference, kernel and cost.

A family's file declares its operators; :mod:`transforms.operators.registry` collects them. The *reference* is the
meaning (one event, plain Python); the *kernel* computes the same over whole columns. A change of an output must change
the version, since memos depend on it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, cast

from transforms.errors import InputError, TypeMismatch
from transforms.installation import own_module
from transforms.operators.plain_values import as_float64, plain, unboxed
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

if TYPE_CHECKING:
    from transforms.columns.columns import Column

#: The type of a parameter's value. Tuples are homogeneous.
Scalar = bool | int | float | str | tuple[float, ...] | tuple[int, ...] | tuple[str, ...]
Params = Mapping[str, Scalar]
Types = Sequence[ColumnType]


class Law(StrEnum):
    """Algebraic laws that the canonical form may use; property tests check each one bit for bit."""

    COMMUTATIVE = "commutative"  # f(a, b) == f(b, a)
    ASSOCIATIVE = "associative"  # f(f(a, b), c) == f(a, b, c) for any types
    IDEMPOTENT_ARGUMENTS = "idempotent arguments"  # f(a, a, b) == f(a, b)
    IDEMPOTENT = "idempotent"  # f(f(a)) == f(a), parameters equal


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: the kinds and element types it takes. ``variadic`` marks a last argument that repeats.

    ``constants`` are the values of an artifact, such as a vocabulary's terms: typed as a vector, shared by all rows.
    """

    name: str
    dense: frozenset[DType] = frozenset()
    ragged: frozenset[DType] = frozenset()
    weighted: frozenset[DType] = frozenset()
    vector: frozenset[DType] = frozenset()
    constants: frozenset[DType] = frozenset()
    variadic: bool = False

    def takes(self, column_type: ColumnType) -> bool:
        """Whether this argument takes a column of this type."""
        match column_type:
            case Dense(dtype=dtype):
                return dtype in self.dense
            case Ragged(dtype=dtype):
                return dtype in self.ragged
            case Weighted(dtype=dtype):
                return dtype in self.weighted
            case Vector(dtype=dtype):
                return dtype in self.vector | self.constants

    def describe(self) -> str:
        """The accepted types, as an error message lists them."""
        kinds = (("Dense", self.dense), ("Ragged", self.ragged), ("Weighted", self.weighted), ("Vector", self.vector),
                 ("artifact", self.constants))  # fmt: skip
        return " or ".join(f"{kind}[{' | '.join(sorted(dtypes))}]" for kind, dtypes in kinds if dtypes)


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: its Python types, its default (None: required) and a check.

    ``check`` returns what is allowed, or '' for an allowed value. ``item`` is the type of a tuple's items; by default a
    tuple holds floats, if all items are numbers, or text.
    """

    name: str
    kind: type | tuple[type, ...]
    default: Scalar | None = None
    check: Callable[[Scalar], str] = field(default=lambda value: "")
    doc: str = ""
    item: type | None = None

    @property
    def kind_name(self) -> str:
        """The accepted Python types, as an error message lists them."""
        kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
        return " or ".join(kind.__name__ for kind in kinds)

    def accepts(self, value: object) -> bool:
        """Whether ``value`` has one of the types. A bool is not an int here."""
        kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
        if self.item is not None and isinstance(value, tuple) and any(type(item) is not self.item for item in value):
            return False
        return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


@dataclass(frozen=True, slots=True)
class Example:
    """One line of use for the reference page with its output; a test evaluates it.

    ``expression`` is Python over ``hr``, such as ``hr.text("query").lower()``. ``columns`` are the raw columns it reads
    and ``gives`` the output, both as Python values, one per event.
    """

    expression: str
    columns: Mapping[str, Sequence[object]]
    gives: Sequence[object]


@dataclass(frozen=True, slots=True)
class Imported:
    """A function by its name and that of its module in a checkout, imported at its first call: a declaration loads no compiler.

    A kernel takes and returns :class:`~transforms.columns.columns.Column`, a twin the types of
    :mod:`transforms.twins.tensors`.
    """

    module: str
    function: str

    def __call__(self, *values: Any, **params: Scalar) -> Any:
        """Call the function."""
        return getattr(importlib.import_module(own_module(self.module)), self.function)(*values, **params)


@dataclass(frozen=True, slots=True)
class Operator:
    """A declared operator.

    Attributes:
        result: maps argument types and parameters to the result type; may raise :class:`TypeMismatch`.
        reference: takes one Python value per argument (None for a dense null, a list for ragged) and the parameters by
            keyword. A float result is rounded to the result type once; integers are exact.
        kernel: takes one :class:`~transforms.columns.columns.Column` per argument and the parameters by keyword.
        nulls: with "propagate" a null in any dense argument makes a dense result null and a ragged result empty. The
            plan does this, so the reference never receives None and a kernel may compute anything in null slots.
        lifts: whether one list may replace a dense argument. The operator then works on each item: the plan repeats the
            other arguments for the items and drops null results.
        twin: the TensorFlow implementation, for serving; it receives the same as a kernel.
        untwinned: why TensorFlow cannot express an operator without a twin.
        cost_ns: an estimate of CPU nanoseconds per event, which measurements replace.
    """

    name: str
    version: int
    family: str
    summary: str
    args: tuple[Arg, ...]
    result: Callable[[Types, Params], ColumnType]
    reference: Callable[..., object]
    kernel: Callable[..., Column]
    params: tuple[Param, ...] = ()
    laws: frozenset[Law] = frozenset()
    nulls: Literal["propagate", "see"] = "propagate"
    cost_ns: float = 50.0
    lifts: bool = False
    twin: Imported | None = None
    untwinned: str = ""
    example: Example | None = None

    def bind_params(self, given: Mapping[str, object]) -> dict[str, Scalar]:
        """``given`` with defaults filled in and every value checked. Raises :class:`InputError`."""
        known = {param.name: param for param in self.params}
        for name in given:
            if name not in known:
                raise InputError(f"{self.name} has no parameter {name!r}", allowed=", ".join(known) or "(none)")
        return {param.name: self._bind(param, given.get(param.name, param.default)) for param in self.params}

    def _bind(self, param: Param, value: object) -> Scalar:
        where = f"operator {self.name}, parameter {param.name}"
        if value is None:
            raise InputError("a required parameter must be given", where=where, allowed=param.kind_name)
        value = _plain(value, param, where)
        if not param.accepts(value):
            raise InputError(
                "a parameter must have its declared type", where=where, value=value, allowed=param.kind_name
            )
        scalar = cast(Scalar, value)
        if allowed := param.check(scalar):
            raise InputError("a parameter must have an allowed value", where=where, value=value, allowed=allowed)
        return scalar

    def infer(self, types: Types, params: Params) -> ColumnType:
        """The result type. Raises :class:`TypeMismatch` naming the operator, the argument and what it takes."""
        args = self._spread(len(types))
        lifted = self.lifted(types)
        if lifted is not None:
            return _listed(self.infer([_item(at, i == lifted) for i, at in enumerate(types)], params))
        for position, (arg, column_type) in enumerate(zip(args, types, strict=True)):
            if not arg.takes(column_type):
                raise TypeMismatch(
                    f"operator {self.name} does not take {column_type} here",
                    where=f"argument {position + 1} ({arg.name})",
                    value=str(column_type),
                    allowed=arg.describe(),
                )
        try:
            return self.result(types, params)
        except TypeMismatch as error:
            error.where = error.where or f"operator {self.name}"
            raise

    def lifted(self, types: Types) -> int | None:
        """The position of the list whose items this operator works on; None if it works on whole rows."""
        args = self._spread(len(types))
        if not self.lifts:
            return None
        lists = [i for i, (arg, at) in enumerate(zip(args, types, strict=True)) if _stands_for_items(arg, at)]
        return lists[0] if len(lists) == 1 else None

    def evaluate(self, types: Types, row: Sequence[object], params: Params) -> object:
        """The reference for one event, with nulls and lists handled as declared."""
        lifted = self.lifted(types)
        if lifted is not None:
            inner = [_item(at, i == lifted) for i, at in enumerate(types)]
            items = cast(Sequence[object], row[lifted])
            results = [self.evaluate(inner, [*row[:lifted], item, *row[lifted + 1 :]], params) for item in items]
            return [result for result in results if result is not None]
        if self.nulls == "propagate" and any(value is None for value in row):
            return _nothing(self.infer(types, params))
        return self.reference(*row, **params)

    def _spread(self, count: int) -> tuple[Arg, ...]:
        variadic = bool(self.args) and self.args[-1].variadic
        if count < len(self.args) or (count > len(self.args) and not variadic):
            need = f"at least {len(self.args)}" if variadic else str(len(self.args))
            raise TypeMismatch(f"operator {self.name} must have {need} arguments", value=count,
                               allowed=", ".join(arg.name for arg in self.args))  # fmt: skip
        return self.args + self.args[-1:] * (count - len(self.args))


def _stands_for_items(arg: Arg, column_type: ColumnType) -> bool:
    return isinstance(column_type, Ragged) and not arg.takes(column_type) and arg.takes(_item(column_type, True))


def _nothing(column_type: ColumnType) -> object:
    """The result for a null argument: null, the empty list, or a vector of zeros."""
    match column_type:
        case Dense():
            return None
        case Vector(dtype=dtype, size=size):
            return ["" if dtype is DType.STRING else False if dtype is DType.BOOL else 0] * size
        case _:
            return []


def _item(column_type: ColumnType, lifted: bool) -> ColumnType:
    return Dense(column_type.dtype, column_type.buckets) if lifted and isinstance(column_type, Ragged) else column_type


def _listed(column_type: ColumnType) -> ColumnType:
    assert isinstance(column_type, Dense), "only an operator with a dense result works on items"
    return Ragged(column_type.dtype, column_type.buckets)


def _plain(value: object, param: Param, where: str) -> object:
    """Convert integers to floats for float parameters, and lists to tuples, of floats if they hold numbers."""
    value = unboxed(value)
    if param.kind is float and _is_number(value):
        value = as_float64(cast(float, value), where)
    if param.kind is tuple and isinstance(value, tuple) and param.item in (None, float) and all(map(_is_number, value)):
        value = tuple(as_float64(item, where) for item in value)
    return plain(value, where)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
