"""docs/joins.md: its example runs, and it names every aggregate and option."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from transforms.expressions.tables import KeyedTable, table
from transforms.joins.column_names import Aggregate

PAGE = (Path(__file__).parents[3] / "docs/joins.md").read_text(encoding="utf-8")
METHODS = [name for name, _ in inspect.getmembers(KeyedTable, inspect.isfunction) if not name.startswith("_")]


def test_the_example_is_a_model() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(block, names)
    aggregates = [str(one.aggregate) for one in names["model"].joins.values()]
    assert aggregates == ["latest", "count", "ratio", "last", "decayed"]


@pytest.mark.parametrize("name", METHODS)
def test_each_method_and_option_is_on_the_page(name: str) -> None:
    assert f"`.{name}(" in PAGE or f"`{name}(" in PAGE
    for option in inspect.signature(getattr(KeyedTable, name)).parameters:
        assert option in PAGE or option == "self"


@pytest.mark.parametrize("option", list(inspect.signature(table).parameters))
def test_each_option_of_a_table_is_on_the_page(option: str) -> None:
    assert option == "name" or f"`{option}=" in PAGE


def test_each_aggregate_is_a_method() -> None:
    assert {str(one) for one in Aggregate} == set(METHODS) - {"by", "where"}
