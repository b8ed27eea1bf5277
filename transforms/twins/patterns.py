"""Twins of the operators that read a regular expression. TensorFlow's engine is RE2 too."""

from __future__ import annotations

import tensorflow as tf

from transforms.operators.patterns import only_group, unnamed
from transforms.twins.tensors import DenseTensor


def regex_extract(text: DenseTensor, *, pattern: str, group: int) -> DenseTensor:
    """The whole text replaced by the group.

    The pattern is put between anything as short as can be and anything: so the match is the leftmost, and of those that
    begin there the one that RE2 prefers, as in a search.
    """
    around = rf"\A(?s:.*?){only_group(pattern, group, '(')}(?s:.*)\z"
    found = tf.strings.regex_replace(text.values, around, r"\1", replace_global=False)
    return DenseTensor(found, tf.strings.regex_full_match(text.values, around))


def regex_replace(text: DenseTensor, *, pattern: str, replacement: str) -> DenseTensor:
    """Every match replaced."""
    return DenseTensor(tf.strings.regex_replace(text.values, unnamed(pattern), replacement))
