"""Choose the event time of a log: a column of times, the day in the files' names, or on request the order of rows.

A column is the event time if at least 99 % of the rows hold a plausible time in it. Without one, and where another column
looks more like the event time, the user chooses: no time is made up while a column may hold it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from pipelines.errors import UnclearEventTime
from pipelines.inference.times import ENOUGH, MOSTLY, TimeReading, spaced
from pipelines.inference.values import ColumnGuess
from pipelines.log_schemas.columns import LogTime, MadeUpTime
from pipelines.log_schemas.time_formats import read_times, time_pattern
from transforms.errors import InputError, UnknownColumn, nearest

ROWS_PER_HOUR = 100_000
_START = datetime(2000, 1, 1, tzinfo=UTC)
_DAY_IN_NAME = (("%Y-%m-%d", r"\d{4}-[01]\d-[0-3]\d"), ("%Y%m%d", r"(?<!\d)20[0-4]\d[01]\d[0-3]\d(?!\d)"),
                ("%Y_%m_%d", r"\d{4}_[01]\d_[0-3]\d"))  # fmt: skip
_STRENGTHS = {"sure": 2, "likely": 1, "possible": 0}
_SHOWN = 5
_DAY_US = 86_400_000_000
#: A log whose first time is 0 has no real ones of 1970 if its last one is these years later.
_ZERO_YEARS = 10
_ALLOWED = "times from 1970 until a year ahead, in ISO 8601, a well-known format, or as a count since 1970"
_BY_HAND = 'write the schema by hand: "format" takes patterns, "from" and "until" of its time set other plausible times'


@dataclass(frozen=True)
class TimeOptions:
    """What the user says about the event time.

    Attributes:
        column: the column that holds it; empty if not said.
        by_row_order: whether times are made up from the order of rows.
        is_none: whether the files hold no events, but values for events of a table.
    """

    column: str = ""
    by_row_order: bool = False
    is_none: bool = False

    def __post_init__(self) -> None:
        given = {"--time-column": self.column, "--row-order": self.by_row_order, "--no-time": self.is_none}
        both = [option for option, value in given.items() if value]
        if len(both) > 1:
            raise InputError("a log must have one event time", where=both[1], value=" and ".join(both),
                             allowed=f"one of {', '.join(given)}", next_step="leave the others out")  # fmt: skip


@dataclass(frozen=True)
class EventTime:
    """The chosen event time.

    Attributes:
        time: its entry in the schema; None for files without events.
        guess: the column that holds it; None for a made-up time.
        reading: this column's values as times.
        unsure: sentences about other choices.
    """

    time: LogTime | None
    guess: ColumnGuess | None = None
    reading: TimeReading | None = None
    unsure: tuple[str, ...] = ()


def choose_event_time(
    guesses: Sequence[ColumnGuess], paths: Sequence[str], options: TimeOptions, unsure: Sequence[str] = ()
) -> EventTime:
    """The event time of a log with these columns; ``unsure``: sentences about the columns, for an error without one.

    Raises :class:`UnclearEventTime` where the user must choose, and :class:`~transforms.errors.InputError` for a chosen column
    without times.
    """
    if options.is_none:
        return EventTime(None)
    if options.column:
        return _named(guesses, paths, options.column)
    timed = sorted((guess for guess in guesses if guess.time), key=_rank, reverse=True)
    if options.by_row_order:
        return _by_row_order(guesses, timed)
    whole = [guess for guess in timed if _is_whole(guess)]
    damaged = [guess for guess in timed if _is_damaged(guess)]
    if whole and (not damaged or _rank(whole[0]) >= _rank(damaged[0])):
        rivals = ", ".join(guess.column.name for guess in whole[1 : 1 + _SHOWN])
        return _of_column(whole[0], (f"the event time may be another column: {rivals}",) if rivals else ())
    if all(guess.time.strength == "possible" for guess in timed if guess.time):
        made_up = _day_in_names(guesses, paths)
        if made_up is not None:
            return made_up
    raise _unclear(guesses, timed, paths, unsure)


def _rank(guess: ColumnGuess) -> tuple[int, int]:
    """First columns that are times by form or name, then names of events, of times of day, and of many values."""
    assert guess.time is not None
    name = spaced(guess.column.name)
    score = 16 * bool(re.search(r"(?i)event|click|visit|request|impression", name))
    score += 8 * bool(re.search(r"(?i)time|timestamp|^ts$|_at$", name)) + 4 * bool(
        re.search(r"(?i)date|day|hour|^dt$", name)
    )
    return _STRENGTHS[guess.time.strength], score + 2 * (guess.distinct > 10)


def _is_whole(guess: ColumnGuess) -> bool:
    """Whether enough rows hold a plausible time, and form or name say that it is one."""
    time = guess.time
    return time is not None and time.strength != "possible" and time.plausible_rows >= ENOUGH * guess.rows


def _is_damaged(guess: ColumnGuess) -> bool:
    """Whether more than a few of a column's own values are no plausible times."""
    time, filled = guess.time, guess.rows - guess.missing_rows(tuple(guess.nulls))
    return time is not None and time.strength == "sure" and time.plausible_rows < ENOUGH * filled


