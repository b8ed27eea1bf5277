"""Parse columns of times by patterns of strptime directives.

A pattern becomes one regular expression with a group per field. A whole column is matched at once and its fields are
combined as integers, without a locale. ISO 8601 is two more patterns, with optional fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import LogSchemaError
from transforms.arrays import Bools, Ints

#: Year 1 to year 9999: the range that every consumer of a timestamp can print.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_SECOND_US = 1_000_000
_LONGEST = 200

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
           "november", "december")  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMERIC = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "I": 2, "M": 2, "S": 2, "j": 3}
_OFFSET = "[Zz]|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?"


def _names(names: Sequence[str]) -> str:
    return "(?i:" + "|".join(f"{name}|{name[:3]}" for name in names) + ")"


_WORDS = {
    "b": ("b", _names(_MONTHS)), "B": ("b", _names(_MONTHS)), "a": ("a", _names(_DAYS)), "A": ("a", _names(_DAYS)),
    "p": ("p", "(?i:am|pm)"), "z": ("z", _OFFSET), "Z": ("z", "UTC|GMT"), "e": ("d", " ?[0-9]{1,2}"),
    "f": ("f", "[0-9]{1,9}"), "s": ("s", "-?[0-9]{1,12}"),
}  # fmt: skip
_SHORT = {"T": "%H:%M:%S", "F": "%Y-%m-%d", "R": "%H:%M", "D": "%m/%d/%y"}
DIRECTIVES = ", ".join(f"%{one}" for one in (*_NUMERIC, "e", "f", "b", "B", "a", "A", "p", "z", "Z", "s", *_SHORT, "%"))


@dataclass(frozen=True, slots=True)
class TimePattern:
    """One form of a written time.

    Attributes:
        text: its text in the schema file.
        regex: the regular expression for RE2 and Python, with a named group for each field.
        fields: the groups' names, in order.
    """

    text: str
    regex: str
    fields: tuple[str, ...]

    @property
    def whole(self) -> str:
        """The regular expression of a whole cell."""
        return f"^(?:{self.regex})$"

    @property
    def has_offset(self) -> bool:
        """Whether times of this form have an offset from UTC."""
        return "z" in self.fields or "s" in self.fields


@lru_cache(maxsize=256)
def time_pattern(text: str, where: str = "format") -> TimePattern:
    """The pattern of strptime directives ``text``. Raises :class:`LogSchemaError` for one without a day."""
    if len(text) > _LONGEST:
        raise _refused(
            f"a time format must have at most {_LONGEST} characters",
            where,
            text[:_LONGEST],
            f"at most {_LONGEST} characters",
        )
    regex, fields = _compiled(text, where, wildcard=False)
    _require_a_day(fields, text, where)
    return TimePattern(text, regex, fields)


@lru_cache(maxsize=64)
def file_name_pattern(text: str, where: str = "file_name") -> TimePattern:
    """The pattern of a file's name: directives as in :func:`time_pattern`, and ``*`` for any characters."""
    if len(text) > _LONGEST:
        raise _refused(
            f"a pattern of file names must have at most {_LONGEST} characters",
            where,
            text[:_LONGEST],
            f"at most {_LONGEST} characters",
        )
    regex, fields = _compiled(text, where, wildcard=True)
    _require_a_day(fields, text, where)
    return TimePattern(text, regex, fields)


def _compiled(text: str, where: str, *, wildcard: bool) -> tuple[str, tuple[str, ...]]:
    full = re.sub("%([TFRD])", lambda found: _SHORT[found[1]], text)
    tokens = re.findall(r"%.|%$|[^%]", full, flags=re.DOTALL)
    numeric = [token[1:] in _NUMERIC or token in ("%f", "%s") for token in tokens]
    parts, fields = [], []
    for at, token in enumerate(tokens):
        if token[0] != "%" or token == "%%":
            parts.append(_literal(token[-1], wildcard))
            continue
        field, form = _WORDS.get(token[1:], (token[1:], ""))
        if not form:
            if field not in _NUMERIC:
                raise _refused("a time format must hold known directives", where, token, DIRECTIVES)
            beside = (at > 0 and numeric[at - 1]) or (at + 1 < len(tokens) and numeric[at + 1])
            most = _NUMERIC[field]
            form = f"[0-9]{{{most}}}" if beside or field in "Yy" else f"[0-9]{{1,{most}}}"
        if field in fields:
            raise _refused("a time format must hold each field once", where, token, text)
        fields.append(field)
        parts.append(f"(?P<{field}>{form})")
    return "".join(parts), tuple(fields)


