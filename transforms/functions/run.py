"""Run a user-defined function over columns and check its result."""

from __future__ import annotations

import contextvars
import json
import linecache
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transforms.columns.arrays import one_array
from transforms.columns.arrow_types import arrow_type
from transforms.columns.columns import Column, Numbers, cast_to_layout, from_arrow, is_castable
from transforms.errors import DataError
from transforms.functions.guard import OutsideAccess, call_guarded
from transforms.functions.rebuild import name_of, rebuilt
from transforms.functions.second_run import SECOND_RUNS, Differs
from transforms.functions.values import decoded
from transforms.kernels.arrow import to_arrow
from transforms.kernels.text_validity import check_array
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted, type_from_document

#: The number of rows that are computed again alone, to check that a row depends only on itself.
_PROBES = 8


def python_function(*columns: Column, bundle: str, keywords: str, takes: Sequence[str], gives: str) -> Column:
    """The function over whole columns. Raises :class:`DataError` for a wrong result."""
    types = [column_type_of(text) for text in takes]
    arrays = [to_arrow(column, column_type) for column, column_type in zip(columns, types, strict=True)]
    result = compute(arrays, bundle, keywords, column_type_of(gives))
    second_runs = SECOND_RUNS.get()
    if second_runs is not None and len(result):
        try:
            second_runs.check(arrays, result, bundle, keywords, gives)
        except Differs as difference:
            raise _broken(
                bundle, str(difference), "the same values for the same rows, in every process"
            ) from difference
    return from_arrow(result, column_type_of(gives))


def one_event(*row: Any, bundle: str, keywords: str, takes: Sequence[str], gives: str) -> object:
    """The function over arrays of one row: its meaning for one event."""
    arrays = [array_of([value], column_type_of(text)) for value, text in zip(row, takes, strict=True)]
    result = compute(arrays, bundle, keywords, column_type_of(gives))
    return python_value(result, column_type_of(gives))


@lru_cache(maxsize=1024)
def column_type_of(text: str) -> ColumnType:
    """The column type that a JSON text describes."""
    return type_from_document(json.loads(text))


