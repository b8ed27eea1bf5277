"""Pairs of preprocessing_fns that are written differently and compute the same: one fingerprint per pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.transforms.twins.bridge_pairs import Function, S, buckets, table

OUTSIDE = table(["b", "a"], [2, 1])
TWO = tf.constant(2.0)


def named(i: dict[str, Any]) -> Any:
    with tf.name_scope("somewhere"), tf.device("CPU:0"):
        return tf.multiply(tf.constant(2.0, name="two"), i["p"], name="product")


def printed(i: dict[str, Any]) -> Any:
    tf.print(i["p"])
    return i["p"] * 2.0


def loop(factor: Any, name: str) -> Function:
    return lambda i: tf.while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, tf.multiply(x, factor, name=name)), [0, i["p"]],
                                   name=name)[1]  # fmt: skip


def unused(i: dict[str, Any]) -> Any:
    tf.exp(i["p"]), tf.random.uniform([3]), OUTSIDE.lookup(i["r"])
    return i["p"] * 2.0


def twice(i: dict[str, Any]) -> Any:
    return S.join([S.lower(i["q"]), S.lower(i["q"])])


def once(i: dict[str, Any]) -> Any:
    lower = S.lower(i["q"])
    return S.join([lower, lower])


def doubled(i: dict[str, Any]) -> Any:
    return i["p"] * 2.0


SAME: dict[str, tuple[Function, Function]] = {
    "names and devices": (doubled, named),
    "the order of a product": (doubled, lambda i: 2.0 * i["p"]),
    "the order of a sum": (lambda i: i["p"] + i["o"], lambda i: i["o"] + i["p"]),
    "the order of a comparison": (lambda i: tf.equal(i["n"], i["m"]), lambda i: tf.equal(i["m"], i["n"])),
    "the order of a conjunction": (lambda i: (i["n"] > 1) & (i["m"] > 1), lambda i: (i["m"] > 1) & (i["n"] > 1)),
    "the order of bits": (lambda i: tf.bitwise.bitwise_xor(i["n"], i["m"]), lambda i: tf.bitwise.bitwise_xor(i["m"], i["n"])),
    "a function": (doubled, lambda i: tf.function(lambda x: x * 2.0)(i["p"])),
    "a function in a function": (doubled, lambda i: tf.function(lambda x: tf.function(lambda y: 2.0 * y)(x))(i["p"])),
    "a compiled function": (doubled, lambda i: tf.function(lambda x: x * 2.0, jit_compile=True)(i["p"])),
    "identities": (doubled, lambda i: tf.identity(tf.stop_gradient(i["p"]) * tf.identity(2.0))),
    "a captured tensor": (doubled, lambda i: i["p"] * TWO),
    "a captured array": (doubled, lambda i: i["p"] * np.float32(2.0)),
    "a print": (doubled, printed),
    "an older print": (doubled, lambda i: tf.compat.v1.Print(i["p"], [i["p"]], "p") * 2.0),
    "what no output needs": (doubled, unused),
    "a default attribute": (lambda i: S.lower(i["q"]), lambda i: tf.raw_ops.StringLower(input=i["q"], encoding="")),
    "equal parts": (twice, once),
    "an array's kind": (lambda i: tf.gather([5, 6, 7], i["m"] % 3), lambda i: tf.gather(np.array([5, 6, 7], np.int32), i["m"] % 3)),
    "a fill and its values": (lambda i: i["v"] + tf.constant([1.0, 1.0, 1.0], tf.float64), lambda i: i["v"] + np.ones(3)),
    "the order of a table's entries": (lambda i: table(["a", "b"], [1, 2]).lookup(i["q"]),
                                       lambda i: table(["b", "a"], [2, 1]).lookup(i["q"])),
    "a table inside and outside": (lambda i: table(["a", "b"], [1, 2]).lookup(i["q"]), lambda i: OUTSIDE.lookup(i["q"])),
    "a vocabulary made twice": (lambda i: buckets(["a", "b"], 2).lookup(i["q"]), lambda i: buckets(["a", "b"], 2).lookup(i["q"])),
    "a loop's names": (loop(2.0, "one"), loop(2.0, "other")),
    "a mapped function made twice": (lambda i: tf.map_fn(lambda x: x * 2.0, i["p"]), lambda i: tf.map_fn(lambda y: y * 2.0, i["p"])),
    "the canonical NaN": (lambda i: tf.where(i["p"] > 1, float("nan"), i["p"]), lambda i: tf.where(i["p"] > 1, np.float32("nan"), i["p"])),
}  # fmt: skip
