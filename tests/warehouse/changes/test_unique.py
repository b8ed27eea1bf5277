"""Rows with new keys, compared with a set of tuples."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from warehouse.changes.unique import unseen_rows

_ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from(["", "a", "b"])), max_size=12)


def columns(rows: list[tuple[int | None, str]]) -> dict[str, pa.Array]:
    return {"a": pa.array([row[0] for row in rows], pa.int64()), "b": pa.array([row[1] for row in rows], pa.string())}


@given(_ROWS, st.lists(_ROWS, max_size=3))
def test_a_row_with_a_new_key_is_kept(
    new: list[tuple[int | None, str]], known: list[list[tuple[int | None, str]]]
) -> None:
    seen = {row for part in known for row in part}
    expected = []
    for row in new:
        expected.append(row[0] is None or row not in seen)
        seen.add(row)
    assert unseen_rows(columns(new), [columns(part) for part in known]).tolist() == expected
