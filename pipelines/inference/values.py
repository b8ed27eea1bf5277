"""Infer the type and format of one column of texts, with its uncertainties."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from pipelines.log_schemas.columns import LogColumn, TimeUnit
from pipelines.log_schemas.time_formats import ISO_8601, WELL_KNOWN, TimePattern, read_times, time_pattern
from transforms.types import DType

#: Texts that mean a missing value in a column of another type than text.
NULLS = frozenset(
    {"NULL", "null", "Null", "NA", "N/A", "n/a", "NaN", "nan", "None", "none", "\\N", "-", "--", "?", "nil", "#N/A"}
)
#: Texts that mean a missing value in any column.
_SURE_NULLS = frozenset({"NULL", "\\N"})
#: The share of a column's values that must have its type.
_ENOUGH = 0.99
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_INFINITE = re.compile(r"(?i)[-+]?(?:inf|infinity)")
_WITH_THOUSANDS = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})*(?:\.[0-9]+)?")
_DECIMAL_COMMA = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),[0-9]+")
_TIME_NAME = re.compile(
    r"(?i)(?:^|[_. -])(?:time|timestamp|ts|date|datetime|dt|day|at|created|updated|epoch|when)s?(?:$|[_. -])"
)
_LABEL_NAME = re.compile(
    r"(?i)(?:^|[_. -])(?:is_?)?(?:label|click|clicks|clicked|target|relevance|rating|conversion|converted|purchase|"
    r"purchased|bought|install|installed|grade)(?:$|[_. -])"
)
_SEPARATORS = ("|", "\x02", ";", ",", "^")
_ITEM = re.compile(r"[\w.:/+#&'-]{1,60}(?: [\w.:/+#&'-]{1,40}){0,2}")
_LISTS_SHARE = 0.3
_UNITS: tuple[tuple[TimeUnit, int], ...] = (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000))
#: 2000-01-01 and 2040-01-01, as seconds since 1970.
_PLAUSIBLE = (946_684_800, 2_208_988_800)
_TIMES_TRIED = 400


@dataclass(frozen=True)
class ColumnGuess:
    """The inferred properties of a column.

    Attributes:
        column: its entry in the schema file.
        nulls: its non-empty texts that mean a missing value.
        unsure: sentences about uncertain choices.
        examples: some of its values.
        distinct: the number of distinct values in the sample.
        missing_share: the share of missing values in the sample.
        may_be_label: whether its values or its name suggest a label.
        time_rank: its suitability as the event time; 0 for a column without times.
        times: some of its times, if it holds any.
    """

    column: LogColumn
    nulls: frozenset[str] = frozenset()
    unsure: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    distinct: int = 0
    missing_share: float = 0.0
    may_be_label: bool = False
    time_rank: int = 0
    times: tuple[str, ...] = ()


def guess_column(name: str, texts: Sequence[str | None]) -> ColumnGuess:
    """Infer a column from its texts; None is a missing value."""
    given = [text for text in texts if text is not None and text.strip()]
    trimmed = [text.strip() for text in given]
    filled = [text for text in trimmed if text not in NULLS]
    counts = Counter(filled)
    guess = _typed(name, filled, counts) or _words(name, [text for text in trimmed if text not in _SURE_NULLS])
    if guess.column.dtype is DType.STRING:
        nulls = frozenset(_SURE_NULLS.intersection(trimmed))
        counts = Counter(text for text in given if text not in nulls)
    else:
        nulls = frozenset(text for text in trimmed if text in NULLS)
        if trimmed != given:
            guess = replace(guess, column=replace(guess.column, trim=True))
    present = counts.total()
    examples = tuple(dict.fromkeys(" ".join(text.split())[:40] for text, _ in counts.most_common(3)))
    return replace(
        guess, nulls=nulls, examples=examples, distinct=len(counts), missing_share=1 - present / max(len(texts), 1),
        may_be_label=_may_be_label(guess.column, len(counts)),
        times=tuple(filled[:: max(len(filled) // 50, 1)]) if guess.time_rank else (),
    )  # fmt: skip


def _may_be_label(column: LogColumn, distinct: int) -> bool:
    number = column.dtype in (DType.BOOL, DType.INT64, DType.FLOAT32, DType.FLOAT64)
    plain = number and column.separator is None and not column.is_list
    return plain and (distinct == 2 or bool(_LABEL_NAME.search(_spaced(column.name)))) and distinct > 1


def is_time_name(name: str) -> bool:
    """Whether a column's name suggests a time."""
    return bool(_TIME_NAME.search(_spaced(name)))


