"""The example of every operator gives the result on the reference page."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headrace as hr
from tests.transforms.adversarial import arrow_column, bits, python_values
from transforms.execution.plan import compile_plan
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import raw_columns
from transforms.operators import REGISTRY, Operator


@pytest.mark.parametrize("operator", [op for op in REGISTRY if op.example], ids=lambda operator: operator.name)
def test_example_gives_what_it_says(operator: Operator) -> None:
    example = operator.example
    assert example is not None
    expression = eval(example.expression, {"hr": hr})
    columns = {
        column.name: arrow_column(example.columns[column.name], column.type) for column in raw_columns(expression.node)
    }
    assert columns.keys() == example.columns.keys()
    for root in (expression.node, canonicalize(expression.node)):
        result = compile_plan({"it": root}).run(pa.table(columns))
        assert not result.failures, result.failures
        got = python_values(result.columns["it"], expression.type)
        assert bits(got, expression.type) == bits(list(example.gives), expression.type)
    assert operator.name in str(expression), "the example does not use its operator"