def compute(arrays: Sequence[pa.Array], bundle: str, keywords: str, gives: ColumnType) -> pa.Array:
    """The result of the function, in the layout of ``gives``; type, length, nulls and rows are checked."""
    rows = len(arrays[0])
    if rows == 0:
        return pa.array([], arrow_type(gives))
    function = rebuilt(bundle)
    result = call_checked(function, arrays, bundle, keywords, gives)
    if rows > 1:
        picks = pa.array(range(rows - 2, -1, -max(rows // _PROBES, 2)))
        alone = call_checked(function, [array.take(picks) for array in arrays], bundle, keywords, gives)
        if not _equal(alone, result.take(picks)):
            raise _broken(bundle, "gives a row something else when other rows are beside it, or when run again",
                          "a row of the result that depends on the same row of the arguments only")  # fmt: skip
    return result


def call_checked(
    function: Callable[..., Any], arrays: Sequence[pa.Array], bundle: str, keywords: str, gives: ColumnType
) -> pa.Array:
    """The result of a rebuilt function; type, length and nulls are checked."""
    given = {name: decoded(document, _no_reference) for name, document in json.loads(keywords).items()}
    try:
        result = run_guarded(function, arrays, given, bundle)
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"function {name_of(bundle)} raised {type(error).__name__}", where=_line(error), value=str(error)
        ) from error
    return _checked(result, len(arrays[0]), bundle, gives)


def run_guarded(
    function: Callable[..., Any], arrays: Sequence[pa.Array], given: Mapping[str, object], bundle: str
) -> object:
    """Call the function. Raises its exception, or :class:`DataError` for an access to the outside.

    It runs in an empty context, isolated from the context state of numpy and decimal.
    """
    try:
        result, accesses = call_guarded(lambda: contextvars.Context().run(function, *arrays, **given))
    except OutsideAccess as error:
        raise _outside(bundle, str(error), error) from error
    if accesses:
        raise _outside(bundle, accesses[0], None)
    return result


def _outside(bundle: str, access: str, error: BaseException | None) -> DataError:
    return DataError(f"function {name_of(bundle)} must depend on its arguments alone, got an access to the outside",
                     value=access, where="" if error is None else _line(error),
                     next_step="pass what it reads as a column or a parameter")  # fmt: skip


def _checked(result: object, rows: int, bundle: str, gives: ColumnType) -> pa.Array:
    expected = f"{rows} rows of {arrow_type(gives)}"
    if isinstance(result, pa.ChunkedArray):
        result = one_array(result)
    if not isinstance(result, pa.Array):
        raise _broken(bundle, f"returned {type(result).__name__}", f"an Arrow array, {expected}")
    if len(result) != rows or not (result.type == arrow_type(gives) or is_castable(result.type, gives)):
        raise _broken(bundle, f"returned {len(result)} rows of {result.type}", expected)
    try:
        check_array(result)
    except DataError as error:
        raise _broken(
            bundle, f"returned an array that is not valid: {error.what}, got {error.value!r}", expected
        ) from error
    try:
        items = result.flatten() if isinstance(gives, Ragged | Weighted | Vector) else None
        parts = [] if items is None else [items, *(items.flatten() if isinstance(gives, Weighted) else [])]
        if any(part.null_count for part in parts):
            raise _broken(bundle, "returned null items inside lists", "lists without null items")
        found = cast_to_layout(result, gives)
    except pa.ArrowException as error:
        raise _broken(bundle, f"returned an array that is not valid: {error}", expected) from error
    column = from_arrow(found, gives)
    _check_buckets(column, gives, bundle)
    return to_arrow(column, gives)


def _check_buckets(column: Column, gives: ColumnType, bundle: str) -> None:
    buckets = getattr(gives, "buckets", None)
    items = column if isinstance(column, Numbers) else getattr(column, "items", None)
    if buckets is None or not isinstance(items, Numbers):
        return
    values = items.values if items.valid is None else items.values[items.valid]
    if len(values) and not 0 <= values.min() <= values.max() < buckets:
        raise _broken(bundle, f"returned ids from {values.min()} to {values.max()}", f"ids in [0, {buckets})")


def _equal(a: pa.Array, b: pa.Array) -> bool:
    """Whether two results are equal bit for bit."""
    return _bytes(a) == _bytes(b)


def _bytes(array: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([pa.concat_arrays([array, array.slice(0, 0)])], names=["it"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _broken(bundle: str, got: str, expected: str) -> DataError:
    return DataError(f"function {name_of(bundle)} {got.partition(' ')[0]} what it must not", value=got,
                     allowed=expected, where=f"function {name_of(bundle)}",
                     next_step="repair the function and submit the model again")  # fmt: skip


def _line(error: BaseException) -> str:
    """The deepest line of the function that the error passed through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith("<function ")]
    if not frames:
        return ""
    last = frames[-1]
    return f"{last.name}: {linecache.getline(last.filename, last.lineno or 0).strip()}"


def _no_reference(kind: str, content: object) -> object:
    raise DataError("a parameter of a function must be a plain value", value=kind)


def array_of(values: list[Any], column_type: ColumnType) -> pa.Array:
    """Python values as Arrow: pairs for weighted items, microseconds for timestamps."""
    target = arrow_type(column_type)
    if isinstance(column_type, Weighted):
        values = [None if row is None else [{"id": item, "weight": weight} for item, weight in row] for row in values]
    if column_type.dtype is DType.TIMESTAMP:
        whole = pa.int64() if isinstance(column_type, Dense) else pa.list_(pa.int64())
        return pc.cast(pa.array(values, whole), target)
    return pa.array(values, target)


def python_value(array: pa.Array, column_type: ColumnType) -> object:
    """The first value of an array, as :func:`array_of` takes it."""
    if column_type.dtype is DType.TIMESTAMP:
        whole = pa.int64() if isinstance(column_type, Dense) else pa.list_(pa.int64())
        return array.cast(whole)[0].as_py()
    value = array[0].as_py()
    if isinstance(column_type, Weighted) and value is not None:
        return [(pair["id"], pair["weight"]) for pair in value]
    return value
