"""Joined columns against a plain reference, over tables with equal times, nulls, late rows and self joins."""

from __future__ import annotations

import math
import zoneinfo
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import transforms.expressions.expression as hr
from tests.support.examples import scaled
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError, InputError, UnknownColumn
from transforms.expressions.tables import table
from transforms.graphs.graph import component_document
from transforms.joins.column import JoinedColumn
from transforms.joins.column_names import Aggregate
from transforms.joins.columns_read import columns_read
from transforms.joins.definition import DayClock, JoinDefinition, KeyPair, column_type
from transforms.joins.evaluation import joined_column, joined_columns
from transforms.joins.keys import number_keys
from transforms.kernels.history_distinct import hashes_of
from transforms.kernels.history_states import decay
from transforms.operators.zones import clock_changes

#: Hours around the night in which the clocks of Berlin lose an hour.
EPOCH = datetime(2026, 3, 28, 20, tzinfo=UTC)
STEP = timedelta(hours=2)
TIME = pa.timestamp("us", "UTC")
_TIMES = st.sampled_from([None, *(EPOCH + steps * STEP for steps in (0, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8))])
_FLOATS = [0.1, 0.2, 1e16, -1e16, -0.0, 0.0, math.inf, math.nan]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["a", "a", "a", "a", "b", "b", None]),
            "time": _TIMES,
            "known": _TIMES,
            "n": st.sampled_from([-3, -2, -1, 0, 1, 2, 3, None]),
            "x": st.sampled_from([*_FLOATS, None]),
            "rank": st.none() | st.integers(0, 1),
            "good": st.sampled_from([True, True, True, False, None]),
        }
    ),
    min_size=2,
    max_size=14,
)
EVENTS = st.lists(st.fixed_dictionaries({"user": st.sampled_from(["a", "a", "a", "b", "b", "c", None]), "at": _TIMES}), min_size=3, max_size=8)  # fmt: skip
SCHEMA = pa.schema([("id", pa.string()), ("time", TIME), ("known", TIME), ("n", pa.int64()), ("x", pa.float64()), ("rank", pa.int64()), ("good", pa.bool_())])  # fmt: skip
EVENT_SCHEMA = pa.schema([("user", pa.string()), ("at", TIME)])
KEYS = (KeyPair(component_document(hr.text("id").node), component_document(hr.text("user").node)),)
VALUES = {"n": hr.int64("n"), "x": hr.float64("x")}
OF_AGGREGATES: dict[Aggregate, dict[str, Any]] = {
    Aggregate.RATIO: {"prior": (1.0, 4.0)},
    Aggregate.LAST: {"rows": 2},
    Aggregate.AGES: {"rows": 3},
    Aggregate.DECAYED: {"half_life_micros": 3 * 3600 * 10**6},
    Aggregate.DISTINCT: {"exact_most": 2, "precision": 4},
}
CLOCKS = [DayClock(zone, *clock_changes(zone)) for zone in ("UTC", "Europe/Berlin")]


def defined(aggregate: Aggregate, value: str = "n", **given: Any) -> JoinDefinition:
    of = {} if aggregate is Aggregate.COUNT else {"value": component_document(VALUES[value].node)}
    return JoinDefinition(table="log", keys=KEYS, aggregate=aggregate, **of, **OF_AGGREGATES.get(aggregate, {}), **given)  # fmt: skip


