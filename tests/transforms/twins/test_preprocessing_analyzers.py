"""Tracing a preprocessing_fn with analyzers: outputs, their analyses, and the columns of these."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import headrace as hr
from transforms.analysis.full_pass import AnalysisResult, analyses, resolve
from transforms.analysis.preprocessing_functions import kept_function
from transforms.errors import DataError, InputError, TypeMismatch
from transforms.execution.plan import compile_plan

tf = pytest.importorskip("tensorflow")
tft = pytest.importorskip("tensorflow_transform")

DAY = hr.between("2026-01-01", "2026-01-02")
COLUMNS = {"query": hr.text("query"), "price": hr.float32("price")}


def scaled(inputs, top_k=3):
    return {
        "word": tft.compute_and_apply_vocabulary(inputs["query"], top_k=top_k, num_oov_buckets=2),
        "price": tft.scale_to_z_score(inputs["price"]),
        "plain": tf.math.log1p(inputs["price"]),
    }


def traced(function=scaled, columns=COLUMNS, over=DAY, **ways):
    return hr.from_preprocessing_fn(function, columns, over=over, **ways)


def analysis_of(made, name="word"):
    (found,) = analyses([made[name].node])
    return found


def test_outputs_that_need_an_analyzer_wait_and_others_are_what_they_were():
    made = traced()
    assert [made[name].node.op for name in ("word", "price", "plain")] == [
        "preprocessing_output", "preprocessing_output", "tensorflow_graph",
    ]  # fmt: skip
    plain = hr.from_preprocessing_fn(lambda i: {"it": tf.math.log1p(i["price"])}, COLUMNS)
    assert made["plain"].node == plain["it"].node


def test_all_outputs_of_a_function_wait_for_one_analysis():
    made = traced()
    assert analysis_of(made).fingerprint == analysis_of(made, "price").fingerprint
    assert kept_function(analysis_of(made).params["function"]).analyzed == ("price", "query")
    assert analysis_of(made).text == "compute_and_apply_vocabulary, scale_to_z_score of price, query"


@pytest.mark.parametrize(
    "changed",
    [
        lambda: traced(lambda i: scaled(i, top_k=4)),
        lambda: traced(lambda i: {**scaled(i), "price": tft.scale_to_0_1(i["price"])}),
        lambda: traced(lambda i: scaled({**i, "query": tf.strings.lower(i["query"])})),
        lambda: traced(columns={**COLUMNS, "query": hr.text("title")}),
        lambda: traced(lambda i: {**scaled(i), "more": tft.bucketize(i["price"], 4)}),
    ],
    ids=["a parameter", "an analyzer", "what is analyzed", "a column", "another output"],
)
def test_another_function_is_another_analysis(changed):
    assert analysis_of(changed()).fingerprint != analysis_of(traced()).fingerprint


@pytest.mark.parametrize(
    "same",
    [
        lambda: traced(lambda i: scaled(dict(reversed(list(i.items()))))),
        lambda: traced(lambda i: {**scaled(i), "plain": i["price"] * 3.0}),
        lambda: traced(over=hr.between("2026-02-01", "2026-02-02")),
    ],
    ids=["the order of keys", "an output without analyzers", "the range, which is beside it"],
)
def test_what_an_analysis_does_not_depend_on_is_no_part_of_it(same):
    assert analysis_of(same()).fingerprint == analysis_of(traced()).fingerprint


def test_analyzers_without_a_range_are_refused_and_the_error_shows_how_to_state_it():
    with pytest.raises(InputError, match="over must be given") as caught:
        traced(over=None)
    assert "scale_to_z_score" in caught.value.value
    assert "over=hr.between(" in caught.value.next_step
    with pytest.raises(TypeMismatch, match="over must be a range"):
        traced(over=("2026-01-01", "2026-01-02"))


def test_an_analyzer_that_is_given_python_code_is_refused():
    with pytest.raises(InputError, match="can be fingerprinted") as caught:
        traced(lambda i: {"it": tft.compute_and_apply_vocabulary(i["query"], coverage_top_k=1, key_fn=lambda x: x[:1])})
    assert "compute_and_apply_vocabulary" in caught.value.where


def test_a_function_that_this_process_did_not_describe_is_one_clear_error():
    with pytest.raises(InputError, match="described its model") as caught:
        kept_function("0" * 64)
    assert caught.value.next_step == "headrace analyze MODEL_FILE"


def test_an_artifact_without_the_output_or_with_other_columns_is_one_clear_error():
    word = traced()["word"].node
    for graph in (
        '{"columns":["query"],"graph":"{}","output":"other"}',
        '{"columns":["x"],"graph":"{}","output":"word"}',
    ):
        with pytest.raises(DataError):
            resolve(word, {word.identity: AnalysisResult("0" * 64, 1, graphs=(graph,))})


SPEC = {
    "query": tf.io.FixedLenFeature([1], tf.string, "-"),
    "price": tf.io.FixedLenFeature([], tf.float32),
    "count": tf.io.VarLenFeature(tf.int64),
    "vector": tf.io.FixedLenFeature([2], tf.float32),
    "tags": tf.io.RaggedFeature(tf.string),
}


def test_a_feature_spec_stands_for_columns_and_how_they_enter():
    def function(inputs):
        assert inputs["query"].shape.as_list() == [None, 1]
        return {
            "query": tf.strings.upper(inputs["query"]),
            "price": inputs["price"] * 2.0,
            "count": inputs["count"],
            "vector": tf.reduce_sum(inputs["vector"], axis=1, keepdims=True),
            "tags": tf.strings.upper(inputs["tags"]),
        }

    made = traced(function, SPEC, over=None)
    assert {name: str(each.type) for name, each in made.items()} == {
        "query": "Dense[string]", "price": "Dense[float32]", "count": "Ragged[int64]", "vector": "Vector[float32, 1]",
        "tags": "Ragged[string]",
    }  # fmt: skip
    rows = pa.table({
        "query": ["a", None, "b"], "price": pa.array([1, 2, None], pa.float32()), "count": [1, None, 3],
        "vector": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)), "tags": [["x"], [], ["y", "z"]],
    })  # fmt: skip
    result = compile_plan({name: each.node for name, each in made.items()}).run(rows)
    assert not result.failures
    assert {name: column.to_pylist() for name, column in result.columns.items()} == {
        "query": ["A", "-", "B"], "price": [2.0, 4.0, None], "count": [[1], [], [3]], "vector": [[3.0], [7.0], [11.0]],
        "tags": [["X"], [], ["Y", "Z"]],
    }  # fmt: skip


def test_a_schema_stands_for_its_feature_spec_and_an_expression_may_stand_beside_features():
    from tensorflow_transform.tf_metadata import schema_utils

    spec = {"query": tf.io.FixedLenFeature([1], tf.string), "count": tf.io.VarLenFeature(tf.int64)}

    def function(inputs):
        return {"it": tf.strings.length(inputs["query"]), "count": inputs["count"]}

    by_schema = traced(function, schema_utils.schema_from_feature_spec(spec))
    by_spec = traced(function, spec)
    by_hand = traced(function, {**spec, "query": hr.text("query")}, shape1=["query"])
    assert by_schema["it"].node == by_spec["it"].node == by_hand["it"].node


@pytest.mark.parametrize(
    "feature",
    [
        tf.io.FixedLenFeature([2, 2], tf.float32),
        tf.io.FixedLenFeature([2], tf.string),
        tf.io.SparseFeature("index", "value", tf.float32, 10),
        tf.io.RaggedFeature(tf.int64, partitions=[tf.io.RaggedFeature.RowSplits("splits")]),
        tf.io.FixedLenSequenceFeature([1], tf.int64, allow_missing=True),
    ],
    ids=lambda feature: type(feature).__name__,
)
def test_a_feature_that_no_column_can_stand_for_is_one_clear_error(feature):
    with pytest.raises(InputError, match="that a column of the table can stand for") as caught:
        traced(lambda i: dict(i), {"it": feature})
    assert caught.value.where == "column it"
    with pytest.raises(InputError, match="a mapping by key, or a schema"):
        traced(lambda i: dict(i), 7)


def test_outputs_of_shape_one_are_exported_as_dense_columns():
    from transforms.twins.graph import compute
    from transforms.twins.tensors import from_arrow, to_arrow

    made = traced(lambda i: {"it": i["price"] * 2.0}, {"price": hr.float32("price")}, shape1=["price"])["it"]
    prices = pa.array([1.0, None, 3.0], pa.float32())
    computed = compute({"it": made.node}, {"price": from_arrow(prices, hr.float32("price").type)})["it"]
    memo = compile_plan({"it": made.node}).run(pa.table({"price": prices})).columns["it"]
    assert to_arrow(computed, made.type).equals(memo)
    assert memo.to_pylist() == [2.0, None, 6.0]
