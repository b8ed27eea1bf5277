"""Shown outputs are compared line by line; what differs between runs may differ."""

from __future__ import annotations

import pytest

from tests.support.shown_output import difference

PRINTED = """\
imported 6,000 rows in 1.25 s, 49.9 KiB

epoch       events      NE   rate
─────────────────────────────────
    1        4,459  0.8649   11,833 a second
    2        4,459  0.8101   12,001 a second
digest 0123456789abcdef0123456789abcdef
"""


@pytest.mark.parametrize(
    "shown",
    [
        PRINTED,
        "imported 6,000 rows in 9 s, 1 MiB\n…",
        "…\nepoch events NE rate\n─\n1 4,459 0.8612 7 a second\n…",
        "imported 6,000 …\n…\n2 4,459 0.8110 …\ndigest ffffffffffffffff0000",
        "…\ndigest ffffffffffffffff0000",
        "…",
    ],
)
def test_what_differs_between_runs_and_what_is_left_out_is_no_difference(shown):
    assert difference(shown, PRINTED) is None


@pytest.mark.parametrize(
    "shown",
    [
        "",
        PRINTED.replace("6,000", "6,001"),
        PRINTED.replace("0.8649", "0.9649"),
        PRINTED.replace("events", "rows"),
        PRINTED.replace("    1  ", "    3  "),
        PRINTED + "one more line",
        PRINTED.replace("digest 0123456789abcdef0123456789abcdef\n", ""),
        PRINTED.replace("0.8649", "-0.8649"),
        "imported 6,000 rows in 9 s, 1 MiB\n2 4,459 0.8101 1 a second\n…",
        "…\n2 4,459 0.8101 1 a second\n1 4,459 0.8649 1 a second\n…",
        "imported 5,000 …\n…",
    ],
)
def test_another_number_word_or_order_is_a_difference(shown):
    assert difference(shown, PRINTED) is not None
