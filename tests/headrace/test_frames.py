"""``hr.try_``: expressions on frames of pandas, Polars, Arrow and plain mappings, with the values that a warehouse stores."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from tests.support.examples import scaled
from transforms.errors import DataError, HeadraceError, InputError, TypeMismatch, UnknownColumn

QUERY = hr.text("query")
DATA = {"query": ["Red Shoes", None, "a", ""], "price": [1.5, None, 0.0, -2.0], "clicks": [1, 2, 3, 4]}


def model():
    made = hr.Model("first", client="search", label="missing")
    made.input("words", QUERY.unigrams().hash_buckets(50))
    made.input("price", hr.float64("price").fill_null(0.0))
    made.input("clicks", hr.int64("clicks"))
    return made


def frames():
    """The same rows in every form, and what a result is in that form."""
    table = pa.table(DATA)
    return {
        "arrow": (table, pa.Table, pa.Array),
        "record batch": (table.to_batches()[0], pa.Table, pa.Array),
        "pandas": (pd.DataFrame(DATA), pd.DataFrame, pd.Series),
        "polars": (pl.DataFrame(DATA), pl.DataFrame, pl.Series),
        "mapping": (DATA, pa.Table, pa.Array),
        "mapping of arrays": ({**DATA, "clicks": np.array(DATA["clicks"])}, pa.Table, pa.Array),
        "chunks": (pa.concat_tables([table.slice(0, 1), table.slice(1)]), pa.Table, pa.Array),
    }


def rows_of(found):
    if isinstance(found, pd.DataFrame):
        found = pa.Table.from_pandas(found, preserve_index=False)
    return (found.to_arrow() if isinstance(found, pl.DataFrame) else found).to_pydict()


@pytest.mark.parametrize("form", frames())
def test_a_result_has_the_form_of_its_frame_and_the_values_of_any(form):
    frame, of_frame, of_column = frames()[form]
    expected = hr.try_(model(), pa.table(DATA)).to_pydict()
    assert expected["clicks"] == [1, 2, 3, 4]
    assert expected["price"] == [1.5, 0.0, 0.0, -2.0]
    assert [len(one or ()) for one in expected["words"]] == [2, 0, 1, 0]
    found = hr.try_(model(), frame)
    assert isinstance(found, of_frame)
    assert rows_of(found) == expected
    alone = hr.try_(QUERY.lower(), frame)
    assert isinstance(alone, of_column)
    assert [None if one is None or one != one else one for one in list(alone.to_pylist() if of_column is pa.Array else alone)] == [
        "red shoes", None, "a", "",
    ]  # fmt: skip
    named = hr.try_({"low": QUERY.lower(), "raw": QUERY}, frame)
    assert list(rows_of(named)) == ["low", "raw"]


def test_a_result_of_pandas_has_the_index_of_the_frame():
    frame = pd.DataFrame(DATA, index=["d", "c", "b", "a"])
    assert list(hr.try_(QUERY, frame).index) == list(hr.try_(model(), frame).index) == ["d", "c", "b", "a"]


@settings(max_examples=scaled(50))
@given(texts=st.lists(st.none() | st.text(max_size=20), max_size=30), prices=st.floats(allow_nan=True))
def test_values_are_those_of_the_plan_that_fills_the_warehouse(texts, prices):
    from transforms.execution.plan import compile_plan

    table = pa.table({"query": pa.array(texts, pa.string()), "price": pa.array([prices] * len(texts), pa.float64()),
                      "clicks": pa.array(range(len(texts)), pa.int64())})  # fmt: skip
    made = model()
    expected = compile_plan({name: one.component for name, one in made.inputs.items() if name != "clicks"}).run(table)
    found = hr.try_(made, table)
    for name, column in expected.columns.items():
        assert found.column(name).combine_chunks().equals(column) or repr(found.column(name).to_pylist()) == repr(
            column.to_pylist()
        )


@pytest.mark.parametrize("make", [dict, partial(pd.DataFrame, dtype=object), pl.DataFrame, pa.table])
@pytest.mark.parametrize("values", [[], [None, None]])
def test_columns_without_any_value_have_the_declared_type(make, values):
    features = {"low": QUERY.lower(), "raw": hr.int64("clicks"), "words": hr.ragged("words", "string").count()}
    found = hr.try_(features, make(dict.fromkeys(("query", "clicks", "words"), values)))
    assert len(found) == len(values)
    raw = pa.table(found) if isinstance(found, dict) else found
    assert [
        one is None or one != one for one in list(raw["raw"].to_pylist() if isinstance(raw, pa.Table) else raw["raw"])
    ] == [True] * len(values)


def test_an_own_operator_runs_in_a_try():
    @hr.op(result="int64")
    def doubled(values):
        return pc.multiply(values, 2)

    assert hr.try_(doubled(hr.int64("clicks")), DATA).to_pylist() == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("features", "frame", "kind", "where", "said"),
    [
        (QUERY, 3, InputError, "frame", "tabular data"),
        ("query", DATA, TypeMismatch, "features", "must be expressions"),
        ({"a": 1}, DATA, TypeMismatch, "features['a']", "must be expressions"),
        ({}, DATA, InputError, "", "must hold an expression"),
        (hr.Model("m", client="c", label="l"), DATA, InputError, "model m", "must have inputs"),
        (hr.text("qery"), DATA, UnknownColumn, "frame", "query"),
        (hr.float32("price"), DATA, DataError, "column price", "declare hr.float64('price')"),
        (hr.int64("query"), DATA, DataError, "column query", "declare hr.text('query')"),
        (hr.text("x"), {"x": "abc"}, DataError, "column x", "a list or an array of values"),
        (hr.int64("x"), {"x": [1, "a"]}, DataError, "column x", "must have one type"),
        (hr.int64("x"), pd.DataFrame({"x": [1, "a"]}), DataError, "column x", "must have one type"),
        (hr.int64("x"), {"x": [2**70]}, DataError, "column x", "must have one type"),
        (hr.int64("x"), {"x": np.array([2**63], np.uint64)}, DataError, "column x", "fit into int64"),
        ({"a": hr.int64("x"), "b": hr.int64("y")}, {"x": [1], "y": [1, 2]}, DataError, "frame", "equally many rows"),
        (hr.int64("x"), pd.DataFrame([[1, 2]], columns=["x", "x"]), InputError, "frame", "different names"),
        (hr.int64("x"), pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]), InputError, "frame", "different names"),
        (QUERY.vocabulary_ids(over=hr.between("2026-01-01", "2026-01-02"), top_k=5), DATA, InputError, "", "a full pass must be run over a table"),
    ],
)  # fmt: skip
def test_what_cannot_be_tried_is_one_error(features, frame, kind, where, said):
    with pytest.raises(HeadraceError) as caught:
        hr.try_(features, frame)
    assert type(caught.value) is kind
    assert caught.value.where == where
    assert said in str(caught.value)


def test_a_try_imports_no_frame_library_that_the_caller_has_not_imported():
    code = (
        "import io, sys, pyarrow.csv as csv, headrace as hr\n"
        "frame = csv.read_csv(io.BytesIO(b'query\\na b\\n'))  # of Python's values pyarrow imports pandas itself\n"
        "hr.try_(hr.text('query').unigrams().hash_buckets(9), frame)\n"
        "print([name for name in ('pandas', 'polars', 'tensorflow', 'apache_beam', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


CLICKS = hr.table("clicks").by(hr.int64("item"))
EVENTS = {"item": [1, 1, 2], "time": [datetime(2026, 3, 1), datetime(2026, 3, 3), None]}


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_joined_columns_are_computed_from_the_frames_of_their_tables(make):
    features = {"seen": CLICKS.count() + 1, "item": hr.int64("item"), "items": CLICKS.last(2, hr.int64("item"))}
    found = hr.try_(features, make(EVENTS), tables={"clicks": make(EVENTS)})
    assert rows_of(found) == {"seen": [1, 2, 1], "item": [1, 1, 2], "items": [[], [1], []]}
    alone = hr.try_(CLICKS.count(), make(EVENTS), tables={"clicks": make(EVENTS)})
    assert list(alone.to_pylist() if isinstance(alone, pa.Array) else alone) == [0, 1, 0]


def test_columns_of_several_tables_and_another_column_of_times():
    ads = hr.table("ads").by(hr.int64("item"))
    model = hr.Model("ctr", client="search", label="clicked")
    model.input("seen", CLICKS.count())
    model.input("price", ads.latest(hr.float64("price")) * hr.table("ads").by(hr.int64("item")).count())
    events = {"item": [1, 2], "at": [datetime(2026, 3, 2), datetime(2026, 3, 2)]}
    rows = {"item": [1, 1], "at": [datetime(2026, 3, 1), datetime(2026, 3, 2)], "price": [2.5, 9.0]}
    found = hr.try_(model, events, tables={"clicks": events, "ads": rows}, time="at")
    assert found.to_pydict() == {"seen": [0, 0], "price": [2.5, None]}


def test_a_frame_that_has_a_joined_column_needs_no_rows():
    column = CLICKS.count()
    assert hr.try_(column + 1, {column.node.name: [4, 5]}).to_pylist() == [5, 6]


@pytest.mark.parametrize(
    ("frame", "tables", "error", "rule"),
    [
        (EVENTS, {}, InputError, "must have the rows of its table"),
        (EVENTS, {"click": EVENTS}, InputError, "must have the rows of its table"),
        (EVENTS, {"clicks": {"item": [1]}}, UnknownColumn, "the frame must have the columns"),
        ({"item": [1]}, {"clicks": EVENTS}, UnknownColumn, "the frame must have the columns"),
        (EVENTS, {"clicks": 3}, InputError, "a frame must be tabular data"),
        (EVENTS, {"clicks": {"item": [1], "time": [7]}}, DataError, "the time of a join must be a column of timestamps"),
    ],
)  # fmt: skip
def test_joined_columns_without_what_they_need_are_refused(frame, tables, error, rule):
    with pytest.raises(error, match=rule):
        hr.try_(CLICKS.count(), frame, tables=tables)
