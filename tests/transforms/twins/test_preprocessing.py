"""A tf.Transform preprocessing_fn as components: one fingerprint per output, and tf.Transform's results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import headrace as hr
from transforms.errors import InputError, TypeMismatch
from transforms.execution.plan import compile_plan
from transforms.functions.errors import OtherPackageVersion
from transforms.graphs.graph import component_document, component_from_document, raw_columns

tf = pytest.importorskip("tensorflow")
tft = pytest.importorskip("tensorflow_transform")

TOP = Path(__file__).parents[3]
CRITEO = TOP.parent / "shared" / "data" / "criteo" / "train_10k.tsv.gz"
QUERY = {"query": hr.text("query"), "price": hr.float32("price")}


def one(inputs):
    query = tf.strings.lower(inputs["query"])
    return {
        "bucket": tf.strings.to_hash_bucket_fast(query, 1000),
        "price": tf.math.log1p(inputs["price"]) * 2.0 + 1.0,
        "same": tf.where(inputs["price"] > 3.0, query, tf.constant("")),
    }


def other(inputs):
    """Computes two of the same outputs by other names, in another order, beside something else."""
    with tf.name_scope("scope"), tf.device("CPU:0"):
        unused = tf.exp(inputs["price"], name="unused")
    double = tf.function(lambda x: 2.0 * x)
    price = 1.0 + double(tf.math.log1p(tf.identity(inputs["price"]), name="log"))
    bucket = tf.strings.to_hash_bucket_fast(tf.strings.lower(inputs["query"], name="l"), 1000, name="h")
    return {"z": bucket, "y": price, "x": unused}


def identities(expressions):
    return {name: expression.node.identity for name, expression in expressions.items()}


def run(expressions, **columns):
    roots = {
        name: component_from_document(json.loads(json.dumps(component_document(expression.node))))
        for name, expression in expressions.items()
    }
    result = compile_plan(roots).run(pa.table(columns))
    assert not result.failures, result.failures
    return result.columns


def test_functions_that_share_an_output_share_its_fingerprint():
    first, second = identities(hr.from_preprocessing_fn(one, QUERY)), identities(hr.from_preprocessing_fn(other, QUERY))
    assert first["bucket"] == second["z"]
    assert first["price"] == second["y"]
    assert len({*first.values(), *second.values()}) == 4


def test_an_output_reads_the_columns_it_reaches_and_no_others():
    made = hr.from_preprocessing_fn(one, QUERY)
    assert {name: [column.name for column in raw_columns(each.node)] for name, each in made.items()} == {
        "bucket": ["query"], "price": ["price"], "same": ["price", "query"],
    }  # fmt: skip
    assert str(made["bucket"]).startswith("tensorflow_graph(query, graph v-")


def test_a_key_is_not_part_of_the_fingerprint_but_the_column_is():
    by_key = hr.from_preprocessing_fn(lambda i: {"b": tf.strings.lower(i["q"])}, {"q": hr.text("query")})
    again = hr.from_preprocessing_fn(lambda i: {"c": tf.strings.lower(i["text"])}, {"text": hr.text("query")})
    elsewhere = hr.from_preprocessing_fn(lambda i: {"b": tf.strings.lower(i["q"])}, {"q": hr.text("title")})
    assert by_key["b"].node == again["c"].node != elsewhere["b"].node


@pytest.mark.parametrize(
    "changed",
    [
        lambda i: tf.strings.to_hash_bucket_fast(tf.strings.lower(i["query"]), 1001),
        lambda i: tf.strings.to_hash_bucket_fast(tf.strings.upper(i["query"]), 1000),
        lambda i: tf.strings.to_hash_bucket_strong(tf.strings.lower(i["query"]), 1000, [1, 2]),
        lambda i: tf.cast(tf.strings.to_hash_bucket_fast(tf.strings.lower(i["query"]), 1000), tf.int32),
        lambda i: tf.strings.to_hash_bucket_fast(tf.strings.lower(i["query"], encoding="utf-8"), 1000),
    ],
)
def test_another_computation_has_another_fingerprint(changed):
    bucket = hr.from_preprocessing_fn(one, QUERY)["bucket"]
    assert hr.from_preprocessing_fn(lambda i: {"it": changed(i)}, QUERY)["it"].node != bucket.node


def test_order_matters_where_it_is_not_commutative():
    price = {"a": hr.float32("a"), "b": hr.float32("b")}
    made = hr.from_preprocessing_fn(
        lambda i: {"ab": i["a"] - i["b"], "ba": i["b"] - i["a"], "p": i["a"] + i["b"], "q": i["b"] + i["a"]}, price
    )
    assert made["ab"].node != made["ba"].node
    assert made["p"].node == made["q"].node
    texts = hr.from_preprocessing_fn(
        lambda i: {"ab": i["a"] + i["b"], "ba": i["b"] + i["a"]}, {"a": hr.text("a"), "b": hr.text("b")}
    )
    assert run(texts, a=["x"], b=["y"])["ab"].to_pylist() == ["xy"]
    assert run(texts, a=["x"], b=["y"])["ba"].to_pylist() == ["yx"]


@pytest.mark.slow
def test_fingerprint_is_one_in_every_process(tmp_path):
    text = "\n".join([
        "from tests.transforms.twins.test_preprocessing import *",
        "print(*sorted(identities(hr.from_preprocessing_fn(one, QUERY)).values()))",
    ])  # fmt: skip
    environment = {**os.environ, "PYTHONHASHSEED": "17", "PYTHONPATH": str(TOP)}
    answer = subprocess.run([sys.executable, "-c", text], env=environment, cwd=tmp_path, capture_output=True, text=True,
                            check=True)  # fmt: skip
    assert answer.stdout.split() == sorted(identities(hr.from_preprocessing_fn(one, QUERY)).values())


def test_kinds_of_columns_and_outputs():
    def fn(inputs):
        words = tf.strings.split(inputs["query"])
        return {
            "words": words,
            "sparse": words.to_sparse(),
            "lengths": tf.cast(words.row_lengths(), tf.int32),
            "pair": tf.stack([inputs["price"], -inputs["price"]], axis=1),
            "size": tf.reduce_sum(inputs["vector"], axis=1),
            "ids": tf.SparseTensor(inputs["ids"].indices, inputs["ids"].values * 10, inputs["ids"].dense_shape),
            "tags": tf.strings.upper(inputs["tags"]),
            "age": tf.squeeze(tft.sparse_tensor_to_dense_with_shape(inputs["age"], [None, 1], -1), 1),
            "loop": tf.map_fn(lambda x: x + 1, inputs["price"]),
            "branch": tf.where(tf.math.is_nan(inputs["price"]), 0.0, inputs["price"]),
        }

    columns = {**QUERY, "vector": hr.vector("vector", "float64", 2), "ids": hr.ragged("ids", "int64"),
               "tags": hr.ragged("tags", "string"), "age": hr.int64("age")}  # fmt: skip
    made = hr.from_preprocessing_fn(fn, columns, sparse=["age"], ragged=["tags"])
    got = run(made, query=["a b", "", None, "c"], price=pa.array([1.0, float("nan"), 3.0, None], pa.float32()),
              vector=pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float64(), 2)), ids=[[1, 2], [], None, [3]],
              tags=[["x"], None, [], ["y", "z"]], age=[1, None, 3, None])  # fmt: skip
    found = {name: column.to_pylist() for name, column in got.items()}
    assert found["words"] == found["sparse"] == [["a", "b"], [], [], ["c"]]
    assert found["lengths"] == [2, 0, None, 1]
    assert found["pair"][0] == [1.0, -1.0]
    assert found["pair"][3] == [0.0, 0.0]
    assert found["size"] == [3.0] * 4
    assert found["ids"] == [[10, 20], [], [], [30]]
    assert found["tags"] == [["X"], [], [], ["Y", "Z"]]
    assert found["age"] == [1, -1, 3, -1]
    assert found["loop"][0] == 2.0
    assert found["loop"][3] is None
    assert found["branch"] == [1.0, 0.0, 3.0, None]
    assert {str(each.type) for each in made.values()} >= {"Vector[float32, 2]", "Dense[int64]", "Ragged[string]"}


def test_tables_are_part_of_the_graph_by_content():
    def fn(keys):
        def mapped(inputs):
            made = tf.lookup.KeyValueTensorInitializer(keys, tf.constant(list(range(len(keys))), tf.int64))
            return {"it": tf.lookup.StaticHashTable(made, -1).lookup(inputs["query"])}

        return mapped

    first = hr.from_preprocessing_fn(fn(["a", "b"]), QUERY)["it"]
    assert first.node == hr.from_preprocessing_fn(fn(["a", "b"]), QUERY)["it"].node
    assert first.node != hr.from_preprocessing_fn(fn(["b", "a"]), QUERY)["it"].node
    assert run({"it": first}, query=["b", "zz", None])["it"].to_pylist() == [1, -1, None]


@pytest.mark.slow
def test_served_one_by_one_or_together_the_bits_are_the_same():
    from transforms.twins.graph import compute
    from transforms.twins.tensors import from_arrow, to_arrow

    made = hr.from_preprocessing_fn(lambda i: {"it": tf.math.log1p(i["price"])}, QUERY)["it"]
    prices = pa.array(range(200), pa.float32())
    memo = run({"it": made}, price=prices)["it"]
    for size in (200, 77, 1):
        parts = [
            to_arrow(
                compute({"it": made.node}, {"price": from_arrow(prices.slice(at, size), hr.float32("price").type)})[
                    "it"
                ],
                made.type,
            )
            for at in range(0, 200, size)
        ]
        assert pa.concat_arrays(parts).equals(memo)


def test_a_column_may_enter_in_two_ways():
    def fn(inputs):
        known = tf.sparse.reduce_sum(tf.sparse.map_values(tf.ones_like, inputs["some"]), axis=1)
        return {"it": tf.reshape(known, [-1]) * 100 + inputs["all"]}

    units = hr.int64("units")
    made = hr.from_preprocessing_fn(fn, {"all": units, "some": units}, sparse=["some"])["it"]
    assert run({"it": made}, units=[3, None, 5])["it"].to_pylist() == [103, None, 105]
    twice = hr.from_preprocessing_fn(lambda i: {"it": i["a"] * 2 + i["b"]}, {"a": units, "b": units})["it"]
    once = hr.from_preprocessing_fn(lambda i: {"it": i["a"] * 2 + i["a"]}, {"a": units})["it"]
    assert twice.node == once.node


TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64)), -1)
REFUSED = {
    "z-score": (lambda i: {"it": tft.scale_to_z_score(i["price"])}, "scale_to_z_score"),
    "vocabulary": (lambda i: {"it": tft.compute_and_apply_vocabulary(i["query"])}, "compute_and_apply_vocabulary"),
    "chance": (lambda i: {"it": i["price"] * tf.random.uniform([])}, "RandomUniform"),
    "chance in a loop": (
        lambda i: {"it": tf.map_fn(lambda x: x * tf.random.uniform([]), i["price"])}, "RandomUniform",
    ),
    "a key": (lambda i: {"it": i["prices"] + 1}, "prices"),
    "time": (lambda i: {"it": tf.cast(i["price"], tf.float64) + tf.timestamp()}, "Timestamp"),
    "a scalar": (lambda i: {"it": tf.reduce_mean(i["price"])}, "shape ()"),
    "unknown width": (lambda i: {"it": tf.strings.split(i["query"]).to_tensor()}, "shape (None, None)"),
    "complex": (lambda i: {"it": tf.cast(i["price"], tf.complex64)}, "complex64"),
    "a table in a loop": (
        lambda i: {"it": tf.map_fn(TABLE.lookup, i["query"], fn_output_signature=tf.int64)}, "outside of loops and branches",
    ),
    "no column": (lambda i: {"it": tf.constant([1.0])}, "must read a column"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_and_what_next(case):
    function, named = REFUSED[case]
    with pytest.raises(InputError) as caught:
        hr.from_preprocessing_fn(function, QUERY)
    assert named in str(caught.value)
    assert caught.value.next_step


def test_mistakes():
    with pytest.raises(TypeMismatch, match="must be an expression"):
        hr.from_preprocessing_fn(one, {"query": "query"})
    with pytest.raises(InputError, match="no column has this name"):
        hr.from_preprocessing_fn(one, QUERY, sparse=["pric"])
    with pytest.raises(InputError, match="the folder must hold a readable SavedModel"):
        hr.from_transform_output("/nowhere", QUERY)
    whole = hr.from_preprocessing_fn(lambda i: {"it": i["price"] - tf.reduce_mean(i["price"])}, QUERY)["it"]
    failed = compile_plan({"it": whole.node}).run(pa.table({"price": pa.array([1.0, 2.0, 9.0], pa.float32())})).failures
    assert "must not depend on other rows" in failed["it"].error
    text = json.dumps(component_document(whole.node)).replace(tf.__version__, "1.0.0")
    other_version = component_from_document(json.loads(text))
    failed = compile_plan({"it": other_version}).run(pa.table({"price": pa.array([1.0], pa.float32())})).failures
    assert OtherPackageVersion.__name__ in failed["it"].error


def criteo(rows):
    names = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    types = {name: pa.string() if name[0] == "C" else pa.int64() for name in names}
    return pyarrow.csv.read_csv(
        CRITEO,
        pyarrow.csv.ReadOptions(column_names=names),
        pyarrow.csv.ParseOptions(delimiter="\t"),
        pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    ).slice(0, rows)


def mapped_criteo(inputs):
    """As tf.Transform's own Criteo example, without what needs a pass over the data."""
    outputs = {}
    for name, tensor in inputs.items():
        filled = tft.sparse_tensor_to_dense_with_shape(tensor, [None, 1], "" if name[0] == "C" else 0)
        filled = tf.squeeze(filled, axis=1)
        if name[0] == "C":
            outputs[name] = tft.hash_strings(filled, 10_000)
        else:
            outputs[name] = tf.math.log1p(tf.cast(tf.maximum(filled, tf.constant(0, tf.int64)), tf.float32))
    outputs["pair"] = tft.hash_strings(
        tf.strings.join([tf.as_string(outputs["C1"]), tf.as_string(outputs["C2"])], "_"), 99
    )
    return outputs


