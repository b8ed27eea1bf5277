"""Look-ups: TensorFlow's tables, large vocabularies, long inputs, invalid dictionaries."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import transforms.expressions.expression as hr
from tests.transforms.adversarial import INT64S, NASTY_TEXT, computed, operation
from transforms.columns.columns import Constants
from transforms.errors import TypeMismatch
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import Artifact, RawColumn
from transforms.kernels.lookup import texts, vocabulary_lookup
from transforms.types import ColumnType, Dense, DType, Ragged, Vector


def looked_up(values: pa.Array, column_type: ColumnType, terms: list[str], oov_buckets: int) -> list[object]:
    leaf = Artifact(Vector(DType.STRING, len(terms)), "terms")
    root = operation("vocabulary_lookup", [RawColumn(column_type, "c0"), leaf], {"oov_buckets": oov_buckets})
    return computed(root, [values], len(values), terms).to_pylist()


@pytest.mark.parametrize("oov_buckets", [1, 7, 10_000])
def test_ids_equal_tensorflows_vocabulary_table(oov_buckets: int) -> None:
    import tensorflow as tf

    terms = [text for text in NASTY_TEXT if text][::2]
    initializer = tf.lookup.KeyValueTensorInitializer(terms, np.arange(len(terms), dtype=np.int64))
    table = tf.lookup.StaticVocabularyTable(initializer, oov_buckets)
    ours = looked_up(pa.array(NASTY_TEXT), Dense(DType.STRING), terms, oov_buckets)
    assert ours == table.lookup(tf.constant(NASTY_TEXT)).numpy().tolist()


def test_ids_of_integers_equal_tensorflows_vocabulary_table() -> None:
    import tensorflow as tf

    terms = [10, -1, 2**63 - 1, 0]
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(terms, tf.int64), np.arange(4, dtype=np.int64))
    table = tf.lookup.StaticVocabularyTable(initializer, 1000)
    ours = looked_up(pa.array(INT64S), Dense(DType.INT64), [str(term) for term in terms], 1000)
    assert ours == table.lookup(tf.constant(INT64S, tf.int64)).numpy().tolist()


def test_the_twin_works_in_a_traced_function_of_unknown_batch_size() -> None:
    import tensorflow as tf

    from transforms.twins.graph import compute
    from transforms.twins.tensors import DenseTensor

    leaf = Artifact(Vector(DType.STRING, 3), "terms")
    root = operation("vocabulary_lookup", [RawColumn(Dense(DType.STRING), "c0"), leaf], {"oov_buckets": 5})

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def served(values: tf.Tensor) -> tf.Tensor:
        return compute({"it": root}, {"c0": DenseTensor(values)}, lambda _: pa.array(["a", "b", ""]))["it"].values

    values = ["b", "x", "", "a", "né"]
    assert served(tf.constant(values)).numpy().tolist() == looked_up(
        pa.array(values), Dense(DType.STRING), ["a", "b", ""], 5
    )
    assert served(tf.constant([], tf.string)).numpy().tolist() == []


def test_a_large_vocabulary_finds_every_term() -> None:
    terms = [f"term {i}" for i in range(200_000)]
    random = np.random.default_rng(0).permutation(len(terms))
    got = vocabulary_lookup(texts([terms[i] for i in random]), Constants(texts(terms)), oov_buckets=1)
    assert np.array_equal(got.values, random)


def test_long_texts_and_long_lists() -> None:
    long = "ü" * 500_000
    assert looked_up(pa.array([long, long[:-1], "a"]), Dense(DType.STRING), ["a", long], 1) == [1, 2, 0]
    got = looked_up(pa.array([["a", "z"] * 50_000], pa.list_(pa.string())), Ragged(DType.STRING), ["a"], 1)
    assert got == [[0, 1] * 50_000]


def run(expression: hr.Expr, **columns: pa.Array) -> list[object]:
    result = compile_plan({"it": expression.node}).run(pa.table(columns))
    assert not result.failures, result.failures
    return result.columns["it"].to_pylist()


def test_a_dictionary_of_each_type() -> None:
    device = pa.array(["phone", None, "tv", ""])
    assert run(hr.text("d").lookup({"phone": 1, "": 2}), d=device) == [1, None, None, 2]
    assert run(hr.text("d").lookup({"phone": 1.5}, default=0), d=device) == [1.5, None, 0.0, 0.0]
    assert run(hr.text("d").lookup({"phone": "small"}, default="?"), d=device) == ["small", None, "?", "?"]
    assert run(hr.int64("d").lookup({7: "x", -1: "y"}), d=pa.array([7, -1, 8])) == ["x", "y", None]


def test_items_without_a_value_leave_their_list() -> None:
    lists = pa.array([["a", "b", "c"], [], ["c"]], pa.list_(pa.string()))
    assert run(hr.ragged("l", "string").lookup({"a": 1, "c": 3}), l=lists) == [[1, 3], [], [3]]


def test_dictionaries_of_equal_content_are_one_operation() -> None:
    one, two = (hr.text("d").lookup(table) for table in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert one.node == two.node
    assert one.node != hr.text("d").lookup({"a": 1.0, "b": 2.0}).node


@pytest.mark.parametrize(
    ("column", "table", "said"),
    [
        (hr.text("d"), {7: 1}, "7"),
        (hr.int64("d"), {"7": 1}, "'7'"),
        (hr.text("d"), {"a": 1, "b": "x"}, "int, str"),
        (hr.text("d"), {"a": 2**60 + 1}, "2**53"),
        (hr.text("d"), {"a": True}, "bool"),
        (hr.float32("d"), {1.0: 2}, "does not take Dense[float32]"),
        (hr.text("d"), [("a", 1)], "must be given a dictionary"),
    ],
)
def test_a_wrong_dictionary_is_refused(column: hr.Expr, table: dict[object, object], said: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        column.lookup(table)  # type: ignore[arg-type]
    assert said in str(caught.value)
