"""Views depend on what fragments hold, on nothing else."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from transforms.graphs.encoding import digest
from warehouse.joins.changed_values import cause_text
from warehouse.joins.views import TimedFragment, Views
from warehouse.models.joined_columns import JoinedRecord
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import Fragment, Overlay

_START = datetime(2026, 1, 1, tzinfo=UTC)
_HOUR = 3_600 * 10**6
CLICKS = hr.table("clicks").by("id", equals=hr.int64("user"))


def fragment(row: int, hour: int, content: str = "", **given: object) -> TimedFragment:
    """A fragment of one hour; ``content``: of its columns."""
    digests = {name: digest([name, content or row]) for name in ("time", "id", "paid", "at", "user")}
    start = _START + timedelta(hours=hour)
    stored = Fragment(digest(["fragment", content or row]), f"f/{row}", (0,), 10, 100, digests, **given)
    placed = PlacedFragment(row, f"h{hour}", 1, start, start + timedelta(hours=1), 0, stored)
    first = int(start.timestamp() * 10**6)
    return TimedFragment(placed, first, first + _HOUR - 1)


def record(expression: hr.Expr) -> JoinedRecord:
    definition = expression.node.definition
    return JoinedRecord("log", definition.column, definition, 0.0)


PAID = CLICKS.sum(hr.float64("paid"), window="2h")
OTHERS = [fragment(row, row % 8) for row in range(16)]


def view(others: list[TimedFragment], expression: hr.Expr = PAID, hour: int = 5) -> str:
    return Views("at", others, "time").digest(record(expression), fragment(99, hour))


@given(st.randoms())
def test_the_order_of_fragments_is_none_of_its_parts(shuffle: random.Random):
    others = list(OTHERS)
    shuffle.shuffle(others)
    assert view(others) == view(OTHERS)


@pytest.mark.parametrize(
    ("others", "is_other"),
    [
        ([*OTHERS, fragment(50, 7)], False),
        ([*OTHERS, fragment(50, 0)], False),
        ([*OTHERS, fragment(50, 4)], True),
        (OTHERS[:5] + OTHERS[6:], True),
        ([replace(one, placed=replace(one.placed, row=one.placed.row + 500)) for one in OTHERS], False),
        ([fragment(500 + k, k % 8, content=str(k)) if k == 5 else one for k, one in enumerate(OTHERS)], True),
        ([fragment(k, k % 8, deletions=Overlay("deleted", "d", "e" * 64), deleted_rows=1) if k == 5 else one for k, one in enumerate(OTHERS)], True),
        ([*OTHERS, TimedFragment(fragment(50, 4).placed, None, None)], False),
    ],
    ids=["later", "before the window", "inside", "gone", "other rows", "other content", "deleted rows", "without a time"],
)  # fmt: skip
def test_it_is_another_one_where_what_may_be_seen_is(others, is_other):
    assert (view(others) != view(OTHERS)) == is_other


def test_columns_that_are_not_read_are_none_of_its_parts():
    def with_paid(value: str) -> list[TimedFragment]:
        return [
            replace(one, placed=replace(one.placed, fragment=replace(one.placed.fragment, digests={**one.placed.fragment.digests, "paid": digest(value)})))
            for one in OTHERS
        ]  # fmt: skip

    assert view(with_paid("a"), CLICKS.count()) == view(with_paid("b"), CLICKS.count())
    assert view(with_paid("a")) != view(with_paid("b"))
    assert view(OTHERS, CLICKS.count()) != view(OTHERS, CLICKS.count(window="9d")), "the definition is a part"


def test_views_of_many_fragments_are_quick():
    others = [fragment(row, row) for row in range(1_500)]
    views, wanted = Views("at", others, "time"), [record(CLICKS.count()), record(CLICKS.count(window="7d"))]
    begun = time.process_time()
    for own in others[::3]:
        for one in wanted:
            views.digest(one, own)
    assert time.process_time() - begun < 2


def test_causes_say_what_came_and_what_went():
    assert cause_text("clicks", None, {b"a": 3}, None, 5) == "the first values"
    assert (
        cause_text("clicks", {b"a": 3}, {b"a": 3, b"b": 12}, 3, 20)
        == "12 new rows of clicks changed 3 of 20 events here"
    )
    assert cause_text("clicks", {b"a": 3}, {}, 1, 20) == "3 rows fewer of clicks changed 1 of 20 events here"
    assert (
        cause_text("clicks", {b"a": 3}, {b"b": 2}, 1, 20)
        == "2 rows in place of 3 of clicks changed 1 of 20 events here"
    )
    assert (
        cause_text("clicks", {b"a": 3}, {b"a": 3}, 1, 20)
        == "events with another key or time changed 1 of 20 events here"
    )
