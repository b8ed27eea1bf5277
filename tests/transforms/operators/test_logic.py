"""Three-valued logic, membership, and missing values."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import headrace as hr
from tests.transforms.operators.test_numbers import run
from transforms.errors import InputError, TypeMismatch
from transforms.execution.plan import compile_plan
from transforms.graphs.canonical import canonicalize

a, b, c = hr.boolean("a"), hr.boolean("b"), hr.boolean("c")
_VALUES = [True, False, None]


def test_de_morgan_holds_for_all_three_values() -> None:
    rows = list(itertools.product(_VALUES, repeat=3))
    columns = {name: pa.array([row[i] for row in rows], pa.bool_()) for i, name in enumerate("abc")}
    assert run(~(a & b & c), **columns) == run(~a | ~b | ~c, **columns)
    assert run(a & (b | c), **columns) == run((a & b) | (a & c), **columns)


def test_the_order_and_repetition_of_conditions_mean_nothing() -> None:
    assert canonicalize((a & b & a).node).identity == canonicalize((b & a).node).identity
    assert canonicalize(((a | b) | c).node).identity == canonicalize((c | (a | b)).node).identity


def test_lists_of_text_are_still_sets() -> None:
    words = hr.ragged("x", "string")
    assert str(words & words).startswith("intersect(")
    assert str(words | words).startswith("union(")
    with pytest.raises(TypeMismatch):
        _ = words & a


def test_membership() -> None:
    assert run(hr.int64("x").is_in([3, -(2**63)]), x=[3, 4, -(2**63), None]) == [True, False, True, None]
    assert run(hr.int64("x").is_in([2**53 + 1]), x=[2**53, 2**53 + 1]) == [False, True]
    long = "x" * 1_000_000
    assert run(hr.text("x").is_in([long, ""]), x=[long, long[1:], "", "\x00"]) == [True, False, True, False]
    assert run(hr.ragged("x", "string").is_in(["a"]), x=pa.array([["a", "b"], []], pa.list_(pa.string()))) == [
        [True, False],
        [],
    ]
    assert hr.int64("x").is_in([2, 1, 2]).node == hr.int64("x").is_in({1, 2}).node
    assert run(hr.int64("x").is_in([]), x=[1]) == [False]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: hr.int64("x").is_in(["a"]), "have the column's type"),
        (lambda: hr.text("x").is_in([1]), "have the column's type"),
        (lambda: hr.text("x").is_in("ab"), "must be a list of values"),
        (lambda: hr.int64("x").is_in([1.5]), "value of is_in must be"),
        (lambda: hr.text("x").is_in(["a", None]), "value of is_in must be"),
        (lambda: hr.int64("x").is_in([True]), "value of is_in must be"),
        (lambda: hr.int64("x").is_in([2**63]), "must be within the range of int64"),
        (lambda: hr.int64("x") & hr.boolean("b"), "does not take"),
        (lambda: ~hr.int64("x"), "does not take"),
    ],
)  # fmt: skip
def test_mistakes_are_errors(mistake, says: str) -> None:
    with pytest.raises(InputError, match=says):
        mistake()


def test_missing_values_differ_from_text_that_is_no_number() -> None:
    values = pa.array([1.0, None, float("nan")])
    assert run(hr.float64("x").is_null(), x=values) == [False, True, False]
    assert run(hr.float64("x").is_nan(), x=values) == [False, None, True]
    assert run(hr.float64("x").missing_indicator(), x=values) == [0, 1, 0]
    assert run(hr.float64("x").fill_nan(2).fill_null(3), x=values) == [1.0, 3.0, 2.0]
    assert run(~hr.float64("x").is_null(), x=values) == [True, False, True]


_NUMBERS = pa.list_(pa.field("item", pa.float32(), False))


def test_if_else_chooses_item_by_item() -> None:
    prices = hr.ragged("prices", "float32")
    rows = pa.array([[1.0, 5.0, 9.0], [], None], _NUMBERS)
    assert str(hr.if_else(prices > 3, prices, 0).type) == "Ragged[float32]"
    assert run(hr.if_else(prices > 3, prices, 0), prices=rows) == [[0.0, 5.0, 9.0], [], []]
    assert run(hr.if_else(prices > 3, "dear", "cheap"), prices=rows) == [["cheap", "dear", "dear"], [], []]
    capped = hr.if_else(prices > hr.float32("cap"), hr.float32("cap"), prices)
    one = pa.array([[1.0, 5.0]] * 2, _NUMBERS)
    assert run(capped.count(), prices=one, cap=pa.array([3.0, 7.0], pa.float32())) == [2, 2]
    assert run(capped, prices=one, cap=pa.array([3.0, 7.0], pa.float32())) == [[1.0, 3.0], [1.0, 5.0]]


def test_if_else_leaves_out_the_items_whose_choice_is_null() -> None:
    prices, other = hr.ragged("prices", "float32"), hr.float32("other")
    rows, nothing = pa.array([[1.0, 5.0]], _NUMBERS), pa.array([None], pa.float32())
    assert run(hr.if_else(prices > 3, prices, other), prices=rows, other=nothing) == [[5.0]]
    assert run(hr.if_else(hr.boolean("a"), prices, 0.0), prices=rows, a=pa.array([None], pa.bool_())) == [[]]


def test_if_else_of_one_condition_takes_a_whole_list() -> None:
    chosen = hr.if_else(hr.boolean("a"), hr.ragged("x", "string"), hr.ragged("y", "string"))
    x, y = (
        pa.array([["é", "b"], [], ["c"]], pa.list_(pa.string())),
        pa.array([[], ["d"], ["e", "f"]], pa.list_(pa.string())),
    )
    assert run(chosen, a=pa.array([True, False, None]), x=x, y=y) == [["é", "b"], ["d"], []]


def test_if_else_refuses_lists_of_other_lengths() -> None:
    chosen = hr.if_else(hr.ragged("a", "bool"), hr.ragged("x", "int64"), 0)
    batch = pa.table({"a": pa.array([[True]], pa.list_(pa.bool_())), "x": pa.array([[1, 2]], pa.list_(pa.int64()))})
    (failure,) = compile_plan({"it": chosen.node}).run(batch).failures.values()
    assert "equal lengths" in failure.error
