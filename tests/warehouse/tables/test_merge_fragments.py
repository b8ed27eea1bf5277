"""The fragment of all events of several."""

from __future__ import annotations

from warehouse.tables.table import Fragment, Overlay, merge_fragments

_DIGESTS = {"query": "1" * 64, "price": "2" * 64}


def test_an_overlaid_column_that_a_member_lacks_is_left_out() -> None:
    first = Fragment("a" * 64, "a.parquet", (0,), 3, 10, _DIGESTS, overlays=(
        Overlay("price", "overlays/price", "2" * 64), Overlay("query", "overlays/query", "1" * 64)
    ))  # fmt: skip
    second = Fragment("b" * 64, "b.parquet", (0,), 4, 10, {"query": "3" * 64})
    merged = merge_fragments([first, second])
    assert (merged.rows, set(merged.digests)) == (7, {"query"})
    assert [one.column for one in merged.overlays] == ["query"]
