"""Features of earlier clicks, compared with a slow implementation; later clicks have no effect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.formats.clicks import HOUR_US, Clicks, past_of
from pipelines.formats.negatives import draw_negatives, uniform
from tests.support.examples import scaled
from transforms.errors import DataError

Event = tuple[int, int, int]
EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 40).map(lambda n: n * HOUR_US // 4)),
    min_size=1,
    max_size=40,
).map(lambda events: sorted(events, key=lambda event: event[2]))


def clicks_of(events: list[Event]) -> Clicks:
    user, item, time_us = (np.array(column, np.int64) for column in zip(*events, strict=True))
    return Clicks(user, item, time_us)


@given(EVENTS, st.integers(1, 4))
@settings(max_examples=scaled(100))
def test_history_is_what_the_user_clicked_strictly_before(events: list[Event], most: int) -> None:
    clicks = clicks_of(events)
    past = past_of(clicks.user, clicks.time_us)
    offsets, positions = past.latest(most)
    for row, (user, _, time_us) in enumerate(events):
        before = [at for at, event in enumerate(events) if event[0] == user and event[2] < time_us]
        assert past.count[row] == len(before)
        assert past.last[row] == (before[-1] if before else -1)
        assert positions[offsets[row] : offsets[row + 1]].tolist() == before[::-1][:most]


@given(EVENTS, st.integers(1, 5))
@settings(max_examples=scaled(100))
def test_counts_and_ages_look_strictly_back(events: list[Event], hours: int) -> None:
    clicks = clicks_of(events)
    event, item = (grid.ravel() for grid in np.meshgrid(np.arange(len(events)), np.arange(clicks.items)))
    item = item[np.isin(item, clicks.item)]
    event = event[: len(item)] if len(item) < len(event) else event
    recent = clicks.clicks_in_hours_before(event, item, hours)
    rolling = clicks.clicks_in_secs_before(event, item, 1800)
    age, seen = clicks.item_age_hours(event, item)
    for at in range(len(event)):
        now = events[event[at]][2]
        hour = now // HOUR_US
        times = [time_us for _, clicked, time_us in events if clicked == item[at]]
        assert recent[at] == sum(hour - hours <= time_us // HOUR_US < hour for time_us in times)
        assert rolling[at] == sum(now - 1800 * 1_000_000 <= time_us < now for time_us in times)
        assert seen[at] == (min(times) < now)
        if seen[at]:
            assert age[at] == np.float32((now - min(times)) / HOUR_US)


@given(EVENTS, st.integers(0, 40), st.floats(0, 3), st.integers(0, 5))
@settings(max_examples=scaled(150))
def test_the_future_changes_no_draw_and_no_value(events: list[Event], kept: int, rate: float, seed: int) -> None:
    whole = clicks_of(events)
    part = clicks_of(events[: max(kept, 1)])
    drawn, earlier = draw_negatives(whole, rate, 4, seed), draw_negatives(part, rate, 4, seed)
    within = drawn.event < len(part)
    assert np.array_equal(drawn.event[within], earlier.event)
    assert np.array_equal(drawn.item[within], earlier.item)
    for value in (
        lambda clicks: clicks.clicks_in_hours_before(earlier.event, earlier.item, 4),
        lambda clicks: clicks.clicks_in_secs_before(earlier.event, earlier.item, 3600),
        lambda clicks: clicks.item_age_hours(earlier.event, earlier.item)[0],
        lambda clicks: past_of(clicks.user, clicks.time_us).latest(3)[1][: len(past_of(part.user, part.time_us).latest(3)[1])],
    ):  # fmt: skip
        # A cut in the middle of one time leaves out equals, which nothing may see either.
        assert np.array_equal(value(whole), value(part))


@given(EVENTS, st.integers(0, 5))
@settings(max_examples=scaled(100))
def test_a_negative_was_clicked_in_the_window_and_not_by_this_user(events: list[Event], seed: int) -> None:
    clicks = clicks_of(events)
    negatives = draw_negatives(clicks, 2, 3, seed)
    assert len(negatives.event) + negatives.not_drawn == 2 * len(events)
    for event, item in zip(negatives.event.tolist(), negatives.item.tolist(), strict=True):
        user, _, time_us = events[event]
        hour = time_us // HOUR_US
        assert any(i == item and hour - 3 <= t // HOUR_US < hour for _, i, t in events)
        assert all(i != item for u, i, _ in events[: event + 1] if u == user)


def test_draws_follow_the_click_counts() -> None:
    counts = {0: 100, 1: 300, 2: 600}
    events = [(user, item, 0) for item, count in counts.items() for user in range(count)]
    events += [(10_000 + user, 3, HOUR_US) for user in range(20_000)]
    negatives = draw_negatives(clicks_of(events), 1, 1, seed=1)
    shares = np.bincount(negatives.item, minlength=4) / len(negatives.item)
    assert negatives.not_drawn == 1000
    # Three standard errors of the largest share.
    assert shares == pytest.approx([0.1, 0.3, 0.6, 0], abs=3 * np.sqrt(0.6 * 0.4 / 20_000))


def test_the_rate_may_be_a_fraction() -> None:
    events = [(user, user % 2, 0) for user in range(100)] + [(200 + user, 2, HOUR_US) for user in range(20_000)]
    drawn = len(draw_negatives(clicks_of(events), 1.25, 1, seed=0).event)
    assert drawn == pytest.approx(25_000, abs=3 * np.sqrt(20_000 * 0.25 * 0.75))


def test_seeds_differ_and_repeat() -> None:
    position, counter = np.arange(1000), np.zeros(1000, np.int64)
    one, other = uniform(1, 0, position, counter), uniform(2, 0, position, counter)
    assert np.array_equal(one, uniform(1, 0, position, counter))
    assert not np.any(one == other)
    assert not np.any(one == uniform(1, 1, position, counter))
    assert one.mean() == pytest.approx(0.5, abs=0.03)
    assert np.all((one >= 0) & (one < 1))


def test_clicks_out_of_order_are_refused() -> None:
    with pytest.raises(DataError, match="order"):
        Clicks(np.zeros(2, np.int64), np.zeros(2, np.int64), np.array([2, 1]))
