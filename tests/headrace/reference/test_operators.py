"""The reference page of operators is complete."""

from __future__ import annotations

import pytest

from headrace.reference.operators import forms, operators_page
from transforms.operators import REGISTRY, Operator

#: Computed only after an analysis, so no line of columns and results shows them.
NOT_SHOWN = {"vocabulary_lookup"} | {op.name for op in REGISTRY if op.family == "full pass"}

every_operator = pytest.mark.parametrize("operator", list(REGISTRY), ids=lambda operator: operator.name)


@every_operator
def test_operator_is_documented(operator: Operator) -> None:
    assert operator.summary.endswith("."), "a summary is a sentence"
    assert forms(operator.name), "no method or function applies it"
    assert all(param.doc for param in operator.params), "a parameter without a doc"
    assert operator.twin or operator.untwinned, "without a TensorFlow twin it says why"
    assert operator.example or operator.name in NOT_SHOWN, "no example"


def test_an_entry_shows_its_forms_and_its_example() -> None:
    entry = operators_page([REGISTRY["url_query_parameter"]])
    for line in (
        "| [web](#web-operators) | [url_query_parameter](#url_query_parameter) |",
        "### url_query_parameter",
        "* **Written** `x.url_query_parameter(name)`",
        "* **Takes** `url` Dense of string; also item by item. **Gives** `Dense[string]`",
        "    * `name` (str, required): the parameter's name, decoded; case counts",
        'hr.text("url").url_query_parameter("q")',
        '| `"https://example.com/?page=2&q=red+shoes%21&q=x"` | `"red shoes!"` |',
        '| `"https://example.com/"` | `null` |',
    ):
        assert f"\n{line}\n" in entry


def test_signs_of_python_are_found_and_a_missing_twin_is_explained() -> None:
    assert forms("intersect") == forms("and") == ["x & y"]
    assert "`x - y`" in operators_page([REGISTRY["subtract"]])
    assert "no TensorFlow twin: TensorFlow has no graph operation that reads JSON" in operators_page(
        [REGISTRY["json_extract"]]
    )
    assert forms("no_such_operator") == []
