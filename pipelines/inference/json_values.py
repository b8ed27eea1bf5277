"""Infer the columns of JSON lines: plain values by path, lists as lists, other values as JSON text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from pipelines.cells.json_values import JsonNumber
from pipelines.cells.typed_cells import SPACES, typed_cells
from pipelines.inference.times import is_time_name
from pipelines.inference.values import ColumnGuess, beyond_float, guess_column, guess_words
from pipelines.log_schemas.columns import LogColumn, TimeUnit
from transforms.types import DType

_DEEPEST = 4
_MOST_COLUMNS = 500
#: An object with more keys, of which each row has few, is a map, whose keys are values.
_MOST_KEYS = 40
_DECODER = json.JSONDecoder(parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=JsonNumber)
_QUOTED = "the numbers are in quotes, as BigQuery writes every INT64, and are read as numbers"


def json_rows(lines: Iterable[bytes]) -> list[Mapping[str, object]]:
    """The objects among some lines; numbers keep their digits."""
    rows: list[Mapping[str, object]] = []
    for line in lines:
        try:
            row = _DECODER.decode(line.decode("utf-8").strip())
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


@dataclass(frozen=True, slots=True)
class _Log:
    """The number of rows, the plausible event times, and the column that the user calls the event time."""

    rows: int
    range_us: tuple[int, int]
    time_column: str


def guess_json_columns(
    rows: Sequence[Mapping[str, object]], range_us: tuple[int, int], time_column: str = ""
) -> list[ColumnGuess]:
    """A guess for each path to values, in order of appearance; ``time_column``: the one that the user calls the event time."""
    guesses: list[ColumnGuess] = []
    _walk(rows, (), _Log(len(rows), range_us, time_column), guesses)
    names: dict[str, int] = {}
    found = []
    for guess in guesses[:_MOST_COLUMNS]:
        name = guess.column.name
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:  # a_b beside {"a": {"b": …}}
            guess = replace(guess, column=replace(guess.column, name=f"{name}_{names[name]}", path=guess.column.keys))
        found.append(guess)
    return found


def _walk(rows: Sequence[Mapping[str, object]], path: tuple[str, ...], log: _Log, guesses: list[ColumnGuess]) -> None:
    keys = dict.fromkeys(key for row in rows for key in row)
    for key in keys:
        values = [row[key] for row in rows if row.get(key) is not None]
        here = (*path, key)
        inner = [value for value in values if isinstance(value, dict)]
        deep = len(here) < _DEEPEST and inner and len(inner) == len(values)
        if deep and len({name for value in inner for name in value}) <= _MOST_KEYS:
            _walk(inner, here, log, guesses)
        elif _is_writable(here):
            guess = _guess("_".join(here), values, log)
            column = replace(guess.column, path=here if len(here) > 1 else ())
            absent = log.rows - len(values)
            guesses.append(replace(guess, column=column, rows=log.rows, empty_rows=guess.empty_rows + absent))


def _is_writable(path: tuple[str, ...]) -> bool:
    try:
        return bool("_".join(path).encode("utf-8"))
    except UnicodeEncodeError:
        return False


def _guess(name: str, values: Sequence[object], log: _Log) -> ColumnGuess:
    """A column with these values, none of them null."""
    kinds = {type(value) for value in values}
    if not values:
        return ColumnGuess(LogColumn(name, DType.STRING), unsure=("every value in the sample is missing",))
    if kinds == {list}:
        return _list(name, [item for value in values if isinstance(value, list) for item in value], values)
    if kinds & {dict, list}:
        return _json_text(name, values)
    if kinds <= {bool, JsonNumber} and bool in kinds and all(value in (True, False, "0", "1") for value in values):
        texts = ["true" if value in (True, "1") else "false" for value in values]
        return replace(guess_column(name, texts, log.range_us), nulls=frozenset())
    texts = [value for value in values if isinstance(value, str)]
    if kinds == {JsonNumber}:
        return _numbers(name, texts, log)
    if kinds == {str}:
        return _strings(name, texts, log)
    if kinds == {str, JsonNumber}:
        guess = _strings(name, texts, log)
        if guess.column.dtype is not DType.STRING and guess.column.unit != "iso8601":
            return guess
    return _json_text(name, values, "the values have several types and are kept as JSON text")


def _numbers(name: str, texts: Sequence[str], log: _Log) -> ColumnGuess:
    finite = [text for text in texts if text not in ("NaN", "Infinity", "-Infinity")]
    guess = guess_column(name, finite, log.range_us, is_named_time=name == log.time_column)
    column = guess.column
    if len(finite) < len(texts):
        column = LogColumn(name, DType.FLOAT64, non_finite=True)
        guess = replace(guess, unsure=("NaN and infinities are read as numbers",), time=None)
    elif column.dtype is DType.STRING:  # numbers that no type holds
        column = LogColumn(name, DType.STRING, is_json=True)
    return replace(guess, column=column, nulls=frozenset(), spelled={})


def _strings(name: str, texts: Sequence[str], log: _Log) -> ColumnGuess:
    """Strings, and numbers in quotes."""
    guess = guess_column(name, texts, log.range_us, is_named_time=name == log.time_column)
    column = guess.column
    if column.dtype is DType.BOOL and set(guess.examples) <= {"0", "1"}:
        column = LogColumn(name, DType.INT64, trim=column.trim)
    elif column.dtype is DType.BOOL or column.separator is not None:
        return _text(guess, texts)
    if column.dtype in (DType.INT64, DType.FLOAT64) and (kept := _kept_as_text(column, texts, guess.nulls)):
        return _text(guess, texts, kept)
    counted = column.dtype is DType.TIMESTAMP and column.unit not in (None, "iso8601")
    if counted or column.dtype in (DType.INT64, DType.FLOAT64):
        return replace(guess, column=column, unsure=(_QUOTED, *guess.unsure))
    return guess


def _kept_as_text(column: LogColumn, texts: Sequence[str], nulls: Collection[str]) -> str:
    """Why strings that look like numbers stay text; empty if they are numbers in quotes.

    A writer of numbers in quotes writes numbers only, each in one way. Postal codes and versions are texts.
    """
    counts = Counter(text for text in (one.strip(SPACES) for one in texts) if text and text not in nulls)
    if any(re.match("-?0[0-9]", text) for text in counts):
        return "digits with leading zeros are kept as text"
    utf8 = [text.encode("utf-8", "replace").decode() for text in counts]
    bad = typed_cells(pa.array(utf8, pa.string()), column)[1]
    words = sum(count for count, is_bad in zip(counts.values(), bad.tolist(), strict=True) if is_bad)
    if words:
        return f"{words:,} of {counts.total():,} strings are no {column.dtype}: they are kept as text"
    if column.dtype is DType.FLOAT64 and (long := beyond_float(counts)):
        return f"strings such as {long[0][:40]} have more digits than float64 keeps: they are kept as text"
    decimals = {text.partition(".")[2] for text in counts if "." in text}
    if (
        column.decimal == "."
        and not column.thousands
        and len(set(map(len, decimals))) > 1
        and any(len(part) > 1 and part.endswith("0") for part in decimals)
    ):
        return "decimals such as 1.9 and 1.10, which may be versions, are kept as text"
    return ""


def _text(guess: ColumnGuess, texts: Sequence[str], *unsure: str) -> ColumnGuess:
    """The column as plain text."""
    return replace(guess_words(guess.column.name, texts, with_lists=False), unsure=unsure, time=guess.time)


def _list(name: str, items: Sequence[object], values: Sequence[object]) -> ColumnGuess:
    kinds = {type(item) for item in items}
    texts = [item for item in items if isinstance(item, str)]
    column, unsure = None, ("the items may be times",) if is_time_name(name) and bool not in kinds else ()
    if kinds == {bool}:
        column = LogColumn(name, DType.BOOL, is_list=True)
    elif kinds == {JsonNumber}:
        column = _list_of(name, texts, DType.INT64) or _list_of(name, texts, DType.FLOAT64)
    elif kinds == {str} and (numbers := _list_of(name, texts, DType.INT64)) is not None:
        column, unsure = numbers, (_QUOTED, *unsure)
    elif kinds == {str}:
        column = _list_of(name, texts, DType.TIMESTAMP)
        column, unsure = (LogColumn(name, DType.STRING, is_list=True), unsure) if column is None else (column, ())
    if column is None:
        said = "the lists hold nulls" if type(None) in kinds else "the items of the lists have several types"
        return _json_text(name, values, f"{said}: they are kept as JSON text" if kinds - {dict, list} else
                          "" if kinds else "every list in the sample is empty: it is kept as JSON text")  # fmt: skip
    return ColumnGuess(column, unsure=unsure, examples=_examples(items), distinct=_distinct(items))


def _list_of(name: str, texts: Sequence[str], dtype: DType) -> LogColumn | None:
    """A column of lists whose items are all of a type by the rules of an import; None if one is not."""
    unit: TimeUnit | None = "iso8601" if dtype is DType.TIMESTAMP else None
    item = LogColumn(name, dtype, unit=unit)
    distinct = [text.encode("utf-8", "replace").decode() for text in dict.fromkeys(texts)]
    if dtype is DType.INT64 and any(re.match("-?0[0-9]", text) for text in distinct):
        return None
    bad = typed_cells(pa.array(distinct, pa.string()), item)[1]
    return None if bad.any() else replace(item, is_list=True)


def _json_text(name: str, values: Sequence[object], *unsure: str) -> ColumnGuess:
    column = LogColumn(name, DType.STRING, is_json=True)
    return ColumnGuess(
        column, unsure=tuple(filter(None, unsure)), examples=_examples(values), distinct=_distinct(values)
    )


def _distinct(values: Sequence[object]) -> int:
    return len(set(map(_spelled, values)))


def _examples(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_spelled(value)[:40] for value in values[:3]))


def _spelled(value: object) -> str:
    """A value as JSON text, with sorted keys and numbers as written."""
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_spelled(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_spelled, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
