"""States that are asked event by event answer what the whole log gives, to the last bit."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import transforms.expressions.expression as hr
from tests.transforms.online.scenes import (
    EVENT_SCHEMA,
    EVENTS,
    OPTIONS,
    ROWS,
    SCHEMA,
    SECOND,
    START,
    WINDOW,
    bits,
    every_aggregate,
    hopping,
    joined_table,
    keyed,
    micros,
    offline,
    some_aggregates,
    stretched,
)
from transforms.errors import InputError, NotFound
from transforms.expressions.tables import table as hr_table
from transforms.joins.columns_read import own_columns
from transforms.online.joined_table import JoinedTable
from transforms.online.kernel_rows import TileSizes
from transforms.online.needed_rows import needed_rows
from transforms.online.states import OnlineStates

FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def states(table: JoinedTable, rows: list[dict[str, Any]] = [], since: datetime = START, **options: Any) -> OnlineStates:  # noqa: B006  # fmt: skip
    block = needed_rows(table, table.computed(pa.Table.from_pylist(rows, SCHEMA)), micros(since))
    return OnlineStates([table], {table.name: block}, since_micros=micros(since), sizes=SMALL_TILES, **options)


#: So that a key of a few rows has several tiles, with one time or more, and gets new ones now and then.
SMALL_TILES = TileSizes(1, 3, 5)


#: The rules by which columns of one table see its rows.
SEVERAL = st.lists(OPTIONS, min_size=1, max_size=2)
#: Times of seconds, or of 7 hours, with midnights between them.
FACTORS = st.sampled_from([1, 7 * 3_600])


@pytest.mark.medium
@given(ROWS, EVENTS, SEVERAL, WINDOW, FACTORS, st.integers(0, 12), st.data())
def test_a_replay_in_order_of_visibility_is_the_offline_column(rows, events, options, window, factor, since_secs, data):
    """Rows before a moment are there from the start; each later one is pushed before the first event that may see it, or earlier."""
    rows, events, window = (
        stretched(rows, factor),
        stretched(events, factor),
        None if window is None else window * factor,
    )
    table = joined_table(data.draw(some_aggregates(options, window)))
    since = START + since_secs * SECOND * factor
    events = sorted((one for one in events if one["at"] >= since), key=lambda one: one["at"])
    known = [min((at for each in options if (at := _known(row, each)) is not None), default=None) for row in rows]
    is_there = [at is None or at < since or data.draw(st.booleans()) for at in known]
    moment = [since]
    found = states(table, [row for row, there in zip(rows, is_there, strict=True) if there], since, lateness=0 * SECOND, clock=lambda: moment[0].timestamp())  # fmt: skip
    waiting = sorted((at, k) for k, at in enumerate(known) if not is_there[k])
    for event, expected in zip(events, offline(table.definitions, rows, events), strict=True):
        moment[0] = event["at"]
        pushed = [one for one in waiting if one[0] <= event["at"] or data.draw(st.booleans())]
        for one in data.draw(st.permutations(pushed)):
            found.push("log", rows[one[1]])
            waiting.remove(one)
        if data.draw(st.booleans()):
            found.remove_unseen()
        answer = found.features({name: event[name] for name in found.keys}, event["at"])
        assert bits(answer) == bits(expected)


def _known(row: dict[str, Any], options: dict[str, Any]) -> datetime | None:
    """From when on a row is seen; None if it never is."""
    if row["time"] is None or ("known_at" in options and row["known"] is None):
        return None
    at = row["time"] + options.get("available_after", 0 * SECOND)
    return max(at, row["known"]) if "known_at" in options else at


@pytest.mark.medium
@given(ROWS, EVENTS, SEVERAL, WINDOW, st.data())
def test_any_order_of_pushes_and_questions_is_the_offline_column_of_what_was_pushed(
    rows, events, options, window, data
):
    """Rows may be pushed early or late, one by one or in lists, also between two questions of one moment."""
    columns = [one for each in options for one in every_aggregate(keyed(each), window)]
    columns += [one for each in options if window and "as_of" not in each for one in hopping(keyed(each), window)]
    table = joined_table(columns)
    found = states(table)
    order = data.draw(st.permutations(range(len(rows))))
    ends = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=4))})
    for begin, end in pairwise([0, *ends]):
        found.push("log", [rows[k] for k in order[begin:end]])
        expected = offline(table.definitions, [rows[k] for k in order[:end]], events)
        answers = [found.features({name: event[name] for name in found.keys}, event["at"]) for event in events]
        assert [bits(one) for one in answers] == [bits(one) for one in expected]


@given(ROWS, EVENTS, WINDOW)
def test_many_keys_at_once_are_as_each_alone_and_as_offline(rows, events, window):
    table = joined_table(every_aggregate(keyed({}), window))
    now = START + 20 * SECOND
    found = states(table, rows)
    together = found.features(pa.Table.from_pylist(events, EVENT_SCHEMA), now)
    alone = [found.features({"user": one["user"], "m": one["m"]}, now) for one in events]
    assert [bits(one) for one in together.to_pylist()] == [bits(one) for one in alone]
    assert [bits(one) for one in alone] == [bits(one) for one in offline(table.definitions, rows, [{**one, "at": now} for one in events])]  # fmt: skip
    assert {field.name: field.type for field in together.schema} == {name: parts.kind for name, parts in table.parts.items()}  # fmt: skip


@pytest.mark.medium
@given(ROWS, WINDOW, FACTORS, st.integers(0, 14), st.integers(0, 14), SEVERAL, st.data())
def test_rows_that_are_left_out_change_no_later_answer(rows, window, factor, since, later, options, data):
    """Leaving out twice is leaving out once."""
    rows, window, since, later = (
        stretched(rows, factor),
        None if window is None else window * factor,
        since * factor,
        later * factor,
    )
    table = joined_table(data.draw(some_aggregates(options, window)))
    whole = table.computed(pa.Table.from_pylist(rows, SCHEMA))
    once = needed_rows(table, whole, micros(START + since * SECOND))
    now = START + (since + later) * SECOND
    answers = [
        bits(OnlineStates([table], {"log": block}, since_micros=0).features(_asked(table, user), now))
        for block in (whole, once, needed_rows(table, once, micros(now)))
        for user in ("a", "b")
    ]
    assert answers[:2] == answers[2:4] == answers[4:]


def _asked(table: JoinedTable, user: str) -> dict[str, Any]:
    names = {column.name for one in table.definitions.values() for column in own_columns(one)}
    return {name: {"user": user, "m": 1}[name] for name in names}


def row(secs: float, **values: Any) -> dict[str, Any]:
    return {"id": "a", "m": 0, "time": START + secs * SECOND, "known": START, "n": 1, "x": 1.0, "name": "", "good": True, **values}  # fmt: skip


def test_what_is_left_out():
    """Ten rows of one key, a second apart, for events from the last but one on, and the last one known late."""
    log = keyed({"known_at": "known"})
    rows = [row(k, known=START + (k if k < 9 else 20) * SECOND) for k in range(10)]
    n, since = hr.int64("n"), micros(START + 9 * SECOND)
    for column, kept in (
        (log.latest(n), 2), (log.last(3, n), 4), (log.ages(3), 4), (log.first(n), 1), (log.first(n, window=4 * SECOND), 5), (log.count(), 10),
        (log.count(window=4 * SECOND), 5), (log.sum(n, window="4s", hop="3s"), 7), (log.where(n > 3).count(), 0), (log.latest(n, max_age=0 * SECOND), 1),
    ):  # fmt: skip
        table = joined_table([column])
        assert len(needed_rows(table, table.computed(pa.Table.from_pylist(rows, SCHEMA)), since).time) == kept, column


def test_a_row_at_the_moment_itself_is_seen_by_those_rules_that_say_so():
    rules = (
        {},
        {"including_equal": True},
        {"available_after": "1s"},
        {"available_after": "1s", "including_equal": True},
    )
    table = joined_table([keyed(one).count(window="9s") for one in rules] + [keyed({}).latest(hr.int64("n"))])
    now = START + 9 * SECOND
    found = states(table, [row(5, n=5), row(8, n=8), row(9, n=9)], now)
    assert list(found.features({"user": "a"}, now).values()) == [2, 3, 1, 2, 8]
    assert list(found.features({"user": "a"}, now + SECOND).values()) == [3, 3, 2, 3, 9]
    latest = states(joined_table([keyed({}).latest(hr.int64("n"))]), [row(5, n=5), row(8, n=8), row(9, n=9)], now)
    assert latest.rows_of("log") == 2
    assert list(latest.features({"user": "a"}, now).values()) == [8]


def test_rows_may_be_pushed_in_any_order():
    n = hr.int64("n")
    table = joined_table(
        [keyed({}).latest(n), keyed({}).first(n), keyed({}).count(window=4 * SECOND), keyed({}).last(3, n)]
    )
    found = states(table)
    for k in (5, 9, 3, 8, 1):
        found.push("log", row(k, n=k))
    assert list(found.features({"user": "a"}, START + 10 * SECOND).values()) == [9, 1, 2, [5, 8, 9]]


def test_rows_that_no_event_sees_leave_memory():
    table = joined_table([keyed({}).count(window=10 * SECOND), keyed({}).latest(hr.int64("n"))])
    found = states(table, lateness=5 * SECOND, clock=lambda: micros(START + timedelta(days=1)) / 1e6)
    for k in range(200):
        found.push("log", [row(k * 10 + each / 200) for each in range(200)])
    assert found.rows_of("log") < 30_000
    found.remove_unseen()
    assert found.rows_of("log") == 400, "two windows of 10 s and 5 s of lateness"
    with pytest.raises(InputError, match="not be earlier"):
        found.features({"user": "a"}, START + 100 * SECOND)


def test_a_row_of_the_future_makes_no_other_leave():
    table = joined_table([keyed({}).count(window=10 * SECOND)])
    found = states(table, lateness=0 * SECOND, clock=lambda: micros(START + 5 * SECOND) / 1e6)
    found.push("log", [row(1), row(10_000)])
    found.remove_unseen()
    (count,) = found.features({"user": "a"}, START + 6 * SECOND).values()
    assert count == 1


def test_a_question_of_the_future_makes_no_row_leave():
    table = joined_table([keyed({}).count(window=10 * SECOND)])
    found = states(table, lateness=0 * SECOND, clock=lambda: micros(START + 5 * SECOND) / 1e6)
    found.push("log", row(1))
    assert list(found.features({"user": "a"}, START + 10_000 * SECOND).values()) == [0]
    found.remove_unseen()
    assert list(found.features({"user": "a"}, START + 6 * SECOND).values()) == [1]


def test_keys_and_rows_are_checked():
    table = joined_table(every_aggregate(keyed({"known_at": "known"}), None))
    found = states(table)
    assert found.keys == {"user": pa.string(), "m": pa.int64()}
    assert found.table_names == ("log",)
    good = row(1)
    for wrong, match in (
        ({"id": 3}, "have the type string"), ({"n": True}, "have the type int64"), ({"n": 1.0}, "have the type int64"), ({"time": "now"}, "have the type timestamp"),
        ({"good": 1}, "have the type bool"), ({"n": 1 << 70}, "have the type int64"), ({"id": "\ud800"}, "have the type string"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=match):
            found.push("log", [good, {**good, **wrong}])
    with pytest.raises(InputError, match="no id"):
        found.push("log", {name: value for name, value in good.items() if name != "id"})
    with pytest.raises(InputError, match="by the names"):
        found.push("log", [3])
    with pytest.raises(NotFound, match="log"):
        found.push("other", good)
    assert found.rows_of("log") == 0, "a wrong row of several adds none"
    for keys, match in (({"user": "a"}, "no m"), ({"user": 3, "m": 1}, "have the type string"), ({"user": "a", "m": True}, "have the type int64")):  # fmt: skip
        with pytest.raises(InputError, match=match):
            found.features(keys, START)
    with pytest.raises(InputError, match="datetime"):
        found.features({"user": "a", "m": 1}, 3)
    with pytest.raises(InputError, match="not be earlier"):
        found.features({"user": "a", "m": 1}, START - SECOND)


@pytest.mark.parametrize("user", ["a", "ü", "", None, "😀"])
def test_texts_truth_values_and_times_are_keys(user):
    """Some are read as they are, others are converted; both find the rows of their key."""
    keys = {"user": user, "m": 1, "good": True, "time": START}
    of_key = hr_table("log").by("id", equals=hr.text("user")).by(hr.boolean("good"))
    for columns in ([of_key.count()], [of_key.count(), of_key.by(hr.timestamp("time")).count()], [of_key.by("n", equals=hr.int64("m") + 0).count()]):  # fmt: skip
        found = states(joined_table(columns))
        found.push("log", [row(0, id=user), row(0, id="other"), row(0, id=user, good=False)])
        asked = {name: keys[name] for name in found.keys}
        assert list(found.features(asked, START + SECOND).values()) == [0 if user is None else 1] * len(columns)


def test_answers_are_those_of_some_moment_while_rows_are_pushed():
    table = joined_table([keyed({}).count(), keyed({}).sum(hr.int64("n"))])
    found = states(table)
    now, wrong, ended = START + 10_000 * SECOND, [], threading.Event()

    def ask() -> None:
        least = 0
        while not ended.is_set():
            count, total = found.features({"user": "a"}, now).values()
            if count < least or total != count:
                wrong.append((least, count, total))
            least = count

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for one in asking:
        one.start()
    for k in range(100):
        found.push("log", [row(k)] * 3)
        if k % 10 == 0:
            found.remove_unseen()
    ended.set()
    for one in asking:
        one.join()
    assert wrong == []
    assert list(found.features({"user": "a"}, now).values()) == [300, 300.0]
