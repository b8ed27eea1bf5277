"""Constants as JSON documents: the values of globals, defaults and enclosed variables in a bundle.

Text, integers, booleans and None are themselves; other values are an object of one member, its kind. Equal constants have
equal documents in every process: sets are sorted; mappings keep their order, which is visible.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

Document = Any

#: The maximum size of an array constant.
ARRAY_MAX_BYTES = 65_536

#: The result of :func:`encoded` for a value that is not a constant.
NOT_A_CONSTANT: Final = object()

#: Longer integers are written in hexadecimal: Python refuses decimal text beyond 4,300 digits.
_PLAIN_INT_BITS = 14_000
_NAN = struct.pack(">d", math.nan)
_TIMES = (datetime.datetime, datetime.date, datetime.time)


def encoded(value: object, inner: Callable[[object, str], Document]) -> Document:
    """The document of a constant, or :data:`NOT_A_CONSTANT`. ``inner(item, place)`` encodes the items of a container."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if isinstance(value, int) and kind is int:
        return value if value.bit_length() <= _PLAIN_INT_BITS else {"int": hex(value)}
    if isinstance(value, float) and kind is float:
        return _float(value)
    if isinstance(value, bytes) and kind is bytes:
        return {"bytes": _base64(value)}
    container = _container(value, inner)
    return _special(value) if container is NOT_A_CONSTANT else container


def _float(value: float) -> Document:
    """A float with all of its bits: NaNs differ in sign and payload."""
    if not math.isnan(value):
        return {"float": value.hex()}
    bits = struct.pack(">d", value)
    return {"float": "nan"} if bits == _NAN else {"nan": bits.hex()}


def _container(value: object, inner: Callable[[object, str], Document]) -> Document:
    if type(value) in (tuple, list):
        assert isinstance(value, tuple | list)
        return {type(value).__name__: [inner(item, f"[{i}]") for i, item in enumerate(value)]}
    if type(value) in (set, frozenset):
        assert isinstance(value, set | frozenset)
        items = [inner(item, "{...}") for item in value]
        return {type(value).__name__: sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}
    if type(value) is dict:
        return {"dict": [[inner(key, ".keys()"), inner(item, f"[{key!r}]")] for key, item in value.items()]}
    return NOT_A_CONSTANT


def _special(value: object) -> Document:
    match value:
        case np.ndarray() if type(value) is not np.ndarray:
            return NOT_A_CONSTANT  # a masked array is more than its values
        case np.generic() | np.ndarray():
            return _numpy_document(value)
        case pa.DataType():
            if _needs_time_zones(value):
                return NOT_A_CONSTANT
            return {"arrow_type": _base64(pa.schema([("it", value)]).serialize())}
        case pa.Array() | pa.Scalar():
            return _arrow(value)
        case re.Pattern() if type(value.pattern) in (str, bytes) and not value.flags & re.LOCALE:
            return {"pattern": [_base64(value.pattern) if isinstance(value.pattern, bytes) else value.pattern,
                                isinstance(value.pattern, bytes), int(value.flags)]}  # fmt: skip
        case datetime.timedelta() if type(value) is datetime.timedelta:  # pandas' has nanoseconds too
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        case decimal.Decimal() if type(value) is decimal.Decimal:
            return {"decimal": str(value)}
    if isinstance(value, _TIMES) and type(value) in _TIMES and getattr(value, "tzinfo", None) in (None, datetime.UTC):
        fold = getattr(value, "fold", 0)  # not part of ISO 8601
        return {type(value).__name__: [value.isoformat(), fold] if fold else value.isoformat()}
    return NOT_A_CONSTANT


def _numpy_document(value: Any) -> Document:
    """An array with its order in memory, which sums and flat views depend on. Padding between items is refused."""
    dtype = value.dtype
    if dtype.kind not in "biufUSmM" or value.nbytes > ARRAY_MAX_BYTES or dtype.metadata or dtype.type is np.longdouble:
        return NOT_A_CONSTANT
    if not isinstance(value, np.ndarray):
        return {"numpy_scalar": [dtype.str, [], _base64(value.tobytes())]}
    if value.flags.c_contiguous:
        return {"numpy": [dtype.str, list(value.shape), _base64(value.tobytes())]}
    if value.flags.f_contiguous:
        return {"numpy": [dtype.str, list(value.shape), _base64(value.tobytes("F")), "F"]}
    return NOT_A_CONSTANT


def _needs_time_zones(value: pa.DataType) -> bool:
    """Whether values of a type depend on the rules of a time zone, which differ between machines."""
    return any(not _FIXED_ZONE.fullmatch(zone) for zone in _ZONE.findall(str(value)))


_ZONE = re.compile(r"tz=([^\]]*)\]")
_FIXED_ZONE = re.compile(r"UTC|[+-]\d\d:\d\d")


def _arrow(value: pa.Array | pa.Scalar) -> Document:
    array = value if isinstance(value, pa.Array) else pa.array([value.as_py()], value.type)
    if array.nbytes > ARRAY_MAX_BYTES or _needs_time_zones(array.type):
        return NOT_A_CONSTANT
    if isinstance(value, pa.Scalar) and not (array[0].equals(value) or value.as_py() != value.as_py()):
        return NOT_A_CONSTANT  # no Python value represents all of it
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([array], names=["it"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return {"arrow" if isinstance(value, pa.Array) else "arrow_scalar": _base64(sink.getvalue())}


def _base64(data: Any) -> str:
    return base64.b64encode(data).decode("ascii")


def decoded(document: Document, defined: Callable[[str, Any], object]) -> Any:
    """The value of a document. ``defined(kind, content)`` returns other values: functions, modules, classes."""
    if not isinstance(document, dict):
        return document
    ((kind, content),) = document.items()
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](decoded(item, defined) for item in content)
    if kind == "dict":
        return {decoded(key, defined): decoded(item, defined) for key, item in content}
    return _DECODERS[kind](content) if kind in _DECODERS else defined(kind, content)


_CONTAINERS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}


def _numpy(content: list[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    dtype, shape, data, *order = content
    array = np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape, order="F" if order else "C").copy("K")
    array.flags.writeable = False
    return array


def _arrow_array(content: str) -> pa.Array:
    with pa.ipc.open_stream(base64.b64decode(content)) as reader:
        return reader.read_next_batch().column(0)


def _folded(kind: type[datetime.datetime] | type[datetime.time], content: str | list[Any]) -> object:
    if isinstance(content, str):
        return kind.fromisoformat(content)
    text, fold = content
    return kind.fromisoformat(text).replace(fold=fold)


def _pattern(content: list[Any]) -> re.Pattern[Any]:
    text, is_bytes, flags = content
    return re.compile(base64.b64decode(text) if is_bytes else text, flags)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "float": lambda content: math.nan if content == "nan" else float.fromhex(content),
    "nan": lambda content: struct.unpack(">d", bytes.fromhex(content))[0],
    "int": lambda content: int(content, 16),
    "bytes": base64.b64decode,
    "numpy": _numpy,
    "numpy_scalar": lambda content: _numpy(content)[()],
    "arrow": _arrow_array,
    "arrow_scalar": lambda content: _arrow_array(content)[0],
    "arrow_type": lambda content: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(content))).field(0).type,
    "pattern": _pattern,
    "timedelta": lambda content: datetime.timedelta(*content),
    "decimal": decimal.Decimal,
    "datetime": lambda content: _folded(datetime.datetime, content),
    "date": datetime.date.fromisoformat,
    "time": lambda content: _folded(datetime.time, content),
}
