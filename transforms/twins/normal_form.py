"""The twin of normalize: NFKC by decomposition, canonical order and composition.

Composition is sequential only within a group: a starter and the characters that may be composed with it. So all groups of
all texts are composed in parallel, one step for the second character of each, one for the third, and so on: as many steps
as the longest group has, usually a few and at most some hundreds.
"""

from __future__ import annotations

import tensorflow as tf

from transforms.twins.code_points import decoded, encoded, expanded, looked_up, positions_in
from transforms.twins.tensors import DenseTensor, TensorColumn
from transforms.twins.unicode_tables import CODE_BITS, combining_classes, composition_table, decomposition_table

_STARTER_ADJACENT = -1


def normalize(text: TensorColumn) -> TensorColumn:
    """NFKC, of texts or of lists of texts."""
    if isinstance(text, tf.RaggedTensor):
        return text.with_values(_normalize(text.values))
    return DenseTensor(_normalize(text.values))


def _normalize(values: tf.Tensor) -> tf.Tensor:
    codes = expanded(decoded(values), decomposition_table())
    rows = codes.value_rowids()
    begins_row = rows != tf.concat([[-1], rows[:-1]], 0)
    flat, classes = _ordered(codes.values, looked_up(combining_classes(), codes.values), begins_row)
    composed, kept = _composed(flat, classes, begins_row)
    return encoded(tf.ragged.boolean_mask(codes.with_values(composed), codes.with_values(kept)))


def _ordered(codes: tf.Tensor, classes: tf.Tensor, begins_row: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Code points and their classes, those between two starters of one text stably sorted by class."""
    segments = tf.cumsum(tf.cast(begins_row | (classes == 0), tf.int64))
    size = tf.size(codes, tf.int64)
    keys = (segments * 256 + tf.cast(classes, tf.int64)) * size + tf.range(size)
    order = tf.argsort(keys)
    return tf.gather(codes, order), tf.gather(classes, order)


def _composed(codes: tf.Tensor, classes: tf.Tensor, begins_row: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The code points with composites in place of their starters, and which of them remain."""
    table = composition_table()
    links, _ = positions_in(table.links, _pairs(tf.concat([[0], codes[:-1]], 0), codes))
    begins = begins_row | ((classes == 0) & ~links)
    members = tf.where(begins | (_ranks(classes, begins) <= table.depth))[:, 0]
    firsts = tf.where(tf.gather(begins, members))[:, 0]
    sizes = tf.concat([firsts[1:], [tf.size(members, tf.int64)]], 0)[: tf.size(firsts)] - firsts
    many = sizes > 1
    return _compose_groups(codes, classes, members, tf.boolean_mask(firsts, many), tf.boolean_mask(sizes, many))


def _ranks(classes: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
    """Which of its neighbours of one class within a group each code point is, counted from 0.

    No more than the depth of compositions can be composed, and the first that is not keeps those behind it apart.
    """
    changes = begins | (classes != tf.concat([[-1], classes[:-1]], 0))
    heads = tf.gather(tf.where(changes)[:, 0], tf.cumsum(tf.cast(changes, tf.int64)) - 1)
    return tf.cast(tf.range(tf.size(classes, tf.int64)) - heads, tf.int32)


def _compose_groups(
    codes: tf.Tensor, classes: tf.Tensor, members: tf.Tensor, firsts: tf.Tensor, sizes: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """All groups of two and more, each ``sizes`` of ``members`` from ``firsts`` on, step by step."""
    places = tf.gather(members, firsts)
    starts = tf.gather(classes, places) == 0
    starters = tf.where(starts, tf.gather(codes, places), 0)  # 0 composes with no character
    last = tf.where(starts, _STARTER_ADJACENT, tf.gather(classes, places))
    state = (tf.constant(1, tf.int64), codes, tf.ones_like(codes, tf.bool), starters, places, last)

    def step(k, codes, kept, starters, places, last):  # type: ignore[no-untyped-def]
        at = tf.gather(members, firsts + tf.minimum(k, sizes - 1))
        code, its_class, there = tf.gather(codes, at), tf.gather(classes, at), k < sizes
        found, pick = positions_in(composition_table().pairs, _pairs(starters, code))
        joins = there & found & (last < its_class)
        begins = there & ~joins & (its_class == 0)
        starters = tf.where(joins, tf.gather(composition_table().composites, pick), tf.where(begins, code, starters))
        codes = tf.tensor_scatter_nd_update(codes, places[joins][:, tf.newaxis], starters[joins])
        kept = tf.tensor_scatter_nd_update(kept, at[joins][:, tf.newaxis], tf.zeros_like(at[joins], tf.bool))
        stays = there & ~joins & ~begins
        last = tf.where(begins, _STARTER_ADJACENT, tf.where(stays, its_class, last))
        return k + 1, codes, kept, starters, tf.where(begins, at, places), last

    longest = tf.reduce_max(tf.concat([sizes, [0]], 0))
    _, composed, kept, *_ = tf.while_loop(lambda k, *rest: k < longest, step, state)
    return composed, kept


def _pairs(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    return tf.cast(first, tf.int64) * 2**CODE_BITS + tf.cast(second, tf.int64)