def computed(definition: JoinDefinition, rows: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[Any]:
    found = joined_column(definition, pa.Table.from_pylist(events, EVENT_SCHEMA), "at", pa.Table.from_pylist(rows, SCHEMA), "time")  # fmt: skip
    assert found.type == arrow_type(column_type(definition))
    values: list[Any] = found.to_pylist()
    return values


def midnight(definition: JoinDefinition, at: datetime) -> datetime:
    if definition.as_of is None:
        return at
    zone = zoneinfo.ZoneInfo(definition.as_of.zone)
    return datetime.combine(at.astimezone(zone).date(), time(), zone).astimezone(UTC)


def window_start(definition: JoinDefinition, at: datetime) -> datetime:
    if definition.window_micros is None:
        return datetime.min.replace(tzinfo=UTC)
    start = at - timedelta(microseconds=definition.window_micros)
    hop = timedelta(microseconds=definition.hop_micros)
    return start - (start - datetime(1970, 1, 1, tzinfo=UTC)) % hop if hop else start


def visible(definition: JoinDefinition, rows: list[dict[str, Any]], event: dict[str, Any], value: str) -> list[dict[str, Any]]:  # fmt: skip
    """The rows that an event sees, in their order."""
    if event["user"] is None or event["at"] is None:
        return []
    found = []
    seen_at = midnight(definition, event["at"])
    for row in rows:
        if row["id"] != event["user"] or row["time"] is None or (definition.where is not None and not row["good"]):
            continue
        known = row["time"] + timedelta(microseconds=definition.available_after_micros)
        if definition.known_at:
            if row["known"] is None:
                continue
            known = max(known, row["known"])
        if row["time"] < window_start(definition, seen_at):
            continue
        latest = max(row["time"], known)
        if latest > seen_at or (latest == seen_at and not definition.includes_equal):
            continue
        if definition.aggregate is not Aggregate.COUNT and row[value] is None:
            continue
        found.append(row)
    return sorted(found, key=lambda row: (row["time"], *((_rank(row["rank"]),) if definition.order else ()), _rank(row[value])))  # fmt: skip


def _rank(value: Any) -> tuple[float, float]:
    if value is None:
        return (-math.inf, 0)
    if isinstance(value, float):
        return (math.inf, 1) if math.isnan(value) else (value, math.copysign(1, value))
    return (value, 0)


def reduced(definition: JoinDefinition, seen: list[dict[str, Any]], event: dict[str, Any], value: str) -> Any:
    values = [row[value] for row in seen]
    numbers = [float(one) for one in values if one is not None]
    match definition.aggregate:
        case Aggregate.COUNT:
            return len(seen)
        case Aggregate.LATEST:
            return values[-1] if seen else None
        case Aggregate.FIRST:
            return values[0] if seen else None
        case Aggregate.LAST:
            return values[-definition.rows :]
        case Aggregate.AGES:
            return [(event["at"] - row["time"]).total_seconds() for row in seen[-definition.rows :]]
        case Aggregate.SUM:
            return sum(numbers)
        case Aggregate.MEAN:
            return sum(numbers) / len(numbers) if numbers else None
        case Aggregate.RATIO:
            add, to = definition.prior
            return (sum(numbers) + add) / (len(numbers) + to)
        case Aggregate.DECAYED:
            if not seen:
                return 0.0
            seen_at, half_life = midnight(definition, event["at"]), timedelta(microseconds=definition.half_life_micros)
            return pytest.approx(sum(row[value] * 0.5 ** ((seen_at - row["time"]) / half_life) for row in seen), rel=1e-12, abs=1e-12)  # fmt: skip
        case Aggregate.DISTINCT:
            return distinct(set(values), definition)
        case Aggregate.MIN:
            return min(numbers) if numbers else None
        case _:
            return max(numbers) if numbers else None


def distinct(values: set[int], definition: JoinDefinition) -> int:
    """Ertl's estimate from the definition of the registers."""
    if len(values) <= definition.exact_most:
        return len(values)
    hashed = [int(one) for one in hashes_of(pa.array(sorted(values), pa.int64()))]
    size, rest = 1 << definition.precision, 64 - definition.precision
    registers = [0] * size
    for one in hashed:
        below = one & ((1 << rest) - 1)
        registers[one >> rest] = max(registers[one >> rest], rest - below.bit_length() + 1)
    share = [registers.count(rank) / size for rank in range(rest + 2)]
    tau = sum((1 - (1 - share[-1]) ** (2.0**-k)) ** 2 * 2.0**-k for k in range(1, 60))
    tau = (1 - (1 - share[-1]) - tau) / 3
    sigma = share[0] + sum(share[0] ** (2**k) * 2 ** (k - 1) for k in range(1, 60))
    below = sigma + sum(share[rank] * 2.0**-rank for rank in range(1, rest + 1)) + tau * 2.0**-rest
    return max(definition.exact_most + 1, round(size / (2 * math.log(2)) / below))


HOUR = 3600 * 10**6
_PRECISION = st.one_of(
    st.just({}),
    st.integers(0, 9).map(lambda hours: {"window_micros": hours * HOUR}),
    st.integers(3, 9).map(lambda hours: {"window_micros": hours * HOUR, "hop_micros": 3 * HOUR}),
    st.tuples(st.none() | st.integers(0, 30), st.sampled_from(CLOCKS)).map(lambda one: {"window_micros": None if one[0] is None else one[0] * HOUR, "as_of": one[1]}),
)  # fmt: skip
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "available_after_micros": st.integers(0, 3).map(lambda hours: hours * HOUR),
        "known_at": st.just("known"),
        "includes_equal": st.booleans(),
        "where": st.just(component_document(hr.boolean("good").node)),
        "order": st.just(component_document(hr.int64("rank").node)),
    },
)


