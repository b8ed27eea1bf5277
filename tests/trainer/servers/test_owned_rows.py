"""Which rows of other servers a server owns: arithmetic on strides, against sets of numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.servers.loads.owned_rows import OwnedRows

OWNED = st.builds(OwnedRows, st.integers(1, 12), st.integers(0, 30), st.integers(0, 20))


def rows_of(one: OwnedRows) -> list[int]:
    return [one.stride * r + one.first for r in range(one.count)]


@settings(max_examples=scaled(300))
@given(OWNED, OWNED, st.integers(0, 20), st.integers(0, 20))
def test_the_rows_of_another_server_are_those_of_both(own, other, first, more):
    stop = min(first + more, own.count)
    wanted = set(rows_of(own)[first:stop]) & set(rows_of(other))
    found = own.among(other, first, stop)
    given_ = [] if found is None else list(found.rows)
    assert all(0 <= r < other.count for r in given_)
    assert {other.stride * r + other.first for r in given_} == wanted
    assert len(given_) == len(wanted)


@settings(max_examples=scaled(300))
@given(OWNED, OWNED)
def test_no_shared_row_is_left_out_by_remainders(own, other):
    """Rows beyond the ends of both may be among those of a remainder: who reads by it looks again."""
    shared, found = set(rows_of(own)) & set(rows_of(other)), own.remainder(other)
    if found is None:
        assert not shared
        return
    stride, remainder = found
    assert 0 <= remainder < stride
    by_remainder = [row for r, row in enumerate(rows_of(other)) if r % stride == remainder]
    assert shared <= set(by_remainder)
    assert all((row - own.first) % own.stride == 0 for row in by_remainder)


@given(OWNED, st.lists(st.integers(0, 300), unique=True))
def test_own_numbers_are_those_of_rows_in_the_table(own, rows):
    mine, numbers = own.own(np.array(rows, np.int64))
    kept = [row for row, is_own in zip(rows, mine.tolist(), strict=True) if is_own]
    assert set(kept) == set(rows) & set(rows_of(own))
    assert own.whole(numbers).tolist() == kept


def test_the_largest_ids_of_hashed_tables_do_not_overflow():
    """Two servers have every second of nearly 2^63 ids; three take every third."""
    most = (1 << 63) - 1
    other, own = OwnedRows(2, 1, most // 2), OwnedRows(3, 2, most // 3)
    stride, remainder = own.remainder(other)
    assert (stride, (2 * remainder + 1) % 3) == (3, 2)
    found = own.among(other, own.count - 5, own.count)
    assert [(2 * r + 1) % 3 for r in found.rows] == [2] * len(found.rows)
    assert len(found.rows) in (2, 3)
