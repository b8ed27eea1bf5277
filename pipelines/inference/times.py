"""Read the values of a column as times: which form they have, how many are times, and how many plausible event times.

Every candidate is tried on every distinct value by the rules of an import, and counted in rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pipelines.cells.times import time_cells
from pipelines.log_schemas.columns import LogColumn, TimeUnit
from pipelines.log_schemas.time_formats import ISO_8601, WELL_KNOWN, time_pattern
from transforms.types import DType

#: How well form and name say that values are times: ``sure`` ones have the type, others only as the event time.
Strength = Literal["sure", "likely", "possible"]

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]*)?")
_TIME_NAME = re.compile(
    r"(?i)(?:^|[_. -])(?:time|timestamp|ts|date|datetime|dt|day|hour|at|created|updated|epoch|when)s?(?:$|[_. -])"
)
ID_NAME = re.compile(r"(?i)(?:^|[_. -])(?:id|key|hash|uuid|number|no|code|zip|phone)s?$")
#: Patterns of digits alone, with their length; likelier ones first.
_DIGIT_FORMS = (("%Y%m%d%H%M%S", 14), ("%Y%m%d%H%M", 12), ("%Y%m%d%H", 10), ("%Y%m%d", 8), ("%y%m%d%H", 8), ("%y%m%d", 6),
                ("%Y%m", 6))  # fmt: skip
_LENGTHS_WITHOUT_DOUBT = (14,)
_LENGTHS_OF_TIMES = (14, 12, 10)
_UNITS: tuple[tuple[TimeUnit, int], ...] = (("s", 1_000_000), ("ms", 1_000), ("us", 1), ("ns", 0))
#: Counts since 1970 from 1973-03-03 on tell their unit: smaller ones are plausible in finer units too.
_TELLING_US = 100_000_000_000_000
_SPREAD_VALUES = 60
_LEAST_SPREAD_SHARE = 0.25
#: The share of rows that must be times, and the share from which a column is mostly times.
ENOUGH, MOSTLY = 0.99, 0.5
_LONGEST_TIME = 60


@dataclass(frozen=True, slots=True)
class TimeReading:
    """The values of a column as times.

    Attributes:
        column: the column as a timestamp.
        strength: how well form and name say that the values are times.
        read_rows: the rows whose value is a time.
        plausible_rows: the rows whose value is a plausible event time.
        first_us, last_us: the first and the last plausible time, in microseconds since 1970.
        example: the most frequent value that is no plausible time; None if all are.
        unsure: sentences about other readings.
    """

    column: LogColumn
    strength: Strength
    read_rows: int
    plausible_rows: int
    first_us: int
    last_us: int
    example: str | None
    unsure: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """The unit or the pattern, for a sentence."""
        if self.column.formats:
            return repr(self.column.formats[0])
        return "ISO 8601" if self.column.unit == "iso8601" else f"{self.column.unit} since 1970"


def is_time_name(name: str) -> bool:
    """Whether a column's name suggests a time."""
    return bool(_TIME_NAME.search(spaced(name)))


def spaced(name: str) -> str:
    """The name with ``_`` between the words of ``camelCase``."""
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name)


def read_as_times(
    name: str, texts: Sequence[str], range_us: tuple[int, int], *, is_named: bool = False
) -> TimeReading | None:
    """The reading under which the most rows are plausible times; None if fewer than half of them are times.

    Args:
        name: the column's name.
        texts: its values without surrounding spaces and missing ones, a text per row.
        range_us: the plausible event times in microseconds since 1970, end excluded.
        is_named: whether the user says that the column holds times.
    """
    counts = Counter(texts)
    values = _Values(list(counts), np.array(list(counts.values()), np.int64), range_us)
    spread = values.spread()
    if not len(spread.texts):
        return None
    numeric = sum(bool(_NUMBER.fullmatch(text)) for text in spread.texts)
    hinted = is_named or is_time_name(name)
    if numeric * 2 > len(spread.texts):
        found = _of_digits(name, texts, values, spread, hinted)
    else:
        found = _written(name, values, spread)
    return found if found is not None and found.read_rows >= MOSTLY * len(texts) else None


@dataclass(frozen=True)
class _Values:
    """The distinct texts of a column, their numbers of rows, and the plausible times."""

    texts: list[str]
    rows: np.ndarray[Any, np.dtype[np.int64]]
    range_us: tuple[int, int]

    def spread(self) -> _Values:
        """Some of the values, at equal distances."""
        step = max(len(self.texts) // _SPREAD_VALUES, 1)
        return _Values(self.texts[::step], np.ones(len(self.texts[::step]), np.int64), self.range_us)

    def read(self, column: LogColumn, strength: Strength) -> TimeReading:
        """The values as times of ``column``."""
        times, bad = time_cells(_array(self.texts), column, Counter())
        microseconds = np.asarray(times.cast(pa.int64()).fill_null(0))
        plausible = ~bad & (microseconds >= self.range_us[0]) & (microseconds < self.range_us[1])
        inside = microseconds[plausible]
        odd = np.where(plausible, 0, self.rows)
        return TimeReading(
            column, strength, int(self.rows[~bad].sum()), int(self.rows[plausible].sum()),
            int(inside.min()) if len(inside) else 0, int(inside.max()) if len(inside) else 0,
            self.texts[int(odd.argmax())] if odd.any() else None,
        )  # fmt: skip

    def share(self, column: LogColumn) -> float:
        """The share of the rows whose value is a time of ``column``."""
        return self.read(column, "sure").read_rows / max(int(self.rows.sum()), 1)


def _array(texts: Sequence[str]) -> pa.Array:
    return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.string())


