"""Which tables are sent as rows: those that need fewer bytes so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.tables.routes.towers.sent_forms import TableUse, sent_as_rows
from trainer.tables.wire.encoded_values import FP16


def use(ids: int, distinct: int, bags: int, dim: int = 32) -> TableUse:
    return TableUse(*(np.array([one], np.int64) for one in (ids, distinct, bags, bags * dim, dim)))


@pytest.mark.parametrize(
    ("ids", "distinct", "bags", "expected"),
    [
        (256, 181, 256, True),  # rows repeat
        (256, 256, 256, True),  # they do not, but lengths are spared
        (20 * 64, 700, 64, False),
        (20 * 64, 40, 64, True),  # long bags of few rows
        (0, 0, 64, True),
        (64 * 9, 65, 64, False),  # no place for the last row
    ],
)
def test_rows_are_sent_where_they_repeat(ids, distinct, bags, expected):
    assert sent_as_rows(use(ids, distinct, bags), id_bytes=4, has_weights=False, flag=0).tolist() == [expected]


def test_narrow_rounded_values_count_for_less():
    near = use(200, 100, 99, dim=1)
    assert not sent_as_rows(near, id_bytes=4, has_weights=True, flag=FP16)[0]


@settings(max_examples=scaled(100))
@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 200), st.integers(1, 64))
def test_fewer_rows_are_sent_whenever_more_are(ids, distinct, bags, dim):
    given_ = {"id_bytes": 8, "has_weights": True, "flag": 0}
    if sent_as_rows(use(ids, distinct, bags, dim), **given_)[0]:
        assert distinct <= bags
        assert sent_as_rows(use(ids, distinct // 2, bags, dim), **given_)[0]
