"""Every value of a parameter is accepted, or refused with Headrace's error at the call."""

from __future__ import annotations

import datetime
import decimal
import enum
import inspect
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from tests.support.examples import scaled
from tests.transforms.adversarial import acceptable_types, operands_for, operation
from tests.transforms.hostile import LITERALS
from tests.transforms.operators.parameters import GOLDEN_PARAMS, params_of
from transforms.errors import HeadraceError, InputError
from transforms.expressions.expression import Expr, apply
from transforms.graphs.canonical import canonicalize
from transforms.graphs.fingerprint import fingerprint
from transforms.graphs.graph import Operation, component_document, component_from_document
from transforms.operators import REGISTRY, Operator
from transforms.operators.full_pass import FULL_PASS
from transforms.types import ColumnType, Dense, DType, Ragged


class _WithoutText:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class _One(enum.IntEnum):
    ONE = 1


HOSTILE: list[Any] = [
    10**400, -(10**400), 10**5000, 2**63, -(2**63) - 1, 2**63 - 1, 0, -1, 1, 2, True, False, 1.5, -0.0, 1e308, 1e39,
    math.nan, math.inf, -math.inf, "", "a", "\ud800", "\x00", "(", "(?P<n>a)", "(a)|b", "\\9", "a" * 100_000, "Europe/Berlin",
    "int64", "float32", "second", "/etc/passwd", "$.a", "$[", b"x", None, [], (), [1], [1, 2], [2, 1], [10**400], [math.nan],
    [math.inf], ["\ud800"], ["a", "b"], [True], [None], [[1]], {}, {"a": 1}, {1: 2}, {"a": 10**400}, {"\ud800": 1},
    {"a": "\ud800"}, {10**400: 1}, {"a": math.nan}, {"a": None}, set(), {1, 2}, np.int64(3), np.float64(1.5), np.float32(1.5),
    np.str_("a"), np.bool_(True), np.array([1, 2]), np.array(["a"]), np.array(3), np.float64("nan"), _One.ONE, DType.INT64,
    decimal.Decimal(1), datetime.datetime(2020, 1, 1), datetime.timedelta(1), datetime.UTC, object(), _WithoutText(), range(3),
    int, print, 1j, hr.text("q"), hr.int64("n"), hr.ragged("l", "int64"), Dense(DType.INT64), "[" * 100_000,
]  # fmt: skip
COLUMNS: list[Expr] = [make(f"c_{dtype}") for dtype in DType for make in (
    lambda name: hr.column(name, name[2:]), lambda name: hr.ragged(name, name[2:]), lambda name: hr.vector(name, name[2:], 3),
)]  # fmt: skip
COLUMNS += [hr.weighted("w", "string"), hr.weighted("w", "int64"), *(Expr(literal) for literal in LITERALS)]
#: Parameters that let a call go on to its others.
GOOD: dict[str, Any] = {
    "n": 2, "sep": " ", "joiner": " ", "buckets": 10, "period": 24.0, "low": 0.0, "high": 1.0, "factor": 2.0,
    "boundaries": [1.0], "value": 1, "pattern": "(a)", "group": 0, "replacement": "b", "size": 2, "start": 0, "length": 3,
    "zone": "UTC", "unit": "hour", "since": hr.timestamp("s"), "other": hr.text("t"), "dtype": "int64", "name": "a",
}  # fmt: skip
_SYMBOLS = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "mod", "eq", "ne", "lt", "le", "gt", "ge", "and", "or")  # fmt: skip
METHODS = [name for name in dir(Expr) if not name.startswith("_") and callable(getattr(Expr, name, None))]
METHODS += [f"__{symbol}__" for symbol in _SYMBOLS]
FUNCTIONS = ("column", "ragged", "weighted", "vector", "text", "int64", "float32", "float64", "boolean", "timestamp", "literal",
             "concat", "cross", "if_else", "coalesce", "minimum", "maximum", "between", "Dense", "Ragged", "Vector", "Weighted",
             "Model")  # fmt: skip
quick = settings(suppress_health_check=list(HealthCheck))


def refused_or_taken(call: Callable[[], Any]) -> None:
    """An error of ours, which has a text; or an expression that has a canonical form and a document."""
    refusal = None
    try:
        made = call()
        root = canonicalize(made.node) if isinstance(made, Expr) else None
    except HeadraceError as error:
        refusal = error
    if refusal is not None:
        assert str(refusal)
    elif root is not None:
        assert repr(made)
        assert component_from_document(json.loads(json.dumps(component_document(root)))) == root


def _arguments(function: Callable[..., Any], hostile: Any, at: int, skip: int) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for every parameter without a default, the one at a position hostile."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    for position, param in enumerate(list(inspect.signature(function).parameters.values())[skip:]):
        if position != at and param.default is not param.empty:
            continue
        value = hostile if position == at else GOOD.get(param.name, "a")
        if param.kind is param.POSITIONAL_OR_KEYWORD and len(given) == position:
            given.append(value)
        elif param.kind is param.VAR_POSITIONAL:
            given += [value, COLUMNS[0]]
        else:
            named[param.name] = value
    return given, named


@given(st.sampled_from(METHODS), st.sampled_from(COLUMNS), st.sampled_from(HOSTILE), st.integers(0, 3))
@settings(quick, max_examples=scaled(1_000))
def test_methods(name: str, receiver: Expr, hostile: Any, at: int) -> None:
    given, named = _arguments(getattr(Expr, name), hostile, at, skip=1)
    refused_or_taken(lambda: getattr(receiver, name)(*given, **named))


