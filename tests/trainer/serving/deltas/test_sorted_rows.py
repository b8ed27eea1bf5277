"""Merged windows of sorted rows against dictionaries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import TornCheckpoint
from trainer.serving.deltas.sorted_rows import Rows, RowStream, merge_windows, overlaid

IDS = st.sets(st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 20), max_size=20)
EMPTY = Rows(np.zeros(0, np.int64), (np.zeros((0, 2), np.float32),))


def rows_of(ids: set[int], salt: int) -> Rows:
    found = np.array(sorted(ids), np.int64)
    return Rows(found, (np.stack([found % 97 + salt, found % 89], axis=1).astype(np.float32),))


def cut(rows: Rows, data: st.DataObject) -> Iterator[Rows]:
    """Pieces of any sizes, empty ones too."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    return (rows.part(start, stop) for start, stop in zip((0, *cuts), (*cuts, len(rows)), strict=True))


def as_dict(rows: Rows) -> dict[int, bytes]:
    return {int(key): row.tobytes() for key, row in zip(rows.ids, rows.values[0], strict=True)}


@given(st.lists(IDS, min_size=1, max_size=4), st.data())
def test_windows_hold_every_row_once_and_ranges_ascend(sets, data):
    streams = [rows_of(ids, k) for k, ids in enumerate(sets)]
    found: list[dict[int, bytes]] = [{} for _ in sets]
    last = -(2**64)
    for window in merge_windows([RowStream(cut(one, data), EMPTY) for one in streams], "table"):
        ids = np.concatenate([one.ids for one in window])
        assert len(ids)
        assert ids.min() > last
        last = int(ids.max())
        for own, part in zip(found, window, strict=True):
            own |= as_dict(part)
    assert found == [as_dict(one) for one in streams]


@given(IDS, IDS, IDS)
def test_overlaid_rows_are_those_of_a_dictionary(base, changed, removed):
    removed -= changed
    expected = {key: row for key, row in as_dict(rows_of(base, 0)).items() if key not in removed} | as_dict(rows_of(changed, 1))  # fmt: skip
    found = overlaid(rows_of(base, 0), rows_of(changed, 1), np.array(sorted(removed), np.int64))
    assert as_dict(found) == expected
    assert (found.ids[1:] > found.ids[:-1]).all()
    assert found.values[0].shape == (len(expected), 2)


@pytest.mark.parametrize("pieces", [[[1, 1]], [[2, 1]], [[1, 3], [3]], [[1, 3], [], [2]]])
def test_ids_that_do_not_ascend_are_refused(pieces):
    made = (Rows(np.array(ids, np.int64), (np.zeros((len(ids), 2), np.float32),)) for ids in pieces)
    with pytest.raises(TornCheckpoint, match="ids of a table must ascend"):
        list(merge_windows([RowStream(made, EMPTY)], "table"))
