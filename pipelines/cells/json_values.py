"""JSON values as the texts of a column: paths, the kinds of values of each type, and Arrow's types for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.cells.typed_cells import SPACES
from pipelines.log_schemas.columns import LogColumn
from transforms.columns.arrow_types import ARROW_ELEMENT
from transforms.types import DType

_TEXT = pa.string()
_CONSTANTS = ("NaN", "Infinity", "-Infinity")


class _Mark(Enum):
    TWICE = 0
    NO_TEXT = 1


#: A key on the path that appears twice in its object.
TWICE: Final = _Mark.TWICE
#: A value whose kind its column does not accept.
NO_TEXT: Final = _Mark.NO_TEXT


class JsonNumber(str):
    """A JSON number as it is written."""

    __slots__ = ()
    __repr__ = str.__str__


class JsonObject(list[tuple[str, object]]):
    """The keys and values of a JSON object, in order."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Blocked:
    """A value in the middle of a path that is not an object."""

    value: object


DECODER = json.JSONDecoder(
    object_pairs_hook=JsonObject, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=JsonNumber
)


def at_path(document: object, keys: Sequence[str]) -> object:
    """The value at the path ``keys``: None if it is null or absent, :data:`TWICE` if a key is repeated."""
    value = document
    for key in keys:
        if value is None:
            return None
        if not isinstance(value, JsonObject):
            return _Blocked(value)
        found = [one for name, one in value if name == key]
        if len(found) > 1:
            return TWICE
        value = found[0] if found else None
    return value


def is_text(column: LogColumn) -> bool:
    """Whether a column's values are JSON strings, which may spell a missing value."""
    if column.is_list or column.is_json:
        return False
    return column.dtype is DType.STRING or column.separator is not None or _is_written_time(column)


def _is_written_time(column: LogColumn) -> bool:
    return column.dtype is DType.TIMESTAMP and (bool(column.formats) or column.unit == "iso8601")


def _is_punctuated(column: LogColumn) -> bool:
    return bool(column.thousands) or column.decimal != "."


def holds_number(column: LogColumn) -> bool:
    """Whether a column's values, or items, are JSON numbers with or without quotes."""
    return (
        not column.is_json
        and column.separator is None
        and column.dtype not in (DType.STRING, DType.BOOL)
        and not _is_written_time(column)
    )


def _arrow_item(column: LogColumn, is_quoted: bool) -> pa.DataType | None:
    """The type as which Arrow's JSON reader reads a value or an item; None if that reader cannot."""
    if column.is_json or _is_punctuated(column):
        return None
    if column.separator is not None or _is_written_time(column) or is_quoted:
        return _TEXT
    return pa.int64() if column.dtype is DType.TIMESTAMP else ARROW_ELEMENT[column.dtype]


@lru_cache(maxsize=32)
def arrow_fields(columns: tuple[LogColumn, ...], quoted: frozenset[str] = frozenset()) -> pa.Schema | None:
    """The Arrow types of the objects that hold ``columns``; None if Arrow's reader cannot read them.

    ``quoted``: the names of the columns whose numbers are in quotes.
    """
    tree: dict[str, Any] = {}
    for column in columns:
        item = _arrow_item(column, column.name in quoted)
        branch = tree
        for key in column.keys[:-1]:
            branch = branch.setdefault(key, {})
            if not isinstance(branch, dict):
                return None
        if item is None or column.keys[-1] in branch:
            return None
        branch[column.keys[-1]] = pa.list_(item) if column.is_list else item
    return pa.schema(_fields(tree))


def _fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(key, pa.struct(_fields(branch)) if isinstance(branch, dict) else branch)
        for key, branch in tree.items()
    ]


def value_at(table: pa.Table, keys: Sequence[str]) -> pa.Array:
    """The column at the path ``keys`` of a table that Arrow read."""
    column = table.column(keys[0])
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    for key in keys[1:]:
        array = pc.struct_field(array, [array.type.get_field_index(key)])
    return array


def column_text(value: object, column: LogColumn, null: Sequence[str]) -> object:
    """The text, or list of texts, of a value of the column's kind; :data:`NO_TEXT` for another kind."""
    if column.is_json:
        return _canonical(value)
    if not column.is_list:
        return _item_text(value, column, null)
    if not isinstance(value, list) or isinstance(value, JsonObject):
        return NO_TEXT
    texts = [_item_text(item, column, ()) for item in value]
    return NO_TEXT if any(text is NO_TEXT or text is None for text in texts) else texts


def _item_text(value: object, column: LogColumn, null: Sequence[str]) -> object:
    is_number = isinstance(value, JsonNumber)
    if column.separator is not None or column.dtype is DType.STRING:
        return _plain_text(value)
    if column.dtype is DType.BOOL:
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if is_number and value in ("0", "1") else NO_TEXT
    if _is_written_time(column):
        return str(value) if is_number and column.formats else _plain_text(value)
    if not is_number:
        return _quoted_number(value, column, null)
    written = str(value)
    if written in _CONSTANTS:
        return written if column.non_finite else NO_TEXT
    return written.replace(".", column.decimal) if column.decimal != "." else written


def _quoted_number(value: object, column: LogColumn, null: Sequence[str]) -> object:
    """The text of a number in quotes, as BigQuery writes every INT64; None if it spells a missing value."""
    text = _plain_text(value)
    if isinstance(text, str) and column.trim and not column.is_list:
        text = text.strip(SPACES)
    return None if text in null else text


def _plain_text(value: object) -> object:
    """A JSON string; :data:`NO_TEXT` if it holds a lone surrogate."""
    if not isinstance(value, str) or isinstance(value, JsonNumber):
        return NO_TEXT
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return NO_TEXT
    return value


def _canonical(value: object) -> object:
    """Compact JSON text: sorted keys, the last of equal keys, numbers as written."""
    try:
        text = _json_text(value)
        text.encode("utf-8")
    except (UnicodeEncodeError, ValueError):
        return NO_TEXT
    return text


def _json_text(value: object) -> str:
    if isinstance(value, JsonObject):
        pairs = sorted(dict(value).items())
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_json_text(item)}" for key, item in pairs) + "}"
    if isinstance(value, JsonNumber):
        if value in _CONSTANTS:
            raise ValueError(value)
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(_json_text(item) for item in value) + "]"
    if isinstance(value, _Blocked):
        raise ValueError("no object on the path")
    return json.dumps(value, ensure_ascii=False)


def spelled(value: object) -> str:
    """The text of a JSON value for a reject, at most 200 characters."""
    if isinstance(value, _Blocked):
        return spelled(value.value)
    if isinstance(value, JsonObject):
        return "an object"
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        return json.dumps(value[:200], ensure_ascii=False)[:200]
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return (
        str(value)[:200] if isinstance(value, JsonNumber) or len(cast("list[object]", value)) < 100 else "a long list"
    )
