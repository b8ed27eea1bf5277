"""Lists as sequences and as sets: known results, large lists, errors, and served twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.transforms.adversarial import arrow_column, bits, columns_for, operation, python_values
from tests.transforms.twins.traced import by_graph, by_kernels, lists
from transforms.errors import InputError, TypeMismatch
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import raw_columns
from transforms.operators import REGISTRY
from transforms.types import Dense, DType, Ragged, Vector, type_document, type_from_document

words, others = hr.ragged("words", "string"), hr.ragged("others", "string")
ids, clicks = hr.ragged("ids", "int64"), hr.ragged("clicks", "int64")
prices, short = hr.ragged("prices", "float64"), hr.ragged("short", "float32")
flags, moments = hr.ragged("flags", "bool"), hr.ragged("moments", "timestamp")

EXPRESSIONS = [
    *("words & others", "words | others", "words - others", "words.unique()", "ids & clicks", "ids | clicks", "ids - clicks"),
    *("words.overlap_count(others)", "words.jaccard(others)", "ids.jaccard(clicks)", "hr.concat(words, others, words)"),
    *("words.sort()", "words.sort(descending=True)", "ids.sort(descending=True)", "prices.sort()", "short.sort()"),
    *("prices.sort(descending=True)", "short.sort(descending=True).head(2)", "flags.sort()", "moments.sort().tail(2)"),
    *("words.head(2)", "words.tail(2)", "words.count()", "ids.filter(ids > 3)", "prices.filter(flags)", "words.positions(limit=3)"),
    *("words.pad(3, 'é')", "prices.pad(2, -0.0)", "short.pad(2, 1e300)", "flags.pad(4, True)", "moments.pad(1, 7)", "ids.pad(70, -1)"),
    *("words.zip(ids, '|')", "ids.zip(words.tail(1), '')", "words.contains_item('')", "prices.contains_item(0.0)"),
    *("prices.contains_item(5e-324)", "short.contains_item(0.1)", "short.contains_item(float('nan'))", "ids.contains_item(7)"),
]  # fmt: skip
LENGTHS = (3, 0, 1, 2, 60, 5)


def drawn(expression: hr.Expr, rows: int, lengths: tuple[int, ...] = LENGTHS) -> dict[str, list[Any]]:
    source = np.random.default_rng(7)
    return {column.name: lists(column.type, source, rows, lengths) for column in raw_columns(expression.node)}


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_traced_graphs_give_what_kernels_give(source: str) -> None:
    expression = eval(source, globals())
    for rows in (48, 1):
        columns = drawn(expression, rows)
        assert by_graph(expression, columns) == by_kernels(expression, columns)
    assert by_graph(expression, drawn(expression, 0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("source", EXPRESSIONS)
def test_lists_of_a_hundred_thousand_items_are_what_the_reference_says(source: str) -> None:
    expression = eval(source, globals())
    columns = drawn(expression, 2, (100_000, 3))
    operator = REGISTRY[expression.node.op]
    if any(arg.args for arg in expression.node.args):
        pytest.skip("one operator at a time")
    types = [arg.type for arg in expression.node.args]
    rows = zip(*(columns[arg.name] for arg in expression.node.args), strict=True)
    params = dict(expression.node.params)
    wanted = [bits(operator.evaluate(types, row, params), expression.type) for row in rows]
    assert by_kernels(expression, columns) == wanted


def test_lists_of_a_hundred_thousand_items_are_sorted_and_counted() -> None:
    numbers = np.random.default_rng(2).integers(-1000, 1000, 100_000)
    columns = {"ids": [numbers.tolist()], "clicks": [[5, 7, 7, 2000]]}
    for found in (by_kernels, by_graph):
        assert found(ids.sort(), columns) == [np.sort(numbers).tolist()]
        assert found(ids.overlap_count(clicks), columns) == [2]
        assert found(ids.filter(ids > 990).count(), columns) == [int((numbers > 990).sum())]


def test_texts_of_a_megabyte_differ_at_their_last_byte() -> None:
    long = "長" * 350_000
    row, other = [long + "b", long, long + "a", "x"], [long + "a", "x", long + "c"]
    columns = {"words": [row], "others": [other]}
    assert by_kernels(words.sort(), columns) == [["x", long, long + "a", long + "b"]]
    assert by_kernels(words & others, columns) == [["x", long + "a"]]
    assert by_kernels(words.overlap_count(others), columns) == [2]
    assert by_kernels(words.contains_item(long), columns) == [True]
    assert by_kernels(words.zip(others, "-").tail(1), columns) == [[f"{long}a-{long}c"]]
    assert by_kernels(words.pad(1, long), {"words": [[], ["y"]]}) == [[long], ["y"]]


def test_graphs_order_texts_that_differ_far_from_their_beginning() -> None:
    near = "q" * 700
    columns = {"words": [[near + "b", near, near + "\x00", near + "a", near]]}
    assert by_graph(words.sort(), columns) == [[near, near, near + "\x00", near + "a", near + "b"]]


def test_the_order_of_floats_is_total() -> None:
    columns = {"prices": [[math.nan, 0.0, -0.0, math.inf, -math.inf, -5e-324, 5e-324, -1.0]]}
    upwards = [-math.inf, -1.0, -5e-324, -0.0, 0.0, 5e-324, math.inf]
    for found in (by_kernels, by_graph):
        assert found(prices.sort(), columns) == [bits([*upwards, math.nan], prices.type)]
        assert found(prices.sort(descending=True), columns) == [bits([*upwards[::-1], math.nan], prices.type)]


def test_a_whole_number_is_looked_for_among_floats_as_a_float() -> None:
    columns = {"prices": [[2.0**63], [2.0**53], []]}
    for value, wanted in ((2**63 - 1, [True, False, False]), (2**53 + 1, [False, True, False])):
        root = operation("contains_item", columns_for([prices.type]), {"value": value})
        table = pa.table({"c0": arrow_column(columns["prices"], prices.type)})
        assert compile_plan({"it": root}).run(table).columns["it"].to_pylist() == wanted
        rows = [REGISTRY["contains_item"].evaluate([prices.type], [row], {"value": value}) for row in columns["prices"]]
        assert rows == wanted


def test_jaccard_is_the_share_of_common_values() -> None:
    columns = {"words": [["a", "b", "b"], [], ["a"], []], "others": [["b", "c", "d"], [], [], ["a"]]}
    assert by_kernels(words.jaccard(others), columns) == bits([1 / 4, 0.0, 0.0, 0.0], Dense(DType.FLOAT32))


def test_a_mask_of_other_lengths_is_an_error_that_names_the_row() -> None:
    expression = words.filter(flags)
    table = pa.table({
        "words": arrow_column([["a"], ["b", "c"], ["d"]], words.type), "flags": arrow_column([[True], [True], []], flags.type),
    })  # fmt: skip
    result = compile_plan({"it": expression.node}).run(table)
    assert "equal lengths" in result.failures["it"].error
    assert "row 1" in result.failures["it"].error
    assert "(2, 1)" in result.failures["it"].error


def test_a_mask_of_other_lengths_fails_in_a_graph() -> None:
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError, match="equal lengths"):
        by_graph(words.filter(flags), {"words": [["a"], ["b", "c"]], "flags": [[True], [True]]})


def test_buckets_stay_with_ids() -> None:
    hashed = ids.hash_buckets(100)
    kept = (hashed.sort(), hashed.tail(3), hashed.head(1), hashed.unique(), hashed.filter(ids > 3), hashed & hashed)
    assert {expression.type for expression in kept} == {Ragged(DType.INT64, 100)}
    assert hashed.pad(4, 99).type == Vector(DType.INT64, 4, 100)
    assert hashed.pad(4, 100).type == hashed.pad(4, -1).type == Vector(DType.INT64, 4)
    assert words.positions(limit=5).type == Ragged(DType.INT64, 5)
    assert words.positions().type == Ragged(DType.INT64)
    for column_type in (Vector(DType.INT64, 4, 100), Vector(DType.STRING, 1)):
        assert type_from_document(type_document(column_type)) == column_type
    assert str(hashed.pad(4, 0).type) == "Vector[int64, 4, buckets=100]"


def test_values_are_of_the_items_type() -> None:
    for make in (lambda at, value: at.pad(2, value), lambda at, value: at.contains_item(value)):
        for at, value in ((ids, 1.5), (ids, True), (words, 1), (flags, 0), (prices, "x"), (moments, 0.5)):
            with pytest.raises(TypeMismatch, match="have the items' type"):
                make(at, value)
        with pytest.raises(InputError, match="int64"):
            make(ids, 2**63)
    assert short.contains_item(0.1).node == short.contains_item(float(np.float32(0.1))).node
    assert prices.pad(2, 1).node == prices.pad(2, 1.0).node


@pytest.mark.parametrize(
    "make",
    [
        lambda: words.pad(0, ""), lambda: words.pad(65_537, ""), lambda: words.tail(0), lambda: words.positions(-1),
        lambda: words.sort(descending=1), lambda: words.jaccard(ids), lambda: words.filter(ids), lambda: prices.zip(words, ""),
    ],
)  # fmt: skip
def test_mistakes_are_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()


def test_slices_of_longer_columns_are_seen_as_they_are() -> None:
    whole = arrow_column([["x", "y"], ["b", "a"], [], ["c"], ["z"]], words.type).slice(1, 3)
    for expression, wanted in (
        (words.sort(), [["a", "b"], [], ["c"]]), (words.tail(1), [["a"], [], ["c"]]), (words.pad(1, "-"), [["b"], ["-"], ["c"]]),
        (words.filter(words == "a"), [["a"], [], []]), (words.contains_item("c"), [False, False, True]),
    ):  # fmt: skip
        result = compile_plan({"it": expression.node}).run(pa.table({"words": whole}))
        assert python_values(result.columns["it"], expression.type) == wanted
