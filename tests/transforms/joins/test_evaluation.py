"""Joined columns against a plain reference, over tables with equal times, nulls, late rows and self joins."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import transforms.expressions.expression as hr
from transforms.graphs.graph import component_document
from transforms.joins.definition import Aggregate, JoinDefinition, KeyPair
from transforms.joins.evaluation import joined_column

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
_TIMES = st.none() | st.integers(0, 8).map(lambda secs: EPOCH + timedelta(seconds=secs))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.sampled_from(["a", "b"]),
            "time": _TIMES,
            "known": _TIMES,
            "n": st.none() | st.integers(-3, 3),
            "x": st.none() | st.sampled_from([0.1, 0.2, 1e16, -1e16, -0.0, 0.0, math.inf, math.nan]),
            "good": st.none() | st.booleans(),
        }
    ),
    max_size=14,
)
EVENTS = st.lists(st.fixed_dictionaries({"user": st.none() | st.sampled_from(["a", "b", "c"]), "at": _TIMES}), min_size=1, max_size=8)  # fmt: skip
SCHEMA = pa.schema([("id", pa.string()), ("time", TIME), ("known", TIME), ("n", pa.int64()), ("x", pa.float64()), ("good", pa.bool_())])  # fmt: skip
EVENT_SCHEMA = pa.schema([("user", pa.string()), ("at", TIME)])
KEYS = (KeyPair(component_document(hr.text("id").node), component_document(hr.text("user").node)),)
VALUES = {"n": hr.int64("n"), "x": hr.float64("x")}


def defined(aggregate: Aggregate, value: str = "n", **given: Any) -> JoinDefinition:
    prior = {"prior": (1.0, 4.0)} if aggregate is Aggregate.RATIO else {}
    rows = {"rows": 2} if aggregate is Aggregate.LAST else {}
    of = {} if aggregate is Aggregate.COUNT else {"value": component_document(VALUES[value].node)}
    return JoinDefinition(table="log", keys=KEYS, aggregate=aggregate, **of, **prior, **rows, **given)


def visible(definition: JoinDefinition, rows: list[dict[str, Any]], event: dict[str, Any], value: str) -> list[Any]:
    """The values that an event sees, in the order of their rows."""
    if event["user"] is None or event["at"] is None:
        return []
    found = []
    for row in rows:
        if row["id"] != event["user"] or row["time"] is None or (definition.where is not None and not row["good"]):
            continue
        known = row["time"] + timedelta(microseconds=definition.available_after_micros)
        if definition.known_at:
            if row["known"] is None:
                continue
            known = max(known, row["known"])
        window = definition.window_micros
        is_late = window is not None and row["time"] < event["at"] - timedelta(microseconds=window)
        before = (lambda at: at <= event["at"]) if definition.includes_equal else (lambda at: at < event["at"])
        if is_late or not before(row["time"]) or not before(known):
            continue
        if definition.aggregate is not Aggregate.COUNT and row[value] is None:
            continue
        found.append((row["time"], _rank(row[value]), row[value]))
    return [value for _, _, value in sorted(found, key=lambda one: one[:2])]


def _rank(value: Any) -> tuple[float, float]:
    if value is None:
        return (-math.inf, 0)
    if isinstance(value, float):
        return (math.inf, 1) if math.isnan(value) else (value, math.copysign(1, value))
    return (value, 0)


def reduced(definition: JoinDefinition, seen: list[Any]) -> Any:
    numbers = [float(one) for one in seen if one is not None]
    match definition.aggregate:
        case Aggregate.COUNT:
            return len(seen)
        case Aggregate.LATEST:
            return seen[-1] if seen else None
        case Aggregate.FIRST:
            return seen[0] if seen else None
        case Aggregate.LAST:
            return seen[-definition.rows :]
        case Aggregate.SUM:
            return sum(numbers)
        case Aggregate.MEAN:
            return sum(numbers) / len(numbers) if numbers else None
        case Aggregate.RATIO:
            add, to = definition.prior
            return (sum(numbers) + add) / (len(numbers) + to)
        case Aggregate.MIN:
            return min(numbers) if numbers else None
        case _:
            return max(numbers) if numbers else None


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "window_micros": st.integers(0, 5).map(lambda secs: secs * 10**6),
        "available_after_micros": st.integers(0, 3).map(lambda secs: secs * 10**6),
        "known_at": st.just("known"),
        "includes_equal": st.booleans(),
        "where": st.just(component_document(hr.boolean("good").node)),
    },
)


@given(ROWS, EVENTS, st.sampled_from(list(Aggregate)), OPTIONS)
def test_whole_numbers_are_those_of_the_reference(
    rows: list[dict[str, Any]], events: list[dict[str, Any]], aggregate: Aggregate, options: dict[str, Any]
) -> None:
    definition = defined(aggregate, **options)
    found = joined_column(definition, pa.Table.from_pylist(events, EVENT_SCHEMA), "at", pa.Table.from_pylist(rows, SCHEMA), "time")  # fmt: skip
    assert found.to_pylist() == [reduced(definition, visible(definition, rows, event, "n")) for event in events]


@given(ROWS, EVENTS, st.sampled_from(list(Aggregate)), OPTIONS, st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_what_is_not_seen_changes_a_bit(
    rows: list[dict[str, Any]], events: list[dict[str, Any]], aggregate: Aggregate, options: dict[str, Any], random: Any
) -> None:
    """Floats, too, whose sums depend on their order."""
    definition = defined(aggregate, "x", **options)

    def bits(of: list[dict[str, Any]], some: list[dict[str, Any]]) -> list[Any]:
        found = joined_column(definition, pa.Table.from_pylist(some, EVENT_SCHEMA), "at", pa.Table.from_pylist(of, SCHEMA), "time")  # fmt: skip
        return [_bits(one) for one in found.to_pylist()]

    whole = bits(rows, events)
    assert whole == bits(random.sample(rows, len(rows)), events)
    for event, expected in zip(events, whole, strict=True):
        kept = [row for row in rows if visible(definition, [row], event, "x")]
        assert bits(kept, [event]) == [expected]


def _bits(value: Any) -> Any:
    if isinstance(value, list):
        return [_bits(one) for one in value]
    return np.float64(value).tobytes() if isinstance(value, float) and not math.isnan(value) else str(value)


def test_a_planted_value_never_leaks() -> None:
    """At the time of the event, a microsecond later, or known later: it is not seen."""
    at = EPOCH + timedelta(seconds=5)
    micro = timedelta(microseconds=1)
    rows = [{"id": "a", "time": at + delay, "known": at + known, "n": 99} for delay, known in ((0 * micro, -micro), (micro, -micro), (-micro, 0 * micro), (-micro, micro))]  # fmt: skip
    rows.append({"id": "a", "time": at - micro, "known": at - micro, "n": 1})
    for aggregate in Aggregate:
        definition = defined(aggregate, known_at="known")
        found = joined_column(definition, pa.table({"user": ["a"], "at": pa.array([at], TIME)}), "at", pa.Table.from_pylist(rows, SCHEMA), "time")  # fmt: skip
        assert "99" not in str(found.to_pylist())
        assert found.to_pylist() == [reduced(definition, [1])]