def _spaced(name: str) -> str:
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name)


def _typed(name: str, filled: Sequence[str], counts: Counter[str]) -> ColumnGuess | None:
    """The column as booleans, times or numbers; None if it is none of these."""
    if not filled:
        return ColumnGuess(LogColumn(name, DType.STRING), unsure=("every value in the sample is missing",))
    if all(text.lower() in ("true", "false") for text in counts):
        return ColumnGuess(LogColumn(name, DType.BOOL))
    if set(counts) == {"0", "1"}:
        return ColumnGuess(LogColumn(name, DType.BOOL))
    return _time(name, filled) or _number(name, filled)


def _number(name: str, filled: Sequence[str]) -> ColumnGuess | None:
    whole = [text for text in filled if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63]
    if _enough(whole, filled):
        coded = sum(len(text) > 1 and text.startswith("0") for text in whole)
        if coded * 10 > len(whole):
            return ColumnGuess(LogColumn(name, DType.STRING), unsure=("digits with leading zeros are kept as text",))
        return ColumnGuess(LogColumn(name, DType.INT64), unsure=_misfits(filled, whole, "int64"))
    infinite = any(_INFINITE.fullmatch(text) for text in filled)
    numbers = [text for text in filled if _FLOAT.fullmatch(text) or _INFINITE.fullmatch(text)]
    if _enough(numbers, filled):
        if all(_is_huge(text) for text in numbers):
            return ColumnGuess(LogColumn(name, DType.STRING), unsure=("integers beyond int64 are kept as text",))
        column = LogColumn(name, DType.FLOAT64, non_finite=infinite)
        return ColumnGuess(column, unsure=_misfits(filled, numbers, "float64"))
    return _number_as_written(name, filled)


def _is_huge(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{19,}", text) is not None


def _number_as_written(name: str, filled: Sequence[str]) -> ColumnGuess | None:
    """Numbers with commas between thousands, or a decimal comma."""
    marked = [text for text in filled if _WITH_THOUSANDS.fullmatch(text)]
    if _enough(marked, filled) and any("," in text for text in filled):
        fraction = any("." in text for text in marked)
        column = LogColumn(name, DType.FLOAT64 if fraction else DType.INT64, thousands=",")
        return ColumnGuess(column, unsure=("the commas are read as separators of thousands",))
    marked = [text for text in filled if _DECIMAL_COMMA.fullmatch(text) or _INTEGER.fullmatch(text)]
    if _enough(marked, filled):
        thousands = "." if any("." in text for text in marked) else ""
        column = LogColumn(name, DType.FLOAT64, decimal=",", thousands=thousands)
        return ColumnGuess(column, unsure=("the comma is read as the decimal comma",))
    return None


def _enough(good: Sequence[str], filled: Sequence[str]) -> bool:
    return len(good) >= _ENOUGH * len(filled)


def _misfits(filled: Sequence[str], good: Sequence[str], kind: str) -> tuple[str, ...]:
    if len(good) == len(filled):
        return ()
    odd = next(iter(set(filled) - set(good)))
    return (
        f"{len(filled) - len(good)} of {len(filled)} values are no {kind}, such as {odd[:40]!r}: those rows are rejected",
    )


def _time(name: str, filled: Sequence[str]) -> ColumnGuess | None:
    if all(_FLOAT.fullmatch(text) for text in filled[:50]):
        return _counted_time(name, filled)
    tried = list(dict.fromkeys(filled))[:_TIMES_TRIED]
    if _share_read(tried, ISO_8601) >= _ENOUGH:
        zoned = any(re.search(r"(?:[Zz]|[+-]\d\d:?(?:\d\d)?)$", text[10:]) for text in tried)
        column = LogColumn(name, DType.TIMESTAMP, unit="iso8601")
        return ColumnGuess(column, unsure=() if zoned else (_no_zone(),), time_rank=_rank(name, filled))
    fitting = [text for text in WELL_KNOWN if _share_read(tried, (time_pattern(text),)) >= _ENOUGH]
    if not fitting:
        return None
    unsure = [] if time_pattern(fitting[0]).has_offset else [_no_zone()]
    if len(fitting) > 1:
        unsure.append(f"the values also fit {fitting[1]!r}: choose by the order of day and month")
    column = LogColumn(name, DType.TIMESTAMP, formats=(fitting[0],))
    return ColumnGuess(column, unsure=tuple(unsure), time_rank=_rank(name, filled))


def _no_zone() -> str:
    return 'the times have no zone and are read as UTC; for local times write "zone": "Asia/Shanghai"'


def _share_read(texts: Sequence[str], patterns: Sequence[TimePattern]) -> float:
    first = texts[:20]
    if first and read_times(_array(first), patterns).read.mean() < 0.5:
        return 0.0
    return float(read_times(_array(texts), patterns).read.mean()) if texts else 0.0


def _array(texts: Iterable[str]) -> pa.Array:
    return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.string())


