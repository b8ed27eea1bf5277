"""Infer the columns of JSON lines: plain values by path, lists as lists, other values as JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pipelines.inference.values import ColumnGuess, guess_column, is_time_name
from pipelines.log_schemas.columns import LogColumn
from transforms.types import DType

_DEEPEST = 4
_MOST_COLUMNS = 500
#: An object with more keys, of which each row has few, is a map, whose keys are values.
_MOST_KEYS = 40


def json_rows(lines: Iterable[str]) -> list[Mapping[str, object]]:
    """The objects among some lines."""
    rows: list[Mapping[str, object]] = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def guess_json_columns(rows: Sequence[Mapping[str, object]]) -> list[ColumnGuess]:
    """A guess for each path to values, in order of appearance."""
    guesses: list[ColumnGuess] = []
    _walk(rows, len(rows), (), guesses)
    names: dict[str, int] = {}
    found = []
    for guess in guesses[:_MOST_COLUMNS]:
        name = guess.column.name
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:  # a_b beside {"a": {"b": …}}
            guess = replace(guess, column=replace(guess.column, name=f"{name}_{names[name]}", path=guess.column.keys))
        found.append(guess)
    return found


def _walk(rows: Sequence[Mapping[str, object]], total: int, path: tuple[str, ...], guesses: list[ColumnGuess]) -> None:
    keys = dict.fromkeys(key for row in rows for key in row)
    for key in keys:
        values = [row[key] for row in rows if row.get(key) is not None]
        here = (*path, key)
        inner = [value for value in values if isinstance(value, dict)]
        deep = len(here) < _DEEPEST and inner and len(inner) == len(values)
        if deep and len({name for value in inner for name in value}) <= _MOST_KEYS:
            _walk(inner, total, here, guesses)
        elif not _is_writable(here):
            continue
        else:
            guesses.append(_guess(here, values, total))


def _is_writable(path: tuple[str, ...]) -> bool:
    try:
        return bool("_".join(path).encode("utf-8"))
    except UnicodeEncodeError:
        return False


def _guess(path: tuple[str, ...], values: Sequence[object], total: int) -> ColumnGuess:
    name = "_".join(path)
    keys = path if len(path) > 1 else ()
    missing = 1 - len(values) / max(total, 1)
    if values and all(isinstance(value, list) for value in values):
        return replace(_list(name, keys, [item for value in values if isinstance(value, list) for item in value]),
                       missing_share=missing)  # fmt: skip
    kinds = {type(value) for value in values}
    if kinds == {bool, int} and all(value in (0, 1) for value in values):
        kinds, values = {bool}, [bool(value) for value in values]
    if not values or kinds & {dict, list} or len(kinds - {int, float}) > (0 if kinds & {int, float} else 1):
        unsure = ("every value in the sample is missing",) if not values else ()
        if kinds & {dict, list}:
            return ColumnGuess(LogColumn(name, DType.STRING, path=keys, is_json=True), missing_share=missing,
                               examples=_examples(values), distinct=_distinct(values))  # fmt: skip
        if values:
            column = LogColumn(name, DType.STRING, path=keys, is_json=True)
            unsure = ("the values are of several types and are kept as JSON text",)
            return ColumnGuess(
                column, unsure=unsure, missing_share=missing, examples=_examples(values), distinct=_distinct(values)
            )
        return ColumnGuess(LogColumn(name, DType.STRING, path=keys), unsure=unsure, missing_share=missing)
    guess = _plain(name, values, kinds)
    return replace(guess, column=replace(guess.column, path=keys), missing_share=missing)


def _plain(name: str, values: Sequence[object], kinds: set[type]) -> ColumnGuess:
    if kinds == {bool}:
        return replace(guess_column(name, [str(value).lower() for value in values]), nulls=frozenset())
    texts = [value if isinstance(value, str) else _spelled(value) for value in values]
    guess = guess_column(name, texts)
    if kinds == {str}:
        if guess.column.dtype is DType.TIMESTAMP and guess.column.unit in (None, "iso8601"):
            return guess
        return replace(guess, column=LogColumn(name, DType.STRING), unsure=(), time_rank=0, may_be_label=False)
    if guess.column.dtype is DType.BOOL:  # numbers 0 and 1
        return replace(guess, column=LogColumn(name, DType.BOOL), nulls=frozenset())
    if float in kinds and guess.column.dtype is DType.INT64:
        guess = replace(guess, column=LogColumn(name, DType.FLOAT64))
    if guess.column.dtype is DType.STRING:  # numbers that no type holds
        guess = replace(guess, column=LogColumn(name, DType.STRING, is_json=True))
    return replace(guess, nulls=frozenset())


def _spelled(value: object) -> str:
    return (
        str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else json.dumps(value)
    )


def _list(name: str, keys: tuple[str, ...], items: Sequence[object]) -> ColumnGuess:
    kinds = {type(item) for item in items if item is not None}
    dtype = None
    if kinds == {str}:
        guess = guess_column(name, [item for item in items if isinstance(item, str)])
        if guess.column.dtype is DType.TIMESTAMP and guess.column.unit == "iso8601":
            column = LogColumn(name, DType.TIMESTAMP, unit="iso8601", path=keys, is_list=True)
            return ColumnGuess(column, unsure=guess.unsure, examples=_examples(items), distinct=_distinct(items))
        dtype = DType.STRING
    elif kinds == {bool}:
        dtype = DType.BOOL
    elif kinds == {int} and all(
        isinstance(item, int) and -(2**63) <= item < 2**63 for item in items if item is not None
    ):
        dtype = DType.INT64
    elif kinds and kinds <= {int, float}:
        dtype = DType.FLOAT64
    if dtype is None:
        column = LogColumn(name, DType.STRING, path=keys, is_json=True)
        unsure = () if kinds else ("every list in the sample is empty: it is kept as JSON text",)
        return ColumnGuess(column, unsure=unsure, examples=_examples(items), distinct=_distinct(items))
    column = LogColumn(name, dtype, path=keys, is_list=True)
    unsure = ("the items may be times",) if is_time_name(name) and dtype is not DType.BOOL else ()
    return ColumnGuess(column, unsure=unsure, examples=_examples(items), distinct=_distinct(items))


def _distinct(values: Sequence[object]) -> int:
    return len({json.dumps(value, sort_keys=True) for value in values})


def _examples(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(json.dumps(value, ensure_ascii=False)[:40] for value in values[:3]))