@pytest.mark.medium
@settings(max_examples=scaled(250))
@given(ROWS, EVENTS, st.sampled_from(list(Aggregate)), _PRECISION, OPTIONS)
def test_whole_numbers_are_those_of_the_reference(
    rows: list[dict[str, Any]], events: list[dict[str, Any]], aggregate: Aggregate, precision: dict[str, Any], options: dict[str, Any]
) -> None:  # fmt: skip
    definition = defined(aggregate, **precision, **options)
    expected = [reduced(definition, visible(definition, rows, event, "n"), event, "n") for event in events]
    assert computed(definition, rows, events) == expected


@pytest.mark.parametrize("seed", range(24))
def test_many_rows_are_those_of_the_reference(seed: int) -> None:
    """Tables with many rows of few keys and times, for all aggregates of one set of rules; every third with rows and events in the order of time."""
    rng = np.random.default_rng(seed)
    steps = [None, *range(12)]
    rows = [{"id": "ab"[rng.integers(2)], "time": _at(rng.choice(steps)), "known": _at(rng.choice(steps)), "n": _or_none(rng, 12), "x": 0.0, "rank": _or_none(rng, 2), "good": bool(rng.random() < 0.8)} for _ in range(40)]  # fmt: skip
    events = [{"user": "ab"[rng.integers(2)], "at": _at(rng.choice(steps))} for _ in range(30)]
    if seed % 3 == 0:
        rows = [*{(row["id"], row["time"]): row for row in rows}.values()]
        rows, events = ([one for one in sorted(side, key=lambda one: (one[name] is not None, one[name] or EPOCH)) if one[name] is not None] for side, name in ((rows, "time"), (events, "at")))  # fmt: skip
    options: dict[str, Any] = [{}, {"window_micros": 2 * int(rng.integers(5)) * HOUR}, {"window_micros": 6 * HOUR, "hop_micros": 4 * HOUR}, {"as_of": CLOCKS[1]}][seed // 2 % 4]  # fmt: skip
    options |= {"known_at": "known"} if seed % 2 else {"available_after_micros": int(rng.integers(2)) * 2 * HOUR}
    options |= {"order": component_document(hr.int64("rank").node)} if rng.random() < 0.5 else {}
    definitions = {str(one): defined(one, includes_equal=seed % 5 == 0, **options) for one in Aggregate}
    found = joined_columns(definitions, pa.Table.from_pylist(events, EVENT_SCHEMA), "at", pa.Table.from_pylist(rows, SCHEMA), "time")  # fmt: skip
    for name, one in definitions.items():
        assert found[name].to_pylist() == [
            reduced(one, visible(one, rows, event, "n"), event, "n") for event in events
        ], name


def _at(step: int | None) -> datetime | None:
    return None if step is None else EPOCH + int(step) * STEP


def _or_none(rng: np.random.Generator, values: int) -> int | None:
    return None if rng.random() < 0.1 else int(rng.integers(values))


@pytest.mark.medium
@settings(max_examples=scaled(200))
@given(ROWS, EVENTS, _PRECISION, OPTIONS, st.booleans())
def test_the_latest_row_is_that_of_the_reference_where_all_come_in_the_order_of_time(
    rows: list[dict[str, Any]], events: list[dict[str, Any]], precision: dict[str, Any], options: dict[str, Any], has_ties: bool
) -> None:  # fmt: skip
    """Rows and events need no order by key then, unless rows of one key and time do."""
    seen = {(row["id"], row["time"]): row for row in rows if row["time"] is not None}
    rows = sorted([row for row in rows if row["time"] is not None] if has_ties else seen.values(), key=lambda row: row["time"])  # fmt: skip
    events = sorted((event for event in events if event["at"] is not None), key=lambda event: event["at"])
    definition = defined(Aggregate.LATEST, **precision, **options)
    expected = [reduced(definition, visible(definition, rows, event, "n"), event, "n") for event in events]
    assert computed(definition, rows, events) == expected


@pytest.mark.medium
@given(ROWS, EVENTS, st.sampled_from(list(Aggregate)), _PRECISION, OPTIONS, st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_what_is_not_seen_changes_a_bit(
    rows: list[dict[str, Any]], events: list[dict[str, Any]], aggregate: Aggregate, precision: dict[str, Any], options: dict[str, Any], random: Any
) -> None:  # fmt: skip
    """Floats, too, whose sums depend on their order."""
    definition = defined(aggregate, "x", **precision, **options)

    def bits(of: list[dict[str, Any]], some: list[dict[str, Any]]) -> list[Any]:
        return [_bits(one) for one in computed(definition, of, some)]

    whole = bits(rows, events)
    assert whole == bits(random.sample(rows, len(rows)), events)
    for event, expected in zip(events, whole, strict=True):
        kept = [row for row in rows if visible(definition, [row], event, "x")]
        assert bits(kept, [event]) == [expected]


@pytest.mark.medium
@given(ROWS, EVENTS, st.lists(st.tuples(st.sampled_from(list(Aggregate)), st.sampled_from(["n", "x"]), _PRECISION, OPTIONS), max_size=6), st.integers(1, 3))  # fmt: skip
def test_columns_that_are_computed_together_are_those_of_each_alone(
    rows: list[dict[str, Any]], events: list[dict[str, Any]], parts: list[tuple[Aggregate, str, dict[str, Any], dict[str, Any]]], threads: int
) -> None:  # fmt: skip
    definitions = {str(k): defined(aggregate, value, **precision, **options) for k, (aggregate, value, precision, options) in enumerate(parts)}  # fmt: skip
    tables = pa.Table.from_pylist(events, EVENT_SCHEMA), "at", pa.Table.from_pylist(rows, SCHEMA), "time"
    found = joined_columns(definitions, *tables, threads=threads)
    assert list(found) == list(definitions)
    for name, one in definitions.items():
        alone = joined_column(one, *tables)
        assert [_bits(value) for value in found[name].to_pylist()] == [_bits(value) for value in alone.to_pylist()]


def _bits(value: Any) -> Any:
    if isinstance(value, list):
        return [_bits(one) for one in value]
    return np.float64(value).tobytes() if isinstance(value, float) and not math.isnan(value) else str(value)


def test_half_of_the_rows_in_the_past_change_no_bit() -> None:
    """Rows that are older than the window, of other keys, or of the future, in a table of many."""
    rng = np.random.default_rng(5)
    rows, day = 20_000, 86_400 * 10**6
    at = pa.array(rng.integers(20 * day, 30 * day, 500), pa.int64()).cast(TIME)
    events = pa.table({"user": rng.choice(["a", "b", "c"], 500), "at": at})
    times = rng.integers(0, 30 * day, rows)
    log = pa.table({"id": rng.choice(["a", "b"], rows), "time": pa.array(times, pa.int64()).cast(TIME), "known": pa.array(times + rng.integers(0, day, rows), pa.int64()).cast(TIME), "x": rng.normal(size=rows)})  # fmt: skip
    definitions = {f"{aggregate} {known}": defined(aggregate, "x", window_micros=3 * day, known_at=known) for aggregate in Aggregate for known in ("", "known")}  # fmt: skip
    of_all = joined_columns(definitions, events, "at", log, "time", threads=2)
    recent = log.filter(pa.array(times >= 17 * day)).take(rng.permutation(int((times >= 17 * day).sum())))
    alone = joined_columns(definitions, events, "at", recent, "time")
    for name, column in of_all.items():
        assert column.equals(alone[name]), name


def test_threads_change_no_bit() -> None:
    rng = np.random.default_rng(9)
    count, day = 50_000, 86_400 * 10**6
    times = rng.integers(0, 30 * day, (2, count))
    events = pa.table({"user": rng.choice(["a", "b", "c"], count), "at": pa.array(times[0], pa.int64()).cast(TIME)})
    rows = pa.table({"id": rng.choice(["a", "b"], count), "time": pa.array(times[1], pa.int64()).cast(TIME), "x": rng.normal(size=count)})  # fmt: skip
    definitions = {str(one): defined(one, "x", window_micros=3 * day) for one in (Aggregate.SUM, Aggregate.MAX, Aggregate.DECAYED)}  # fmt: skip
    alone, together = (joined_columns(definitions, events, "at", rows, "time", threads=threads) for threads in (1, 3))
    assert all(column.equals(alone[name]) for name, column in together.items())


@pytest.mark.parametrize("known_at", ["", "known"])
def test_planted_values_never_leak(known_at: str) -> None:
    """At the time of an event, a microsecond later, or known at its time or later: 10,000 of each are not seen, in no aggregate."""
    rng = np.random.default_rng(7)
    count, planted = 10_000, 99.0
    keys, at = np.arange(count), np.sort(rng.integers(10**12, 10**15, count))
    delays = [(0, -1), (1, -1), (-1, 0), (-1, 1)] if known_at else [(0, 0), (1, 1)]
    times = np.concatenate([at - 1, *(at + delay for delay, _ in delays)])
    known = np.concatenate([at - 1, *(at + late for _, late in delays)])
    rows = pa.table({"k": np.tile(keys, len(delays) + 1), "time": pa.array(times, pa.int64()).cast(TIME), "known": pa.array(known, pa.int64()).cast(TIME), "x": np.repeat([1.0, planted], [count, len(delays) * count])})  # fmt: skip
    rows = rows.take(rng.permutation(len(rows)) if known_at else np.argsort(times))
    events = pa.table({"k": keys, "at": pa.array(at, pa.int64()).cast(TIME)})
    key = (KeyPair(*[component_document(hr.int64("k").node)] * 2),)
    alone = {"x": 1.0, "time": EPOCH}, {"at": EPOCH + timedelta(microseconds=1)}
    for aggregate in Aggregate:
        definition = replace(defined(aggregate, "x", known_at=known_at), keys=key)
        column = joined_column(definition, events, "at", rows, "time")
        expected = reduced(definition, [alone[0]], alone[1], "x")
        flat = column.flatten() if pa.types.is_list(column.type) else column
        assert (len(flat), flat.null_count, len(flat.unique())) == (count, 0, 1)
        assert flat[0].as_py() == (expected[0] if isinstance(expected, list) else expected)


def test_every_nan_is_the_quiet_one() -> None:
    """That of infinities has another sign on some processors."""
    rows = pa.table({"id": ["a", "a"], "time": pa.array([0, 1], TIME), "x": [math.inf, -math.inf]})
    events = pa.table({"user": ["a"], "at": pa.array([9], TIME)})
    for aggregate in (Aggregate.SUM, Aggregate.MEAN, Aggregate.RATIO, Aggregate.DECAYED):
        found = joined_column(defined(aggregate, "x"), events, "at", rows, "time")
        assert np.asarray(found).view(np.uint64).tolist() == [0x7FF8000000000000], aggregate


@pytest.mark.parametrize("known_at", ["", "known"])
def test_texts_that_one_column_cannot_hold_are_refused(known_at: str) -> None:
    rows = pa.table({"k": [1], "time": pa.array([0], TIME), "known": pa.array([0], TIME), "t": ["x" * (1 << 20)]})
    events = pa.table({"k": np.ones(2048, np.int64), "at": pa.array(np.arange(2048) + 1, pa.int64()).cast(TIME)})
    keyed = table("log", known_at=known_at or None).by(hr.int64("k"))
    for column in (keyed.latest(hr.text("t")), keyed.last(3, hr.text("t"))):
        with pytest.raises(DataError, match="bytes of texts of a joined column of one batch must fit"):
            joined_column(definition_of(column), events, "at", rows, "time")
        assert len(joined_column(definition_of(column), events[:3], "at", rows, "time")) == 3


def test_definitions_of_two_tables_are_refused() -> None:
    two = {"a": defined(Aggregate.COUNT), "b": replace(defined(Aggregate.COUNT), table="other")}
    with pytest.raises(InputError, match="must read one table"):
        joined_columns(two, pa.table({}), "at", pa.table({}), "time")


def test_a_column_of_times_must_be_there() -> None:
    rows = pa.table({"id": ["a"], "time": pa.array([0], TIME), "n": [1]})
    events = pa.table({"user": ["a"], "at": pa.array([0], TIME)})
    for definition, names in (
        (defined(Aggregate.COUNT), ("when", "time")),
        (defined(Aggregate.COUNT, known_at="known"), ("at", "time")),
    ):
        with pytest.raises(UnknownColumn, match="the times of a join"):
            joined_column(definition, events, names[0], rows, names[1])


@pytest.mark.parametrize("aggregate", Aggregate)
def test_tables_without_rows(aggregate: Aggregate) -> None:
    rows, events = SCHEMA.empty_table(), pa.table({"user": ["a"], "at": pa.array([0], TIME)})
    for options in ({}, {"known_at": "known"}):
        definition = defined(aggregate, "x", **options)
        empty = joined_column(definition, EVENT_SCHEMA.empty_table(), "at", rows, "time")
        assert empty.equals(pa.array([], arrow_type(column_type(definition))))
        expected = reduced(definition, [], {"at": EPOCH}, "x")
        assert joined_column(definition, events, "at", rows, "time").to_pylist() == [expected]


@example([None, 2**63 - 1, 2**63 - 1], [2**63 - 1, 0])
@example([-(2**63), -(2**63) + 1], [-(2**63), 2**63 - 1])
@given(st.lists(st.none() | st.integers(-3, 40) | st.integers(-(2**63), 2**63 - 1), max_size=20), st.lists(st.none() | st.integers(-5, 50) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))  # fmt: skip
def test_whole_numbers_are_keys_in_any_range(rows: list[int | None], events: list[int | None]) -> None:
    found = number_keys([pa.array(rows, pa.int64())], [pa.array(events, pa.int64())])
    numbers = dict(zip(rows, found.rows.tolist(), strict=True))
    assert sorted(set(numbers.values()) - {-1}) == list(range(found.size))
    assert len({one for one in rows if one is not None}) == found.size
    assert numbers.get(None, -1) == -1
    assert found.events.tolist() == [numbers.get(one, -1) for one in events]


def test_no_definitions_give_no_columns() -> None:
    assert joined_columns({}, pa.table({}), "at", pa.table({}), "time") == {}


def test_the_columns_that_a_definition_reads() -> None:
    definition = defined(Aggregate.SUM, "x", known_at="known", where=component_document(hr.boolean("good").node))
    assert columns_read(definition) == ({"user"}, {"id", "x", "known", "good"})


def test_compound_keys_join_what_is_equal_in_all_parts() -> None:
    keyed = table("log").by("a", equals=hr.int64("x")).by("b", equals=hr.text("y"))
    rows = pa.table({"a": [1, 1, 2, None], "b": ["u", "v", "u", "u"], "time": pa.array([0, 0, 0, 0], TIME)})
    events = pa.table({"x": [1, 1, 2, 2, None], "y": ["u", "w", "u", "v", "u"], "at": pa.array([9] * 5, TIME)})
    found = joined_column(definition_of(keyed.count()), events, "at", rows, "time")
    assert found.to_pylist() == [1, 0, 1, 0, 0]


def test_an_event_of_the_same_table_does_not_see_itself() -> None:
    log = pa.table({"k": [1, 1, 1], "time": pa.array([5, 5, 6], TIME)})
    found = joined_column(definition_of(table("log").by(hr.int64("k")).count()), log, "time", log, "time")
    assert found.to_pylist() == [0, 0, 2]


def definition_of(column: hr.Expr) -> JoinDefinition:
    assert isinstance(column.node, JoinedColumn)
    return column.node.definition


@pytest.mark.parametrize("values", [pa.array(range(50_000)), pa.array([f"user {k}" for k in range(50_000)])])
def test_an_estimate_of_distinct_values_has_its_error(values: pa.Array) -> None:
    rows = pa.table({"k": np.zeros(len(values), np.int64), "v": values, "time": pa.array(np.arange(len(values)), TIME)})
    ends = np.array([10, 1_000, 1_001, 5_000, 20_000, 50_000])
    events = pa.table({"k": np.zeros(len(ends), np.int64), "at": pa.array(ends, TIME)})
    value = hr.text("v") if pa.types.is_string(values.type) else hr.int64("v")
    found = joined_column(definition_of(table("log").by(hr.int64("k")).distinct(value)), events, "at", rows, "time").to_numpy()  # fmt: skip
    assert found[:2].tolist() == [10, 1_000]
    assert (np.abs(found - ends) <= 0.05 * ends).all()


@given(st.lists(st.floats(0, 1100), min_size=1, max_size=20))
def test_decay_is_a_power_of_two(half_lives: list[float]) -> None:
    for one in half_lives:
        assert decay(one) == pytest.approx(2.0**-one if one < 1022 else 0.0, rel=1e-15, abs=0)