def _written(name: str, values: _Values, spread: _Values) -> TimeReading | None:
    """ISO 8601, and the well-known formats: the one that reads the most rows."""
    dated = sum(len(text) <= _LONGEST_TIME and sum(map(str.isdigit, text)) >= 3 for text in spread.texts)
    if dated < _LEAST_SPREAD_SHARE * len(spread.texts):
        return None
    iso = LogColumn(name, DType.TIMESTAMP, unit="iso8601")
    patterns = [
        LogColumn(name, DType.TIMESTAMP, formats=(form,)) for form in WELL_KNOWN if _looks_like(form, spread.texts)
    ]
    readings = [values.read(one, "sure") for one in (iso, *patterns) if spread.share(one) >= _LEAST_SPREAD_SHARE]
    if not readings:
        return None
    best = max(readings, key=lambda reading: (reading.read_rows, reading.column.unit == "iso8601"))
    unsure: tuple[str, ...] = () if _has_offset(best.column, spread.texts) else (_no_zone(),)
    if best.column.formats:
        rival = next((one for one in readings if one is not best and one.read_rows >= ENOUGH * best.read_rows), None)
        unsure += () if rival is None else (f"the values also fit {rival.form}: choose by the order of day and month",)
    return replace(best, unsure=unsure)


def _looks_like(form: str, texts: Sequence[str]) -> bool:
    """Whether enough texts have the form of a pattern, which takes less time than reading them."""
    regex = re.compile(time_pattern(form).regex)
    return sum(regex.fullmatch(text) is not None for text in texts) >= _LEAST_SPREAD_SHARE * len(texts)


def _has_offset(column: LogColumn, texts: Sequence[str]) -> bool:
    if column.formats:
        return time_pattern(column.formats[0]).has_offset
    found = [next((match for one in ISO_8601 if (match := re.fullmatch(one.regex, text))), None) for text in texts]
    return any(match is not None and match["z"] for match in found)


def _no_zone() -> str:
    return 'the times have no zone and are read as UTC; for local times write "zone": "Asia/Shanghai"'


def _of_digits(name: str, texts: Sequence[str], values: _Values, spread: _Values, hinted: bool) -> TimeReading | None:
    """Patterns of digits, and counts since 1970."""
    forms = [values.read(*candidate) for candidate in _digit_forms(name, spread, hinted)]
    best = max(forms, key=lambda reading: reading.plausible_rows, default=None)
    if best is not None and best.plausible_rows >= ENOUGH * len(texts):
        rival = next((one for one in forms if one is not best and one.plausible_rows >= ENOUGH * len(texts)), None)
        also = () if rival is None else (f"the values also fit {rival.form}",)
        return replace(best, unsure=(_no_zone(), *also))
    counted = _counted(name, texts, values, hinted)
    found = [one for one in (counted, best) if one is not None]
    return max(found, key=lambda reading: reading.plausible_rows, default=None)


def _digit_forms(name: str, spread: _Values, hinted: bool) -> Iterator[tuple[LogColumn, Strength]]:
    for form, length in _DIGIT_FORMS:
        if sum(len(text) == length for text in spread.texts) * 2 < len(spread.texts):
            continue
        strength: Strength = "possible"
        if hinted or length in _LENGTHS_WITHOUT_DOUBT:
            strength = "sure"
        elif length in _LENGTHS_OF_TIMES and not ID_NAME.search(spaced(name)):
            strength = "likely"
        column = LogColumn(name, DType.TIMESTAMP, formats=(form,))
        if spread.share(column) >= _LEAST_SPREAD_SHARE:
            yield column, strength


def _counted(name: str, texts: Sequence[str], values: _Values, hinted: bool) -> TimeReading | None:
    """Counts since 1970 in the unit that puts the most rows between 1973 and the last plausible time."""
    numbers = np.array([_whole(text) for text in values.texts], np.float64)
    telling = {}
    for unit, factor in _UNITS:
        microseconds = numbers * factor if factor else numbers / 1_000
        inside = (microseconds >= _TELLING_US) & (microseconds < values.range_us[1])
        telling[unit] = int(values.rows[inside].sum())
    unit = max(telling, key=lambda one: telling[one])
    if telling[unit] < MOSTLY * len(texts):
        return None
    if not hinted and ID_NAME.search(spaced(name)):
        return None
    ascends = not hinted and _ascend(texts)
    strength: Strength = "sure" if hinted else "likely" if ascends else "possible"
    reading = values.read(LogColumn(name, DType.TIMESTAMP, unit=unit), strength)
    note = f"the ascending numbers are read as times in {unit} since 1970"
    return replace(
        reading,
        unsure=() if hinted else (note,) if ascends else (f"the numbers are read as times in {unit} since 1970",),
    )


def _whole(text: str) -> float:
    """The number before the decimal point; NaN for other texts."""
    return float(text.partition(".")[0][:30]) if _NUMBER.fullmatch(text) else float("nan")


def _ascend(texts: Sequence[str]) -> bool:
    """Whether nearly all numbers are at least the one before, and most are distinct."""
    numbers = np.array([_whole(text) for text in texts], np.float64)
    if len(numbers) <= 10 or len(np.unique(numbers)) * 2 <= len(numbers):
        return False
    return bool(np.mean(numbers[:-1] <= numbers[1:]) > 0.95)