def _of_column(guess: ColumnGuess, unsure: tuple[str, ...] = ()) -> EventTime:
    reading = guess.time
    assert reading is not None
    lost = guess.rows - reading.plausible_rows
    if lost:
        are = "is" if lost == 1 else "are"
        unsure += (f"{lost:,} of {guess.rows:,} rows {are} rejected: no plausible time{_such_as(guess, reading)}",)
    if reading.first_us < _DAY_US and reading.last_us > _ZERO_YEARS * 365 * _DAY_US:
        unsure += (
            'the first times are in 1970-01-01; if 0 means a missing time, "from": "1971-01-01" in "time" rejects them',
        )
    return EventTime(LogTime(guess.column.name, reading.column.unit), guess, reading, (*unsure, *reading.unsure))


def _such_as(guess: ColumnGuess, reading: TimeReading) -> str:
    missing = guess.missing_rows(tuple(guess.nulls))
    parts = [f"{missing:,} are missing"] if missing else []
    parts += [f"such as {reading.example[:40]!r}"] if reading.example is not None else []
    return f" ({', '.join(parts)})" if parts else ""


def _named(guesses: Sequence[ColumnGuess], paths: Sequence[str], name: str) -> EventTime:
    found = next((guess for guess in guesses if guess.column.name == name), None)
    if found is None:
        raise UnknownColumn("the time column must be one of the log's", where=_where(paths), value=name,
                            allowed=nearest(name, [guess.column.name for guess in guesses]),
                            next_step="name it with --time-column")  # fmt: skip
    if not _may_be_named(found):
        raise InputError("the time column must hold plausible times in at least half of its rows",
                         where=f"{_where(paths)}, column {name}", value=", ".join(found.examples) or "no values",
                         allowed=_ALLOWED, next_step=_BY_HAND)  # fmt: skip
    return _of_column(found)


def _may_be_named(guess: ColumnGuess) -> bool:
    filled = guess.rows - guess.missing_rows(tuple(guess.nulls))
    return guess.time is not None and guess.time.plausible_rows >= MOSTLY * max(filled, 1)


def _by_row_order(guesses: Sequence[ColumnGuess], timed: Sequence[ColumnGuess]) -> EventTime:
    made_up = MadeUpTime(start=_START, rows_per_hour=ROWS_PER_HOUR)
    unsure = f"the event time is made up from the order of rows, {ROWS_PER_HOUR:,} per hour from {_START:%Y-%m-%d}"
    held = ", ".join(guess.column.name for guess in timed[:_SHOWN])
    also = (f"the log holds times, which are not the event time: {held}",) if held else ()
    return EventTime(LogTime(_free_name(guesses), None, made_up=made_up), unsure=(unsure, *also))


def _day_in_names(guesses: Sequence[ColumnGuess], paths: Sequence[str]) -> EventTime | None:
    """The day in the names of all files; None if a name has none, or two."""
    for form, regex in _DAY_IN_NAME:
        found = [re.findall(regex, Path(path).name) for path in paths]
        if all(len(days) == 1 for days in found):
            days = pa.array([days[0] for days in found], pa.string())
            if read_times(days, (time_pattern(form),)).read.all():
                made_up = MadeUpTime(file_name=f"*{form}*")
                unsure = "no column is clearly a time: the event time is the day in the file's name"
                return EventTime(LogTime(_free_name(guesses), None, made_up=made_up), unsure=(unsure,))
    return None


def _free_name(guesses: Sequence[ColumnGuess]) -> str:
    names = {guess.column.name for guess in guesses}
    every = ("time", "event_time", *(f"time_{at}" for at in range(len(names) + 1)))
    return next(name for name in every if name not in names)


def _unclear(
    guesses: Sequence[ColumnGuess], timed: Sequence[ColumnGuess], paths: Sequence[str], unsure: Sequence[str]
) -> UnclearEventTime:
    if not timed:
        columns = f"columns {', '.join(guess.column.name for guess in guesses[:10])}"
        return UnclearEventTime(
            "a log must hold an event time, got no column of times",
            where=_where(paths),
            value="; ".join([columns, *unsure]),
            allowed="a column of times, or the day in the names of the files",
            next_step=f"with --row-order times are made up from the order of rows, {ROWS_PER_HOUR:,} per hour",
        )
    shown = "; ".join(_described(guess) for guess in timed[:_SHOWN])
    chosen = next(filter(_may_be_named, timed), None)
    next_step = _BY_HAND
    if chosen is not None and chosen.time is not None:
        lost = chosen.rows - chosen.time.plausible_rows
        next_step = (
            f"choose: --time-column {chosen.column.name} rejects {lost:,} of the {chosen.rows:,} sampled rows; "
            "--row-order makes times up"
        )
    return UnclearEventTime("the event time must be a column with a plausible time in at least 99 % of the rows",
                            where=_where(paths), value=shown, allowed=_ALLOWED, next_step=next_step)  # fmt: skip


def _described(guess: ColumnGuess) -> str:
    reading = guess.time
    assert reading is not None
    share = reading.plausible_rows / max(guess.rows, 1)
    return f"{guess.column.name}: {share:.1%} of the rows are times as {reading.form}{_such_as(guess, reading)}"


def _where(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (" …" if len(paths) > 3 else "")