def _counted_time(name: str, filled: Sequence[str]) -> ColumnGuess | None:
    """Seconds and finer units since 1970, and days written as eight digits."""
    digits = [text for text in filled if _FLOAT.fullmatch(text)]
    hinted = is_time_name(name)
    if not _enough(digits, filled):
        return None
    for form, length in (("%Y%m%d%H%M%S", 14), ("%Y%m%d", 8)):
        fits = all(len(text) == length and text[:2] in ("19", "20") for text in digits[:50]) and (
            hinted or length == 14
        )
        if fits and _share_read(list(dict.fromkeys(digits))[:_TIMES_TRIED], (time_pattern(form),)) >= _ENOUGH:
            column = LogColumn(name, DType.TIMESTAMP, formats=(form,))
            return ColumnGuess(column, unsure=(_no_zone(),), time_rank=_rank(name, filled))
    numbers = [float(text) for text in digits]
    for unit, per_second in _UNITS:
        low, high = (bound * per_second for bound in _PLAUSIBLE)
        if sum(low <= number < high for number in numbers) < _ENOUGH * len(numbers):
            continue
        ascends = len(numbers) > 10 and _share_ascending(numbers) > 0.95 and len(set(numbers)) * 2 > len(numbers)
        if not hinted and not ascends:
            return None
        unsure = () if hinted else (f"the ascending numbers are read as times in {unit} since 1970",)
        column = LogColumn(name, DType.TIMESTAMP, unit=unit)
        return ColumnGuess(column, unsure=unsure, time_rank=_rank(name, filled))
    return None


def _share_ascending(numbers: Sequence[float]) -> float:
    return sum(a <= b for a, b in pairwise(numbers)) / max(len(numbers) - 1, 1)


def _rank(name: str, filled: Sequence[str]) -> int:
    """Rank time columns: by a name that suggests time, then times of day before days, then many values before few."""
    rank = 1 + 4 * is_time_name(name) + 8 * bool(re.search(r"(?i)time|timestamp|^ts$|_at$", name))
    return (
        rank
        + 2 * (len(set(filled[:500])) > 10)
        + (16 if re.search(r"(?i)event|click|visit|request|impression", name) else 0)
    )


def _words(name: str, trimmed: Sequence[str]) -> ColumnGuess:
    """A column of texts or of lists."""
    for separator in _SEPARATORS:
        holding = [text for text in trimmed if separator in text]
        if len(holding) < _LISTS_SHARE * len(trimmed) or not holding:
            continue
        items = [item for text in trimmed for item in text.split(separator) if item]
        if not items or not all(_ITEM.fullmatch(item) for item in items[:2_000]):
            continue
        whole = sum(bool(_INTEGER.fullmatch(item)) for item in items) == len(items)
        real = sum(bool(_FLOAT.fullmatch(item)) for item in items) == len(items)
        dtype = DType.INT64 if whole else DType.FLOAT64 if real else DType.STRING
        unsure = (
            f'the values are read as lists separated by {separator!r}; without "separator" they are single texts',
        )
        return ColumnGuess(LogColumn(name, dtype, separator=separator), unsure=unsure)
    return ColumnGuess(LogColumn(name, DType.STRING))
