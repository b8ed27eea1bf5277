"""Weighted lists: known results, exact sums, large lists, and served twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.transforms.adversarial import arrow_column, bits
from tests.transforms.twins.traced import by_graph, by_kernels, lists
from transforms.errors import InputError
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import raw_columns
from transforms.operators import REGISTRY
from transforms.operators.weighted import TINY
from transforms.types import Dense, DType, Ragged, Weighted

topics, users = hr.weighted("topics", "string"), hr.weighted("users", "int64")
words, ids = hr.ragged("words", "string"), hr.ragged("ids", "int64")
prices, short = hr.ragged("prices", "float64"), hr.ragged("short", "float32")

EXPRESSIONS = [
    *("words.weighted_by(prices)", "words.weighted_by(ids)", "ids.weighted_by(short)", "words.term_frequency()"),
    *("words.term_frequency(relative=True)", "ids.term_frequency(relative=True)", "topics.ids()", "users.weights()"),
    *("topics.top_k(2)", "users.top_k(100)", "topics.scale_weights(0.3).scale_weights(7.0)", "users.scale_weights(1e-300)"),
    *("topics.normalize_weights()", "topics.normalize_weights('l2')", "topics.normalize_weights('max')", "users.hash_buckets(9)"),
    *("topics.hash_buckets(9, salt='s').top_k(2)", *(f"{of}.pool('{how}')" for of in ("prices", "short", "ids", "topics")
                                                     for how in ("sum", "mean", "max", "min"))),
]  # fmt: skip
LENGTHS = (3, 0, 1, 2, 60, 5)


def drawn(expression: hr.Expr, rows: int, lengths: tuple[int, ...] = LENGTHS) -> dict[str, list[Any]]:
    source = np.random.default_rng(11)
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
    if any(arg.args for arg in expression.node.args):
        pytest.skip("one operator at a time")
    columns = drawn(expression, 2, (100_000, 3))
    rows = zip(*(columns[arg.name] for arg in expression.node.args), strict=True)
    types, params = [arg.type for arg in expression.node.args], dict(expression.node.params)
    operator = REGISTRY[expression.node.op]
    wanted = [bits(operator.evaluate(types, row, params), expression.type) for row in rows]
    assert by_kernels(expression, columns) == wanted


def test_terms_of_a_hundred_thousand_items_are_counted() -> None:
    numbers = np.random.default_rng(2).integers(0, 50, 100_000).tolist()
    wanted = [(item, float(numbers.count(item))) for item in dict.fromkeys(numbers)]
    for found in (by_kernels, by_graph):
        assert found(ids.term_frequency(), {"ids": [numbers]}) == bits([wanted], Weighted(DType.INT64))


def _numbers(count: int) -> list[float]:
    source = np.random.default_rng(3)
    return (source.standard_normal(count) * 10.0 ** source.integers(-9, 9, count)).tolist()


def test_sums_go_from_left_to_right_in_kernels_and_graphs() -> None:
    """Another order gives other bits: this is what TensorFlow's segment sums are relied upon for."""
    columns = {"prices": [_numbers(100_000), [], _numbers(1000)[::-1], [1e16, 1.0, -1e16]]}
    wanted = []
    for row in columns["prices"]:
        total = 0.0
        for number in row:
            total += number
        wanted.append(total)
    assert wanted[0] != math.fsum(columns["prices"][0])
    assert wanted[3] == 0.0
    for found in (by_kernels, by_graph):
        assert found(prices.pool("sum"), columns) == bits(wanted, Dense(DType.FLOAT64))


