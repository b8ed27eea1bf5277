"""Schema entries that would read a time which its column does not read, each tried on the value before it is named."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from pipelines.cells.times import time_cells
from pipelines.log_schemas.columns import LogColumn, TimeUnit
from pipelines.log_schemas.time_formats import ISO_8601, WELL_KNOWN, time_pattern

_MOST_ENTRIES = 2
#: The digits of a count since 1970 in each unit, from 1973 on.
_DIGITS: tuple[tuple[TimeUnit, str], ...] = (("s", "[0-9]{9,11}"), ("ms", "[0-9]{12,14}"), ("us", "[0-9]{15,17}"),
                                             ("ns", "[0-9]{18,19}"))  # fmt: skip


def fitting_entries(
    column: LogColumn, text_as: Callable[[LogColumn], object], range_us: tuple[int, int] | None
) -> tuple[str, ...]:
    """At most two entries with which ``column`` would read a value, such as ``"format": "%d/%m/%Y"``.

    Args:
        column: the column that does not read the value.
        text_as: the value's text for a column; no text if the column does not take values of its kind.
        range_us: the plausible times in microseconds since 1970, end excluded; None for any time.
    """
    found: list[str] = []
    for entry, other in _candidates(column):
        text = text_as(other)
        if isinstance(text, str) and other != column and _fits(text, other, range_us):
            found.append(entry)
        if len(found) == _MOST_ENTRIES:
            break
    return tuple(found)


@lru_cache(maxsize=64)
def _candidates(column: LogColumn) -> tuple[tuple[str, LogColumn], ...]:
    def other(unit: TimeUnit | None, *formats: str) -> LogColumn:
        return replace(column, unit=unit, formats=formats)

    def each() -> Iterator[tuple[str, LogColumn]]:
        yield '"unit": "iso8601"', other("iso8601")
        yield from ((f'"unit": "{unit}"', other(unit)) for unit, _ in _DIGITS)
        yield from ((f'"format": "{form}"', other(None, form)) for form in WELL_KNOWN)

    return tuple(each())


@lru_cache(maxsize=16_384)
def _fits(text: str, column: LogColumn, range_us: tuple[int, int] | None) -> bool:
    if not any(re.fullmatch(form, text) for form in _forms(column)):
        return False
    try:
        times, bad = time_cells(pa.array([text], pa.string()), column, Counter())
    except UnicodeEncodeError:
        return False
    if bad[0]:
        return False
    microseconds = int(np.asarray(times.cast(pa.int64()))[0])
    return range_us is None or range_us[0] <= microseconds < range_us[1]


def _forms(column: LogColumn) -> list[str]:
    """Regular expressions of the likely texts of a column: most values fit none, and need no parser."""
    if column.formats:
        return [time_pattern(form).regex for form in column.formats]
    if column.unit == "iso8601":
        return [pattern.regex for pattern in ISO_8601]
    return [rf"{digits}(?:\.[0-9]*)?" for unit, digits in _DIGITS if unit == column.unit]