def _literal(character: str, wildcard: bool) -> str:
    if character == " ":
        return " +"
    return ".*" if wildcard and character == "*" else re.escape(character)


def _require_a_day(fields: tuple[str, ...], text: str, where: str) -> None:
    has = set(fields).__contains__
    if has("s"):
        good = not set(fields) - {"s", "f"}
    else:
        dated = (has("Y") != has("y")) and not (has("m") and has("b"))
        good = (
            dated and (not has("d") or has("m") or has("b")) and not (has("j") and (has("d") or has("m") or has("b")))
        )
    clock = has("I") == has("p") and not (has("H") and has("I")) and (not has("f") or has("S") or has("s"))
    if not good or not clock:
        raise _refused("a time format must give a day and one clock", where, text,
                       "a year (%Y or %y) with month and day, or with %j, or %s alone; %I with %p, %f after %S")  # fmt: skip


def _refused(what: str, where: str, value: str, allowed: str) -> LogSchemaError:
    return LogSchemaError(
        what, where=where, value=value, allowed=allowed, next_step="docs/importing.md lists the directives"
    )


_ISO_OFFSET = f"(?: ?(?P<z>{_OFFSET}))?"
_ISO_FIELDS = ("Y", "m", "d", "H", "M", "S", "f", "z")
#: ISO 8601 with separators, also with one digit for month, day and hour, and without.
ISO_8601 = (
    TimePattern("YYYY-MM-DD HH:MM:SS", "(?P<Y>[0-9]{4})-(?P<m>[0-9]{1,2})-(?P<d>[0-9]{1,2})(?:[T ](?P<H>[0-9]{1,2})"
                "(?::(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:\\.(?P<f>[0-9]{1,9}))?)?)?" + _ISO_OFFSET + ")?", _ISO_FIELDS),
    TimePattern("YYYYMMDDTHHMMSS", "(?P<Y>[0-9]{4})(?P<m>[0-9]{2})(?P<d>[0-9]{2})(?:[T ](?P<H>[0-9]{2})"
                "(?:(?P<M>[0-9]{2})(?:(?P<S>[0-9]{2})(?:\\.(?P<f>[0-9]{1,9}))?)?)?" + _ISO_OFFSET + ")?", _ISO_FIELDS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """The times of a column of texts, by row.

    Attributes:
        microseconds: since 1970; local time where ``local`` is set, else UTC; 0 where not read.
        read: whether the text fits a pattern and is an existing day and hour.
        local: whether the text has no offset.
        finer: whether digits below a microsecond were dropped.
    """

    microseconds: Ints
    read: Bools
    local: Bools
    finer: Bools


def read_times(text: pa.Array, patterns: Sequence[TimePattern]) -> ReadTimes:
    """Parse each text by the first of ``patterns`` that it fits; a null fits none."""
    rows = len(text)
    times = ReadTimes(np.zeros(rows, np.int64), *(np.zeros(rows, np.bool_) for _ in range(3)))
    left = np.arange(rows)
    for pattern in patterns:
        if not len(left):
            break
        found = pc.extract_regex(text if len(left) == rows else text.take(pa.array(left)), pattern.whole)
        matched = np.asarray(found.is_valid())
        at = left[matched]
        if not len(at):
            continue
        fields = dict(zip(pattern.fields, found.filter(found.is_valid()).flatten(), strict=True))
        microseconds, good, local, finer = _assembled(fields)
        for whole, part in ((times.microseconds, microseconds), (times.local, local), (times.finer, finer)):
            whole[at[good]] = part[good]
        times.read[at[good]] = True
        left = np.flatnonzero(~times.read)
    return times


def _assembled(fields: dict[str, pa.Array]) -> tuple[Ints, Bools, Bools, Bools]:
    rows = len(next(iter(fields.values())))
    number = _numbers(fields, rows)
    nanoseconds = number("f", 0)
    local, shift = _offsets(fields, rows)
    if "s" in fields:
        seconds, good, local = number("s", 0), np.ones(rows, np.bool_), np.zeros(rows, np.bool_)
        nanoseconds = np.where(np.asarray(pc.starts_with(fields["s"], "-")), -nanoseconds, nanoseconds)
    else:
        days, good = _days(fields, number, rows)
        hour, minute, second = number("H", 0), number("M", 0), number("S", 0)
        if "I" in fields:
            half = number("I", 0)
            good &= (half >= 1) & (half <= 12)
            hour = half % 12 + _looked_up(fields["p"], lambda text: 12 * (text.lower() == "pm"))
        good &= (hour < 24) & (minute < 60) & (second < 60)
        seconds = days * 86_400 + hour * 3_600 + minute * 60 + second
    good &= (shift < 86_400) & (shift > -86_400)
    microseconds = (seconds - shift) * _SECOND_US + nanoseconds // 1_000
    good &= (microseconds >= FIRST_US) & (microseconds <= LAST_US)
    return microseconds, good, local, nanoseconds % 1_000 != 0


def _numbers(fields: dict[str, pa.Array], rows: int) -> Callable[[str, int], Ints]:
    def number(field: str, default: int) -> Ints:
        if field not in fields:
            return np.full(rows, default, np.int64)
        text = pc.utf8_ltrim(fields[field], " ")
        if field == "f":
            text = pc.utf8_rpad(text, 9, "0")
        text = pc.if_else(pc.equal(text, ""), str(default), text)
        return np.asarray(text.cast(pa.int64()))

    return number


def _days(fields: dict[str, pa.Array], number: Callable[[str, int], Ints], rows: int) -> tuple[Ints, Bools]:
    """Days since 1970, and whether each exists."""
    year = number("Y", 0)
    if "y" in fields:
        short = number("y", 0)
        year = short + np.where(short < 69, 2000, 1900)
    good = year >= 1
    if "j" in fields:
        start, end = _month_start(year, 0), _month_start(year, 12)
        day = number("j", 1)
    else:
        month = number("m", 1)
        if "b" in fields:
            month = _looked_up(fields["b"], lambda text: [name[:3] for name in _MONTHS].index(text[:3].lower()) + 1)
        good &= (month >= 1) & (month <= 12)
        month = np.clip(month, 1, 12)
        start, end = _month_start(year, month - 1), _month_start(year, month)
        day = number("d", 1)
    return start + day - 1, good & (day >= 1) & (day <= end - start)


def _month_start(year: Ints, months: Ints | int) -> Ints:
    """The first day of the month that is ``months`` months after January of ``year``."""
    count = (year - 1970) * 12 + months
    days: Ints = count.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return days


def _offsets(fields: dict[str, pa.Array], rows: int) -> tuple[Bools, Ints]:
    """Which rows have no offset, and the offsets of the others in seconds east of UTC."""
    if "z" not in fields:
        return np.ones(rows, np.bool_), np.zeros(rows, np.int64)
    local = np.asarray(pc.equal(fields["z"], ""))
    return local, _looked_up(fields["z"], _offset_secs)


def _offset_secs(text: str) -> int:
    if text in ("", "Z", "z", "UTC", "GMT"):
        return 0
    digits = text[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or "0")
    if hours > 23 or minutes > 59:
        return 86_400  # no offset: the row is refused
    return (hours * 3_600 + minutes * 60) * (-1 if text[0] == "-" else 1)


def _looked_up(texts: pa.Array, meaning: Callable[[str], int]) -> Ints:
    """``meaning`` of each text, called once for each distinct text."""
    coded = pc.dictionary_encode(texts)
    values = np.array([meaning(text) for text in coded.dictionary.to_pylist()], np.int64)
    return values[np.asarray(coded.indices)]


#: Common time formats, likelier ones first.
WELL_KNOWN = (
    "%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d", "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H",
    "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y", "%m/%d/%Y",
    "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y", "%d-%m-%Y %H:%M:%S", "%m-%d-%Y %H:%M:%S", "%d-%m-%Y", "%m-%d-%Y",
    "%m/%d/%Y %I:%M:%S %p", "%m/%d/%Y %I:%M %p", "%m/%d/%y %H:%M", "%d/%m/%y %H:%M", "%d/%b/%Y:%H:%M:%S %z",
    "%a %b %d %H:%M:%S %z %Y", "%a %b %e %H:%M:%S %Y", "%a, %d %b %Y %H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %Z",
    "%d %b %Y %H:%M:%S", "%d-%b-%Y %H:%M:%S", "%d-%b-%Y", "%b %d, %Y %H:%M:%S", "%b %d, %Y", "%d %B %Y", "%Y年%m月%d日",
    "%Y-%m-%d-%H.%M.%S.%f", "%Y-%m-%d %H:%M:%S,%f", "%Y-%m", "%Y/%m", "%y%m%d%H",
)  # fmt: skip
