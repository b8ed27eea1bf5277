"""The twin of ``to_number``: ``tf.strings.to_number``, which raises for other texts, over those that write a number."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from transforms.operators.number_text import DECIMAL, HEXADECIMAL, NAMED
from transforms.twins import floats
from transforms.twins.casting import whole_numbers
from transforms.twins.tensors import ELEMENT, DenseTensor
from transforms.types import DType

Tensor = Any

_SPACES = "[ \\t\\n\\v\\f\\r]*"
_FLOAT = f"(?:{DECIMAL}|{HEXADECIMAL}|{NAMED})"


def to_number(texts: DenseTensor, *, dtype: str) -> DenseTensor:
    """The number that each text writes; null where it writes none, for which TensorFlow's operation fails."""
    trimmed = tf.strings.regex_replace(texts.values, f"^{_SPACES}|{_SPACES}$", "")
    target = ELEMENT[DType(dtype)]
    if target == tf.int64:
        return whole_numbers(trimmed)
    good = tf.strings.regex_full_match(trimmed, _FLOAT)
    values = tf.strings.to_number(tf.where(good, trimmed, "0"), target)
    return DenseTensor(floats.with_one_nan(values), good)
