from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.catalog.catalog import Catalog, _document, rows_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
spaces = st.text(" \n\t\r", max_size=3)


def decoded(text, read):
    try:
        return read(text)
    except ValueError as error:
        return type(error)


@given(values, spaces, spaces, st.sampled_from(["", "]", "1", "\x00", ",{}"]))
def test_a_document_is_read_as_json_reads_it(value, before, after, rest):
    text = before + json.dumps(value) + after + rest
    assert decoded(text, _document) == decoded(text, json.loads)


@pytest.mark.parametrize("rows", [0, 1, 999, 1_000, 1_001, 2_500])
def test_rows_are_those_of_the_query_in_order(tmp_path, rows):
    from sqlalchemy import text

    catalog = Catalog.open(f"sqlite:///{tmp_path}/catalog.db")
    query = text(
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT i FROM n LIMIT {rows}"
    )
    with catalog.read() as connection:
        assert [row.i for row in rows_of(connection, query)] == list(range(1, rows + 1))
    catalog.close()
