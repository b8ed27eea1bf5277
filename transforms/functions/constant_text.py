"""Constants as text that differs if two constants differ in type, bits or order in memory."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import re
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.functions.values import NOT_A_CONSTANT, encoded

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


def text_of_constant(value: object) -> str | None:
    """The text of a plain value, an array or a set of plain values; None for anything else."""
    kind = type(value)
    if kind in _PLAIN:
        return _plain(value)
    if kind in (set, frozenset):
        items: Any = value
        return f"{kind.__name__} {{{', '.join(sorted(map(_plain, items)))}}}" if _all_plain(items) else None
    text = _special(value)
    return None if text is None else f"{kind.__module__}.{kind.__qualname__} {text}"


def _all_plain(items: Any) -> bool:
    return all(type(item) in _PLAIN for item in items)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"nan with bits {struct.pack('>d', value).hex()}" if math.isnan(value) else repr(value)
    if type(value) is int and value.bit_length() > 8_192:
        return hex(value)
    return repr(value)


def _special(value: object) -> str | None:
    match value:
        case np.ndarray() | np.generic():
            order = f"C {value.flags.c_contiguous} F {value.flags.f_contiguous}"
            if value.dtype.hasobject:
                return f"{value.dtype} of objects"
            return f"{value.dtype.str} {value.shape} {order} {_short(value.tobytes('A'))}"
        case pa.DataType() | pa.Array() | pa.Scalar():
            document = encoded(value, lambda item, place: None)
            if document is NOT_A_CONSTANT:
                return f"{value} that cannot be written down"
            return f"{value if isinstance(value, pa.DataType) else value.type} {_short(repr(document).encode())}"
        case re.Pattern():
            return f"{type(value.pattern).__qualname__} {value.pattern!r} with flags {int(value.flags)}"
        case datetime.datetime() | datetime.time():
            return f"{value!r} fold {value.fold}"
        case datetime.date() | datetime.timedelta() | decimal.Decimal():
            return f"{value!r}"
    return None


def _short(data: bytes) -> str:
    return data.hex() if len(data) <= 16 else f"digest {hashlib.sha256(data).hexdigest()[:16]}"
