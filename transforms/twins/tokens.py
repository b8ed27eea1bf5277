"""Twins of the operators that cut text into tokens, and over lists of tokens."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from transforms.operators.patterns import escaped
from transforms.operators.text import WHITE_SPACE
from transforms.twins.lookup import vocabulary_lookup
from transforms.twins.tensors import ConstantsTensor, DenseTensor

#: TensorFlow's widest n-gram; no list is as long.
_WIDEST = 2**31 - 2


def split(text: DenseTensor, *, sep: str) -> tf.RaggedTensor:
    """Pieces that are not empty."""
    return _not_empty(tf.strings.split(text.values, sep))


def unigrams(text: DenseTensor) -> tf.RaggedTensor:
    """Split at spaces, after every other white space has become one: TensorFlow's own splitting knows ASCII only."""
    return _not_empty(tf.strings.split(tf.strings.regex_replace(text.values, f"[{escaped(WHITE_SPACE)}]", " "), " "))


def ngrams(tokens: tf.RaggedTensor, *, n: int, joiner: str) -> tf.RaggedTensor:
    """Neighbouring tokens joined."""
    return tf.strings.ngrams(tokens, min(n, _WIDEST), joiner)


def char_ngrams(text: DenseTensor, *, n: int) -> tf.RaggedTensor:
    """Neighbouring characters joined."""
    return tf.strings.ngrams(tf.strings.unicode_split(text.values, "UTF-8"), min(n, _WIDEST), "")


def remove_stop_words(tokens: tf.RaggedTensor, *, words: tuple[str, ...]) -> tf.RaggedTensor:
    """Each token looked up among the words."""
    if not words:
        return tokens
    distinct = list(dict.fromkeys(words))
    found = vocabulary_lookup(DenseTensor(tokens.values), ConstantsTensor(tf.constant(distinct)), oov_buckets=1)
    assert isinstance(found, DenseTensor), "an id for each token"
    return tf.ragged.boolean_mask(tokens, tokens.with_values(found.values == len(distinct)))


def _not_empty(pieces: Any) -> tf.RaggedTensor:
    return tf.ragged.boolean_mask(pieces, pieces.with_values(pieces.values != ""))