@given(st.sampled_from(FUNCTIONS), st.sampled_from([*HOSTILE, *COLUMNS]), st.integers(0, 4))
@settings(quick, max_examples=scaled(600))
def test_functions(name: str, hostile: Any, at: int) -> None:
    given, named = _arguments(getattr(hr, name), hostile, at, skip=0)
    refused_or_taken(lambda: getattr(hr, name)(*given, **named))


@pytest.mark.parametrize("operator", REGISTRY, ids=lambda operator: operator.name)
def test_parameters_of_every_operator(operator: Operator) -> None:
    fitting = GOLDEN_PARAMS.get(operator.name, [{}])[0]
    known = {param.name: param.default for param in operator.params} | fitting
    for types in _types(operator, fitting)[:1]:
        args = [Expr(node) for node in operands_for(operator, types)]
        for param, hostile in itertools.product(operator.params, HOSTILE):
            params = {**known, param.name: hostile}
            refused_or_taken(lambda args=args, params=params: apply(operator.name, *args, **params))  # type: ignore[misc]
        for hostile in HOSTILE[::5]:
            refused_or_taken(lambda hostile=hostile: apply(operator.name, hostile, **known))  # type: ignore[misc]


def _types(operator: Operator, params: dict[str, Any]) -> list[tuple[ColumnType, ...]]:
    if operator.name in FULL_PASS:
        return [(Dense(DType.INT64),), (Dense(DType.STRING), Dense(DType.BOOL)), (Ragged(DType.STRING),)]
    return acceptable_types(operator, params)


#: Not functions that a user wrote, which no literal is the argument of in their tests.
_FOLDABLE = [
    operator
    for operator in REGISTRY
    if any(arg.dense for arg in operator.args)
    and operator.name not in {*FULL_PASS, "python_function", "tensorflow_graph"}
]


@pytest.mark.parametrize("operator", _FOLDABLE, ids=lambda operator: operator.name)
@given(data=st.data())
@settings(quick, max_examples=scaled(15))
def test_constants_fold_or_stay(operator: Operator, data: st.DataObject) -> None:
    params = data.draw(params_of(operator.name))
    fitting = [[each for each in LITERALS if arg.takes(each.type)] for arg in operator.args]
    if not all(fitting):
        return
    operands = [data.draw(st.sampled_from(each)) for each in fitting]
    try:
        root = operation(operator.name, operands, params)
    except InputError:
        return
    assert canonicalize(canonicalize(root)) == canonicalize(root)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + 10**400, lambda x: 10**400 - x, lambda x: x < -(10**400), lambda x: x.clip(0, 10**400),
        lambda x: x.fill_null(10**400), lambda x: x.fill_nan(-(10**400)), lambda x: x.bucketize([0, 10**400]),
        lambda x: x.scale(10**5000), lambda x: hr.coalesce(x, 10**400), lambda x: hr.minimum(x, 10**400),
        lambda x: hr.if_else(x > 0, 10**400, x), lambda x: hr.ragged("l", "float32").contains_item(10**400),
        lambda x: hr.ragged("l", "float64").pad(2, 10**400), lambda x: x.min_max(-(10**400), 10**400),
    ],
)  # fmt: skip
@pytest.mark.parametrize("column", [hr.float32("x"), hr.float64("x")], ids=["float32", "float64"])
def test_numbers_beyond_float64_are_refused_where_they_are_written(call: Callable[[Expr], Expr], column: Expr) -> None:
    with pytest.raises(InputError, match="must be within the range of float64") as caught:
        call(column)
    assert caught.value.where
    assert caught.value.allowed
    assert caught.value.next_step
    assert "10" in str(caught.value) or "bits" in str(caught.value)


def test_numbers_beyond_int64_and_half_characters_are_refused_where_they_are_written() -> None:
    n, words = hr.int64("n"), hr.ragged("l", "string")
    for call in (
        lambda: n + 2**63, lambda: n.fill_null(2**63), lambda: n.is_in([1, 2**63]), lambda: words.head(2**63),
        lambda: hr.literal(-(2**63) - 1), lambda: hr.ragged("l", "int64").contains_item(2**63),
    ):  # fmt: skip
        with pytest.raises(InputError, match="within the range of int64"):
            call()
    for call in (
        lambda: hr.text("\ud800"), lambda: hr.text("q") == "\ud800", lambda: hr.text("q").split("\ud800"),
        lambda: words.contains_item("\udfff"), lambda: hr.text("q").is_in(["a", "\ud800"]),
    ):  # fmt: skip
        with pytest.raises(InputError, match="without lone surrogates"):
            call()


def test_a_parameter_is_a_plain_value_whatever_spelled_it() -> None:
    x, clicks = hr.float64("x"), hr.ragged("l", "int64")
    assert fingerprint(clicks.head(np.int64(3)).node) == fingerprint(clicks.head(3).node)  # type: ignore[arg-type]
    assert fingerprint(clicks.head(_One.ONE).node) == fingerprint(clicks.head(1).node)
    bounds = x.bucketize(np.array([1, 2]))  # type: ignore[arg-type]
    assert fingerprint(bounds.node) == fingerprint(x.bucketize([1, 2.0]).node)
    assert isinstance(bounds.node, Operation)
    assert [type(item) for item in dict(bounds.node.params)["boundaries"]] == [float, float]  # type: ignore[union-attr]


def test_an_error_has_a_text_whatever_it_was_given() -> None:
    for value in (_WithoutText(), 10**5000, [10**5000]):
        assert "without a repr" in str(InputError("a value must be plain", value=value))