def analysed_criteo(inputs):
    outputs = mapped_criteo(inputs)
    outputs["word"] = tft.compute_and_apply_vocabulary(inputs["C6"], top_k=5, num_oov_buckets=2)
    outputs["z"] = tft.scale_to_z_score(outputs["I2"])
    return outputs


def transformed(function, table, columns, folder):
    """What tf.Transform gives for the rows, by output, in order; and where it wrote its graph."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

    kinds = {name: tf.io.VarLenFeature(tf.string if name[0] == "C" else tf.int64) for name in columns}
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(kinds))
    rows = [
        {name: [] if value is None else [value] for name, value in row.items()}
        for row in table.select(columns).to_pylist()
    ]
    with tft_beam.Context(temp_dir=str(folder / "temp")):
        (data, _), graph = (rows, metadata) | tft_beam.AnalyzeAndTransformDataset(function)
        graph | tft_beam.WriteTransformFn(str(folder / "out"))
    assert beam is not None
    return data, folder / "out" / "transform_fn"


@pytest.mark.skipif(not CRITEO.exists(), reason="the Criteo sample is not here")
@pytest.mark.slow
@pytest.mark.parametrize("analysed", [False, True])
def test_bridged_outputs_are_what_tf_transform_gives_on_criteo(tmp_path, analysed):
    table = criteo(2_000)
    names = ["I1", "I2", "I5", "C1", "C2", "C6", "C20"]
    columns = {name: hr.text(name) if name[0] == "C" else hr.int64(name) for name in names}
    function = analysed_criteo if analysed else mapped_criteo
    data, written = transformed(function, table, names, tmp_path)
    if analysed:
        made = hr.from_transform_output(str(written), columns)
        assert {name: made[name].node for name in ("C1", "pair")} == {
            name: each.node
            for name, each in hr.from_preprocessing_fn(mapped_criteo, columns, sparse=names).items()
            if name in ("C1", "pair")
        }
    else:
        made = hr.from_preprocessing_fn(function, columns, sparse=names)
    got = run(made, **{name: table.column(name) for name in names})
    assert set(got) == set(data[0])
    for name, column in got.items():
        expected = [row[name] for row in data]
        found = column.to_pylist()
        assert len(expected) == len(found) == 2_000
        if pa.types.is_floating(column.type):
            # TensorFlow computes a batch's last few rows by other instructions, so tf.Transform's own last bit
            # depends on where its batches end.
            np.testing.assert_allclose(found, expected, rtol=3e-7, atol=3e-7)
        else:
            assert [list(np.ravel(each)) for each in expected] == [list(np.ravel(each)) for each in found], name
