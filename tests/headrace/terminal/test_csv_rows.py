"""Rows as CSV: RFC 4180, and no formula of a spreadsheet."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.terminal.csv_rows import FORMULA_STARTS, cell, csv_text
from headrace.terminal.printable import printable

NAMES = st.lists(st.text("abc_", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.text())


@given(st.data(), NAMES)
def test_a_reader_of_csv_gets_the_cells(data: st.DataObject, names: list[str]) -> None:
    rows = data.draw(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(names, VALUES)), max_size=4))
    text = csv_text(names, rows)
    expected = [names, *([cell(row.get(name)) for name in names] for row in rows)]
    read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert [row or [""] for row in read] == expected
    assert text.endswith("\r\n")


@given(VALUES)
def test_no_cell_of_a_text_is_a_formula(value: object) -> None:
    text = cell(value)
    assert not text.startswith(FORMULA_STARTS) or not isinstance(value, str)
    assert printable(text) == text


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.lists(st.text()))
def test_other_values_are_their_json(value: object) -> None:
    assert json.loads(cell(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-", "'-"),
        ("\tcmd", "'\\tcmd"),
        (-1.5, "-1.5"),
        (None, ""),
        (True, "true"),
        ({"READY": 3}, '{"READY": 3}'),
        ("a=1", "a=1"),
        ("a\x1b[31m", "a\\x1b[31m"),
    ],
)
def test_a_cell(value: object, text: str) -> None:
    assert cell(value) == text


def test_a_table_without_rows_has_its_header() -> None:
    assert csv_text(("name", "rows"), []) == "name,rows\r\n"
    assert csv_text(("name", "rows"), [{"name": 'a "b", c', "other": 1}]) == 'name,rows\r\n"a ""b"", c",\r\n'
