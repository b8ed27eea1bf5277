"""Pairs of preprocessing_fns with one output each, that differ in what they compute or that compute the same.

Every function takes the inputs and gives the output. ``INPUTS`` are rows over which each pair of ``DIFFERENT`` differs, so
that a pair that does not is a mistake here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

import headrace as hr

Function = Callable[[dict[str, Any]], Any]

COLUMNS = {"q": hr.text("q"), "r": hr.text("r"), "p": hr.float32("p"), "o": hr.float32("o"), "n": hr.int64("n"),
           "m": hr.int64("m"), "d": hr.float64("d"), "tags": hr.ragged("tags", "string"),
           "ids": hr.ragged("ids", "int64"), "v": hr.vector("v", "float64", 3)}  # fmt: skip
#: Keys that enter as ragged tensors.
RAGGED = ("tags",)

INPUTS = pa.table({
    "q": ["Red shoes", "", "b,a", "ÄRGER x", "1.5", "a", "aXbXc", "A,B\tC"],
    "r": ["x", "y", "", "z z", "b", "a", "0", "é"],
    "p": pa.array([1.5, -0.0, 2.5, 3e9, -2.5, 0.0, 0.3, -7.0], pa.float32()),
    "o": pa.array([-0.0, 0.0, 4.5, 2.0, 3.0, -1.0, 0.7, 2.0], pa.float32()),
    "n": pa.array([3, -7, 0, 300, 5_000_000_000, 1, 2, 65], pa.int64()),
    "m": pa.array([1, 2, 5, 4, 3, 7, 2, 3], pa.int64()),
    "d": pa.array([0.1, -2.0, 5.5, 1e40, 0.0, 1.0, 2.0, 9.99], pa.float64()),
    "tags": [["a", "b", "c"], [], ["z"], ["B", "a"], ["c", "c"], ["a"], ["b"], ["é", "a"]],
    "ids": pa.array([[1, 2, 3], [], [9], [4, 4], [7], [1], [2, 1], [3]], pa.list_(pa.int64())),
    "v": pa.array([[0.5, 2.0, -1.0], [1.0, 1.0, 1.0], [3.0, -0.5, 2.0], [1e3, 2.0, 3.0], [0.0, 0.0, 7.0],
                   [9.0, 8.0, 7.0], [1.0, 3.0, 2.0], [4.0, 4.0, 5.0]], pa.list_(pa.float64(), 3)),
})  # fmt: skip


def by(make: Callable[[dict[str, Any], Any], Any], *values: Any) -> list[tuple[Function, Function]]:
    """Each two neighbours of ``values``, as functions that differ by them alone."""
    made = [(lambda i, value=value: make(i, value)) for value in values]
    return list(pairwise(made))


def table(keys: list[str], values: list[Any], default: Any = -1, dtype: Any = tf.int64) -> Any:
    filling = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values, dtype))
    return tf.lookup.StaticHashTable(filling, default)


def buckets(keys: list[str], oov: int) -> Any:
    numbers = tf.constant(list(range(len(keys))), tf.int64)
    return tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(keys, numbers), oov)


def nan(bits: int) -> Any:
    return np.frombuffer(struct.pack("<I", bits), np.float32)


def loop(i: dict[str, Any], bound: int, factor: float, maximum: int = 100) -> Any:
    return tf.while_loop(lambda k, x: k < bound, lambda k, x: (k + 1, x * factor + 1.0), [0, i["p"]],
                         maximum_iterations=maximum)[1]  # fmt: skip


def inner(factor: float, inside: float = 0.0) -> Any:
    """A function that calls a function, in the body of a loop."""

    @tf.function
    def deepest(x: Any) -> Any:
        return x * factor + inside

    @tf.function
    def middle(x: Any) -> Any:
        return deepest(x) - deepest(x * 3.0)

    return lambda i: tf.map_fn(middle, i["p"])


def words(i: dict[str, Any]) -> Any:
    return tf.strings.split(i["q"])


S, M, B = tf.strings, tf.math, tf.bitwise
DIFFERENT: dict[str, list[tuple[Function, Function]]] = {
    # constants
    "a factor": by(lambda i, c: i["p"] * c, 2.0, 3.0, np.nextafter(np.float32(3), np.float32(4))),
    "the sign of zero": by(lambda i, c: i["p"] + c, 0.0, -0.0),
    "the sign of zero in an array": by(lambda i, c: i["v"] + np.array(c), [0.0, 0.0, 0.0], [-1.0, 0.0, -0.0]),
    "what replaces": by(lambda i, c: tf.where(i["p"] > 1, c, i["p"]), 0.0, -0.0, float("nan"), float("inf")),
    "a NaN's payload": by(
        lambda i, c: i["n"] + tf.cast(tf.bitcast(tf.constant(c)[0], tf.int32), tf.int64),
        nan(0x7FC00000), nan(0x7FC00001), nan(0xFFC00000), nan(0xFFC00001),
    ),
    "a NaN's payload in a scalar": by(
        lambda i, c: i["n"] + tf.cast(tf.bitcast(tf.constant(c.item(), tf.float32) * 1.0, tf.int32), tf.int64),
        nan(0x7FC00000), nan(0xFFC00000),
    ),
    "an element of a large array": by(lambda i, at: tf.gather(np.arange(5000) == at, i["m"] + 4000), 4002, 4003),
    "an array's order": by(lambda i, c: tf.gather(np.array(c), i["m"] % 3), [1, 2, 3], [2, 1, 3]),
    "a captured tensor": by(lambda i, c: i["p"] * c, tf.constant(2.0), tf.constant(5.0)),
    "a captured large tensor": by(lambda i, c: tf.gather(c, i["m"]), tf.range(500), tf.range(1, 501)),
    "text": by(lambda i, c: tf.io.encode_base64(S.join([i["q"], c])), "", " ", "a", "a\0", "ä", "a\u0308", b"\xff", b"\xfe"),
    "an element type": by(lambda i, c: tf.cast(tf.cast(i["d"], c), tf.float64), *(
        tf.float16, tf.bfloat16, tf.float32, tf.float64)),
    "a width": by(lambda i, c: tf.cast(tf.cast(i["n"], c), tf.int64), tf.int8, tf.uint8, tf.int16, tf.int32, tf.uint32),
    "saturation": [(lambda i: tf.cast(i["n"], tf.int8), lambda i: tf.saturate_cast(i["n"], tf.int8))],
    "an element type of constants": [(lambda i: tf.cast(tf.cast(i["d"], tf.float32) * 0.1, tf.float64),
                                      lambda i: i["d"] * 0.1)],
    # attributes
    "buckets": by(lambda i, c: S.to_hash_bucket_fast(i["q"], c), 10, 11),
    "a hash key": by(lambda i, c: S.to_hash_bucket_strong(i["q"], 1000, c), [1, 2], [2, 1]),
    "a hash function": [(lambda i: S.to_hash_bucket_fast(i["q"], 99), lambda i: S.to_hash_bucket(i["q"], 99))],
    "letter case": by(lambda i, c: S.lower(i["q"], encoding=c), "", "utf-8"),
    "units": by(lambda i, c: S.length(i["q"], unit=c), "BYTE", "UTF8_CHAR"),
    "units of a part": by(lambda i, c: tf.io.encode_base64(S.substr(i["q"], 0, 1, unit=c)),
                          "BYTE", "UTF8_CHAR"),
    "a part": by(lambda i, c: tf.io.encode_base64(S.substr(S.join([i["q"], "xyzw"]), *c)), (0, 1), (1, 1), (1, 2), (-1, 1)),
    "a separator": by(lambda i, c: S.split(i["q"], c), ",", "X", " "),
    "how often": by(lambda i, c: S.split(i["q"], "X", maxsplit=c), 1, 2),
    "a joint": by(lambda i, c: S.join([i["q"], i["r"]], c), "", "_", "__"),
    "a pattern": by(lambda i, c: S.regex_replace(i["q"], c, "?"), "a", "aX?", "[ab]"),
    "a replacement": by(lambda i, c: S.regex_replace(i["q"], "(a)", c), r"\1\1", r"\1"),
    "all or the first": by(lambda i, c: S.regex_replace(i["q"], "X", "", replace_global=c), True, False),
    "a match": by(lambda i, c: S.regex_full_match(i["q"], c), "a", "a.*", "a?"),
    "digits": by(lambda i, c: S.as_string(i["p"], **c), {}, {"precision": 2}, {"scientific": True}, {"width": 9},
                 {"width": 9, "fill": "0"}, {"shortest": True}),
    "n-grams": by(lambda i, c: S.ngrams(words(i), **c), {"ngram_width": 1}, {"ngram_width": 2},
                  {"ngram_width": 2, "separator": "-"}, {"ngram_width": 2, "separator": "-", "pad_values": ("<", ">")}),
    "a template": by(lambda i, c: S.join([i["q"], S.format(c, tf.constant([1, 2, 3]))]), "{}", "<{}>"),
    "padding": by(lambda i, c: tf.io.encode_base64(i["q"], pad=c), True, False),
    "an encoding": by(lambda i, c: S.unicode_transcode(i["q"], c, "UTF-8"), "UTF-8", "ISO-8859-1"),
    "which encoding": by(lambda i, c: S.length(S.unicode_encode(S.unicode_decode(i["q"], "UTF-8"), c)), *(
        "UTF-8", "UTF-16-BE", "UTF-32-BE")),
    "bytes or characters": [(lambda i: S.bytes_split(i["q"]).row_lengths(),
                             lambda i: S.unicode_split(i["q"], "UTF-8").row_lengths())],
    "the order of bytes": by(lambda i, c: tf.reshape(tf.io.decode_raw(S.substr(S.join([i["q"], "____"]), 0, 4), tf.int32,
                                                                      little_endian=c), [-1]), True, False),
    "an axis": by(lambda i, c: tf.reduce_sum(tf.reshape(i["v"], [-1, 3, 1]) * [[1.0, 2.0, 3.0]], axis=c), 1, 2),
    "a reduction": by(lambda i, c: c(i["v"], axis=1), tf.reduce_sum, tf.reduce_max, tf.reduce_min, tf.reduce_prod,
                      tf.reduce_mean, tf.norm),
    "which place": by(lambda i, c: c(i["v"], 1), tf.argmax, tf.argmin),
    "running sums": by(lambda i, c: tf.cumsum(i["v"], 1, **c), {}, {"exclusive": True}, {"reverse": True}),
    "the largest": by(lambda i, k: tf.reduce_sum(M.top_k(i["v"], k)[0], 1), 1, 2),
    "a direction": by(lambda i, c: tf.sort(i["v"], 1, c), "ASCENDING", "DESCENDING"),
    "bounds": by(lambda i, c: tf.clip_by_value(i["p"], *c), (0.0, 1.0), (0.0, 2.0), (-1.0, 2.0)),
    "rounding": by(lambda i, c: c(i["p"]), tf.round, tf.floor, tf.math.ceil),
    "a remainder": [(lambda i: M.floormod(i["n"], i["m"]), lambda i: tf.truncatemod(i["n"], i["m"])),
                    (lambda i: i["n"] // i["m"], lambda i: tf.truncatediv(i["n"], i["m"]))],
    "an equation": by(lambda i, c: tf.einsum(c, i["v"], np.arange(9.0).reshape(3, 3)), "ij,jk->ik", "ij,kj->ik"),
    "boundaries": by(lambda i, c: tf.raw_ops.Bucketize(input=i["p"], boundaries=c), [0.0, 1.0], [0.0, 2.0], [-3.0, 2.0]),
    "a side": by(lambda i, c: tf.searchsorted([-0.5, 0.0, 1.5], i["p"], side=c), "left", "right"),
    "quantization": by(lambda i, c: tf.quantization.fake_quant_with_min_max_args(i["p"], -6, 6, c), 8, 4),
    "a slope": by(lambda i, c: tf.nn.leaky_relu(i["p"], c), 0.2, 0.0, 0.1),
    "a comparison": by(lambda i, c: c(i["p"], i["o"]), tf.less, tf.less_equal, tf.greater, tf.equal),
    "bits": by(lambda i, c: c(i["n"], i["m"]), B.bitwise_and, B.bitwise_or, B.bitwise_xor, B.left_shift, B.right_shift),
    # the order of what does not commute
    "a difference": [(lambda i: i["p"] - i["o"], lambda i: i["o"] - i["p"])],
    "a quotient": [(lambda i: i["d"] / tf.cast(i["m"], tf.float64), lambda i: tf.cast(i["m"], tf.float64) / i["d"])],
    "a power": [(lambda i: i["m"] ** 2, lambda i: 2 ** i["m"])],
    "an angle": [(lambda i: M.atan2(i["p"], i["o"]), lambda i: M.atan2(i["o"], i["p"]))],
    "the larger of two zeros": [(lambda i: tf.maximum(i["p"] * 0.0, -i["p"] * 0.0) + i["p"],
                                 lambda i: tf.minimum(i["p"] * 0.0, -i["p"] * 0.0) - i["p"])],
    "texts": [(lambda i: i["q"] + i["r"], lambda i: i["r"] + i["q"]),
              (lambda i: S.join([i["q"], i["r"]]), lambda i: S.join([i["r"], i["q"]]))],
    "a stack": [(lambda i: tf.stack([i["p"], i["o"]], 1), lambda i: tf.stack([i["o"], i["p"]], 1))],
    "a choice": [(lambda i: tf.where(i["p"] > 1, i["p"], i["o"]), lambda i: tf.where(i["p"] > 1, i["o"], i["p"]))],
    "parts": by(lambda i, at: tf.unstack(i["v"], axis=1)[at], 0, 1, 2),
    "outputs": by(lambda i, at: tf.cast(M.top_k(i["v"], 2)[at], tf.int64), 0, 1),
    "lists": [(lambda i: tf.concat([i["tags"], words(i)], 1), lambda i: tf.concat([words(i), i["tags"]], 1))],
    "products of matrices": [(lambda i: tf.matmul(i["v"], np.arange(9.0).reshape(3, 3)),
                              lambda i: tf.matmul(i["v"], np.arange(9.0).reshape(3, 3), transpose_b=True))],
    # shapes and pads
    "a pad": by(lambda i, c: tf.pad(i["v"], [[0, 0], [1, 2]], **c), {}, {"constant_values": 1}, {"constant_values": -0.0},
                {"mode": "REFLECT"}, {"mode": "SYMMETRIC"}),
    "where a pad is": by(lambda i, c: tf.pad(i["v"], [[0, 0], c]), [1, 2], [2, 1]),
    "a turn": by(lambda i, c: tf.roll(i["v"], c, 1), 1, 2),
    "an end": by(lambda i, c: i["v"][:, c], slice(0, 2), slice(1, 3), slice(None, None, 2), slice(None, None, -1)),
    "a grid": by(lambda i, c: tf.one_hot(i["m"], 9, *c), (), (2.0,), (2.0, 1.0)),
    "a size": by(lambda i, c: tf.one_hot(i["m"], c), 8, 9),
    "a band": by(lambda i, c: tf.reshape(tf.linalg.band_part(tf.linalg.diag(i["v"]) + 1, *c), [-1, 9]), (0, -1), (-1, 0)),
    "points": by(lambda i, c: tf.gather(tf.linspace(0.0, 1.0, c), i["m"]), 9, 10),
    "steps": by(lambda i, c: tf.gather(tf.range(0, 100, c), i["m"]), 1, 2),
    "a missing entry": by(lambda i, c: i["tags"].to_tensor(c, shape=[None, 2]), "", "-"),
    "a width of lists": by(lambda i, c: i["tags"].to_tensor("", shape=[None, c]), 2, 3),
    "a window": by(lambda i, c: tf.squeeze(tf.nn.avg_pool1d(i["v"][:, :, None], 2, 1, c), 2)[:, :2] * [1.0, 3.0] + i["v"][:, 2:]
                   * float(len(c)), "SAME", "VALID"),
    "a kernel": by(lambda i, c: tf.squeeze(tf.nn.conv1d(i["v"][:, :, None], np.array(c)[:, None, None], 1, "SAME"), 2),
                   [1.0, 2.0], [2.0, 1.0]),
    # sparse and ragged tensors
    "values of a sparse tensor": by(lambda i, c: tf.sparse.map_values(lambda x: x * c, i["ids"]), 2, 3),
    "an empty row": by(lambda i, c: tf.sparse.fill_empty_rows(i["ids"], c)[0], tf.constant(0, tf.int64), tf.constant(5, tf.int64)),
    "a default": by(lambda i, c: tf.sparse.to_dense(tf.sparse.slice(i["ids"], [0, 0], [tf.size(i["p"], tf.int64), 2]), c)[:, 0]
                    + i["n"], tf.constant(0, tf.int64), tf.constant(5, tf.int64)),
    "lengths": [(lambda i: i["tags"].row_lengths(), lambda i: i["tags"].row_lengths() + 1)],
    "a part of lists": by(lambda i, c: i["tags"][:, c], slice(0, 1), slice(1, None), slice(-1, None)),
    "an order of lists": [(lambda i: i["tags"], lambda i: tf.reverse(i["tags"], [1]))],
    "a set operation": [(lambda i: tf.sets.intersection(i["tags"].to_sparse(), words(i).to_sparse()),
                         lambda i: tf.sets.union(i["tags"].to_sparse(), words(i).to_sparse())),
                        (lambda i: tf.sets.difference(i["tags"].to_sparse(), words(i).to_sparse()),
                         lambda i: tf.sets.difference(i["tags"].to_sparse(), words(i).to_sparse(), aminusb=False))],
    "a cross": by(lambda i, c: tf.sparse.cross_hashed([i["tags"].to_sparse(), words(i).to_sparse()], 50, c), 1, 2),
    # loops, branches and functions in them
    "a bound": by(lambda i, c: loop(i, c, 2.0), 3, 4),
    "a body": by(lambda i, c: loop(i, 3, c), 2.0, 3.0),
    "a maximum": by(lambda i, c: loop(i, 10, 2.0, c), 2, 3),
    "a mapped function": by(lambda i, c: tf.map_fn(lambda x: x * c, i["p"]), 2.0, 3.0),
    "a function in a function in a body": [(inner(2.0), inner(3.0)), (inner(2.0, 0.0), inner(2.0, 1.0))],
    "a captured tensor in a body": by(lambda i, c: tf.map_fn(lambda x: x * c[0], i["p"]), np.full(300, 2.0, np.float32),
                                      np.full(300, 3.0, np.float32)),
    "a start": by(lambda i, c: tf.foldl(lambda a, x: a + x, tf.transpose(i["v"]), c + i["d"]), 0.0, 1.0),
    "branches": [(lambda i: tf.map_fn(lambda x: tf.cond(x > 1, lambda: x * 2, lambda: x * 3), i["p"]),
                  lambda i: tf.map_fn(lambda x: tf.cond(x > 1, lambda: x * 3, lambda: x * 2), i["p"])),
                 (lambda i: tf.map_fn(lambda x: tf.cond(x > 1, lambda: x * 2, lambda: x * 3), i["p"]),
                  lambda i: tf.map_fn(lambda x: tf.cond(x > 2, lambda: x * 2, lambda: x * 3), i["p"]))],
    "which branch": by(lambda i, c: tf.switch_case(tf.constant(c), [lambda: i["p"], lambda: -i["p"], lambda: i["o"]]),
                       0, 1, 2),
    "a branch of a loop of a loop": by(
        lambda i, c: tf.map_fn(lambda row: tf.foldl(lambda a, x: tf.cond(x > 1, lambda: a + c, lambda: a), row), i["v"]),
        1.0, 2.0),
    # tables
    "a table's keys": by(lambda i, c: table(c, [1, 2]).lookup(i["q"]), ["a", "b"], ["a", "1.5"]),
    "a table's values": by(lambda i, c: table(["a", "1.5"], c).lookup(i["q"]), [1, 2], [2, 1]),
    "a table's default": by(lambda i, c: table(["a", "b"], [1, 2], c).lookup(i["q"]), -1, 0),
    "a table's value type": [(lambda i: tf.cast(table(["a"], [1 + 2**25], -1, tf.int64).lookup(i["q"]), tf.float64),
                              lambda i: tf.cast(table(["a"], [1 + 2**25], -1, tf.float32).lookup(i["q"]), tf.float64))],
    "a table's other buckets": by(lambda i, c: buckets(["a", "b"], c).lookup(i["q"]), 1, 2, 5),
    "a table's size": [(lambda i: table(["a"], [1]).lookup(i["q"]) + table(["a"], [1]).size(),
                        lambda i: table(["a"], [1]).lookup(i["q"]) + table(["a", "-"], [1, 1]).size())],
    "a table in a loop": by(lambda i, c: tf.map_fn(table(["a", "b"], c).lookup, i["q"], fn_output_signature=tf.int64),
                            [1, 2], [3, 2]),
    # parsing
    "a missing cell": by(lambda i, c: tf.io.decode_csv(S.join([S.as_string(i["m"]), ","]), ["", c])[1], "x", "y"),
    "a delimiter": by(lambda i, c: tf.io.decode_csv(S.join([S.as_string(i["m"]), ";2|3"]), ["", ""], c)[0], ";", "|"),
    "a number's type": by(lambda i, c: tf.cast(S.to_number(S.join([S.as_string(i["m"]), ".1"]), c), tf.float64),
                          tf.float32, tf.float64),
}  # fmt: skip