def test_pooling_has_its_written_edges() -> None:
    nan, inf = math.nan, math.inf
    columns = {"prices": [[], [-0.0], [nan, 1.0], [inf, -inf], [inf, 1.0], [1e-310, 1e-310], [-3.0, 2.0]]}
    wanted = {
        "sum": [0.0, 0.0, nan, nan, inf, 0.0, -1.0],
        "mean": [None, 0.0, nan, nan, inf, 0.0, -0.5],
        "max": [None, 0.0, nan, inf, inf, 0.0, 2.0],
        "min": [None, 0.0, nan, -inf, 1.0, 0.0, -3.0],
    }
    for how, values in wanted.items():
        for found in (by_kernels, by_graph):
            assert found(prices.pool(how), columns) == bits(values, Dense(DType.FLOAT64)), how


def test_norms_have_their_written_edges() -> None:
    columns = {"topics": [[("a", 3.0), ("b", -4.0)], [], [("a", 0.0), ("b", -0.0)], [("a", math.nan), ("b", 1.0)]]}
    nans = [("a", math.nan), ("b", math.nan)]
    wanted = {
        "l1": [[("a", 3 / 7), ("b", -4 / 7)], [], [("a", 0.0), ("b", 0.0)], nans],
        "l2": [[("a", 0.6), ("b", -0.8)], [], [("a", 0.0), ("b", 0.0)], nans],
        "max": [[("a", 0.75), ("b", -1.0)], [], [("a", 0.0), ("b", 0.0)], nans],
    }
    for norm, rows in wanted.items():
        for found in (by_kernels, by_graph):
            assert found(topics.normalize_weights(norm), columns) == bits(rows, topics.type), norm


@pytest.mark.medium
def test_the_greatest_weights_come_first_and_of_equal_ones_the_earlier() -> None:
    row = [("a", 1.0), ("b", math.nan), ("c", 2.0), ("d", 1.0), ("e", -0.0), ("f", 0.0), ("g", -math.inf), ("h", 1e-45)]
    wanted = [[row[i] for i in (2, 0, 3, 7, 4, 5, 6, 1)]]
    for found in (by_kernels, by_graph):
        for k in (1, 4, 8, 100):
            assert found(topics.top_k(k), {"topics": [row]}) == bits([wanted[0][:k]], topics.type)


def test_numbers_closer_to_zero_than_the_normal_ones_count_as_zero() -> None:
    columns = {"words": [["a", "b", "c"]], "prices": [[TINY, TINY * 0.99, -1e-45]]}
    wanted = [[("a", TINY), ("b", 0.0), ("c", 0.0)]]
    for found in (by_kernels, by_graph):
        assert found(words.weighted_by(prices), columns) == bits(wanted, Weighted(DType.STRING))


def test_weights_of_other_lengths_are_an_error_that_names_the_row() -> None:
    table = pa.table(
        {"words": arrow_column([[], ["a"]], words.type), "prices": arrow_column([[], [1.0, 2.0]], prices.type)}
    )
    failure = compile_plan({"it": words.weighted_by(prices).node}).run(table).failures["it"]
    assert "equal lengths" in failure.error
    assert "row 1" in failure.error


def test_types_follow_the_ids() -> None:
    hashed = ids.hash_buckets(50)
    assert hashed.weighted_by(prices).type == Weighted(DType.INT64, 50)
    assert hashed.term_frequency().top_k(3).normalize_weights().scale_weights(2).type == Weighted(DType.INT64, 50)
    assert hashed.term_frequency().ids().type == Ragged(DType.INT64, 50)
    assert topics.hash_buckets(7).type == Weighted(DType.INT64, 7)
    assert topics.weights().type == Ragged(DType.FLOAT32)
    assert [each.pool().type.dtype for each in (ids, prices, short, topics)] == [
        DType.FLOAT64, DType.FLOAT64, DType.FLOAT32, DType.FLOAT32
    ]  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        lambda: topics.pool("median"), lambda: topics.normalize_weights("l3"), lambda: topics.top_k(0), lambda: words.pool(),
        lambda: topics.scale_weights(math.inf), lambda: topics.scale_weights(5e-324), lambda: words.weighted_by(words),
        lambda: prices.term_frequency(), lambda: words.top_k(3), lambda: words.ids(),
    ],
)  # fmt: skip
def test_mistakes_are_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()
