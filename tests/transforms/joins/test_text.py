"""Definitions as text."""

from __future__ import annotations

import pytest

from transforms.expressions.expression import Expr, boolean, int64, text, timestamp
from transforms.expressions.tables import table
from transforms.joins.column import JoinedColumn
from transforms.joins.text import definition_text

CLICKS = table("clicks").by(int64("item"))
USERS = table("users", available_after="10m", known_at="at", including_equal=True, as_of="day", zone="Asia/Tokyo")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (CLICKS.count(), "table(clicks).by(item).count()"),
        (CLICKS.where(boolean("clicked")).count(window="7d", hop="1h"), "table(clicks).where(clicked).by(item).count(window=7d, hop=1h)"),
        (CLICKS.ratio(boolean("clicked"), prior=(1, 50)), "table(clicks).by(item).ratio(clicked, prior=(1, 50))"),
        (CLICKS.by("h", equals=timestamp("time").hour_of_day()).sum(int64("n")), "table(clicks).by(item).by(h, equals=hour_of_day(time)).sum(n)"),
        (CLICKS.last(50, text("title").lower(), window="30d"), "table(clicks).by(item).last(50, lower(title), window=30d)"),
        (CLICKS.ages(5), "table(clicks).by(item).ages(5)"),
        (CLICKS.decayed(half_life="6h"), "table(clicks).by(item).decayed(half_life=6h)"),
        (CLICKS.distinct(int64("user"), exact_most=9), "table(clicks).by(item).distinct(user, exact_most=9, precision=12)"),
        (USERS.by("id", equals=int64("user")).latest(text("country"), max_age="90d", order=int64("version")),
         "table(users, available_after=10m, known_at=at, including_equal=True, as_of=day, zone=Asia/Tokyo).by(id, equals=user).latest(country, max_age=90d, order=version)"),
    ],
)  # fmt: skip
def test_a_definition_reads_as_it_is_written(column: Expr, expected: str) -> None:
    assert isinstance(column.node, JoinedColumn)
    assert definition_text(column.node.definition) == expected
