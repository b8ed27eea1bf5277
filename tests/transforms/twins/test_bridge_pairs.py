"""Accepted preprocessing_fns that differ in what they compute have different fingerprints."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_transform as tft

import headrace as hr
from tests.transforms.twins.bridge_pairs import COLUMNS, DIFFERENT, INPUTS, RAGGED
from tests.transforms.twins.bridge_refusals import refused
from tests.transforms.twins.bridge_twins import SAME
from transforms.errors import InputError
from transforms.execution.plan import compile_plan
from transforms.graphs.fingerprint import fingerprint
from transforms.graphs.graph import component_document, component_from_document

TOP = Path(__file__).parents[3]


def bridged(function, columns=COLUMNS):
    ragged = [name for name in RAGGED if name in columns]
    return hr.from_preprocessing_fn(lambda inputs: {"it": function(inputs)}, columns, ragged=ragged)["it"]


def computed(expression, rows=INPUTS):
    """The output as a worker computes it: from the document alone."""
    component = component_from_document(json.loads(json.dumps(component_document(expression.node))))
    result = compile_plan({"it": component}).run(rows)
    assert not result.failures, result.failures
    return result.columns["it"]


def bits(column):
    """A column as text that tells -0.0 from 0.0 and one type from another."""
    return f"{column.type} {column.to_pylist()!r}"


def slow_but_for(every, pairs):
    """Parameters by name, all but each so many of them slow."""
    return [
        pytest.param(*pair[1:], id=pair[0], marks=[] if at % every == 0 else pytest.mark.slow)
        for at, pair in enumerate(pairs)
    ]


PAIRS = [(f"{name} {at}", *pair) for name, pairs in DIFFERENT.items() for at, pair in enumerate(pairs)]


@pytest.mark.parametrize(("first", "second"), slow_but_for(4, PAIRS))
def test_what_computes_something_else_has_another_fingerprint(first, second):
    one, other = bridged(first), bridged(second)
    assert bits(computed(one)) != bits(computed(other)), "the pair is not one: both compute the same"
    assert fingerprint(one.node) != fingerprint(other.node)


@pytest.mark.parametrize("operation", [tf.add, tf.multiply, tf.math.squared_difference])
@pytest.mark.parametrize("shows", [tf.strings.as_string, lambda x: tf.bitcast(x, tf.int32), lambda x: tf.map_fn(
    lambda one: tf.bitcast(one, tf.int32), x, fn_output_signature=tf.int32)])  # fmt: skip
def test_operands_keep_their_order_if_it_decides_the_nan(operation, shows):
    """Which of two NaNs comes out is the machine's: no rows can show it everywhere."""
    one, other = (bridged(lambda i, order=order: shows(operation(i[order[0]], i[order[1]]))) for order in ("po", "op"))
    assert fingerprint(one.node) != fingerprint(other.node)
    one, other = (bridged(lambda i, order=order: operation(i[order[0]], i[order[1]])) for order in ("po", "op"))
    assert fingerprint(one.node) == fingerprint(other.node)


def test_there_are_enough_pairs_by_the_kind():
    assert len(PAIRS) >= 150
    assert len(SAME) >= 25


@pytest.mark.parametrize(("first", "second"), slow_but_for(3, [(name, *pair) for name, pair in SAME.items()]))
def test_what_is_written_otherwise_and_computes_the_same_has_one_fingerprint(first, second):
    one, other = bridged(first), bridged(second)
    assert fingerprint(one.node) == fingerprint(other.node)
    assert bits(computed(one)) == bits(computed(other))


@pytest.mark.slow
def test_what_a_graph_does_not_hold_is_refused_by_the_name_of_the_operation(tmp_path):
    cases = refused(tmp_path)
    assert sum(len(pairs) for pairs in cases.values()) >= 35
    for operation, pairs in cases.items():
        for function in itertools.chain(*pairs):
            with pytest.raises(InputError) as caught:
                bridged(function)
            said = str(caught.value)
            assert operation in said
            places = ("output it", "no output reads", "the tables of the function")
            assert any(place in said for place in places) or operation == "filled once"
            assert caught.value.next_step


def whole_line(path, **more):
    index = tf.lookup.TextFileIndex
    return tf.lookup.TextFileInitializer(
        str(path), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER, **more
    )  # fmt: skip


def cached(path):
    return tf.function(lambda x: tf.lookup.StaticHashTable(whole_line(path), -1).lookup(x))


def lifted(path):
    with tf.init_scope():
        made = tf.lookup.StaticHashTable(whole_line(path), -1)
    return lambda i: made.lookup(i["q"])


#: How a function comes to a table of a file; made once, before the file is written again.
FILES = {
    "inside": lambda path: lambda i: tf.lookup.StaticHashTable(whole_line(path), -1).lookup(i["q"]),
    "version 1": lambda path: lambda i: tf.compat.v1.lookup.StaticHashTable(whole_line(path), -1).lookup(i["q"]),
    "with other buckets": lambda path: lambda i: tf.lookup.StaticVocabularyTable(whole_line(path), 1).lookup(i["q"]),
    "tf.Transform's": lambda path: lambda i: tft.apply_vocabulary(i["q"], str(path), default_value=-1),
    "in a function that is traced once": lambda path: (lambda f: lambda i: f(i["q"]))(cached(path)),
    "lifted out": lambda path: lambda i: lifted(path)(i),
    "outside": lambda path: (lambda made: lambda i: made.lookup(i["q"]))(tf.lookup.StaticHashTable(whole_line(path), -1)),
    "sized": lambda path: lambda i: tf.lookup.StaticHashTable(whole_line(path, vocab_size=2), -1).lookup(i["q"]),
    "counted from 7": lambda path: lambda i: tf.lookup.StaticHashTable(
        whole_line(path, value_index_offset=7), -1).lookup(i["q"]),
}  # fmt: skip
QUERY = {"q": hr.text("q")}
ROWS = pa.table({"q": ["a", "b", "c"]})


@pytest.mark.parametrize("way", FILES)
def test_a_table_of_a_file_follows_the_file(tmp_path, way):
    path = tmp_path / "words_1"
    path.write_text("a\nb\n")
    function = FILES[way](path)
    first = bridged(function, QUERY)
    before = computed(first, ROWS).to_pylist()
    path.write_text("b\na\n")
    second = bridged(function, QUERY)
    after = computed(second, ROWS).to_pylist()
    assert after == [before[1], before[0], before[2]]
    assert fingerprint(first.node) != fingerprint(second.node)
    assert computed(first, ROWS).to_pylist() == before
    path.write_text("a\nb\n")
    assert fingerprint(bridged(function, QUERY).node) == fingerprint(first.node)


@pytest.mark.slow
def test_a_table_of_a_file_needs_no_file_once_it_is_traced(tmp_path):
    path = tmp_path / "words"
    path.write_text("c\nb\n")
    inside, outside = bridged(FILES["inside"](path), QUERY), FILES["outside"](path)
    made = bridged(outside, QUERY)
    path.unlink()
    text = "\n".join([
        "import json, sys, pyarrow as pa",
        "from transforms.graphs.graph import component_from_document",
        "from transforms.execution.plan import compile_plan",
        "root = component_from_document(json.load(sys.stdin))",
        "result = compile_plan({'it': root}).run(pa.table({'q': ['a', 'b', 'c']}))",
        "print(result.columns['it'].to_pylist(), result.failures)",
    ])  # fmt: skip
    document = json.dumps(component_document(inside.node))
    assert str(path) not in document
    answer = subprocess.run([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": str(TOP)}, cwd=tmp_path,
                            input=document, capture_output=True, text=True, check=True)  # fmt: skip
    assert answer.stdout.strip() == "[-1, 1, 0] {}"
    assert fingerprint(made.node) == fingerprint(inside.node) == fingerprint(bridged(outside, QUERY).node)
    with pytest.raises(InputError, match="readable when the function is traced"):
        bridged(FILES["inside"](path), QUERY)


@pytest.mark.slow
def test_another_process_reads_the_file_as_it_is(tmp_path):
    path = tmp_path / "words"
    text = "\n".join([
        "from tests.transforms.twins.test_bridge_pairs import *",
        f"print(fingerprint(bridged(FILES['inside']({str(path)!r}), QUERY).node))",
    ])  # fmt: skip
    for words in ("a\nb\n", "b\na\n"):
        path.write_text(words)
        answer = subprocess.run([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": str(TOP)}, cwd=tmp_path,
                                capture_output=True, text=True, check=True)  # fmt: skip
        assert answer.stdout.split() == [fingerprint(bridged(FILES["inside"](path), QUERY).node)]


def columns_of(path, delimiter):
    filling = tf.lookup.TextFileInitializer(str(path), tf.string, 0, tf.string, 1, delimiter=delimiter)
    return tf.lookup.StaticHashTable(filling, "?")


def test_columns_of_one_file_that_are_cut_otherwise_are_two_tables(tmp_path):
    path = tmp_path / "pairs"
    path.write_text("a,b\tc\nd,e\tf\n")
    rows = pa.table({"q": ["a", "a,b"]})
    tabs = bridged(lambda i: columns_of(path, "\t").lookup(i["q"]), QUERY)
    commas = bridged(lambda i: columns_of(path, ",").lookup(i["q"]), QUERY)
    assert computed(tabs, rows).to_pylist() == ["?", "c"]
    assert computed(commas, rows).to_pylist() == ["b\tc", "?"]
    kept = columns_of(path, ",")
    shared = columns_of(path, "\t")  # TensorFlow gives the table above
    with pytest.raises(InputError, match="from other lines or columns"):
        bridged(lambda i: shared.lookup(i["q"]), QUERY)
    assert kept is not None


def test_the_order_of_inputs_depends_on_neither_keys_nor_the_spelling_of_columns():
    def difference(inputs, first, second):
        return inputs[first] - inputs[second]

    for name in "abcdefgh":
        column, other = hr.int64(name), hr.int64("other")
        plain = bridged(lambda i: difference(i, "x", "y"), {"x": column + other, "y": other})
        spelled = bridged(lambda i: difference(i, "z", "a"), {"a": other, "z": other + column})
        assert fingerprint(plain.node) == fingerprint(spelled.node)
        swapped = bridged(lambda i: difference(i, "y", "x"), {"x": column + other, "y": other})
        assert fingerprint(plain.node) != fingerprint(swapped.node)
        rows = pa.table({name: [5, 7], "other": [1, 2]})
        assert computed(plain, rows).to_pylist() == computed(spelled, rows).to_pylist() == [5, 7]
        assert computed(swapped, rows).to_pylist() == [-5, -7]


def test_columns_that_are_one_column_are_one_input():
    twice = bridged(lambda i: i["x"] - i["y"], {"x": hr.int64("a") + hr.int64("b"), "y": hr.int64("b") + hr.int64("a")})
    once = bridged(lambda i: i["x"] - i["x"], {"x": hr.int64("a") + hr.int64("b")})
    assert fingerprint(twice.node) == fingerprint(once.node)


def saved(path, folder):
    """What tf.Transform writes, in small: a function that looks words up in a vocabulary file."""
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(whole_line(path), -1)

    @tf.function(input_signature=[{"q": tf.TensorSpec([None], tf.string)}])
    def transform_fn(inputs):
        return {"it": module.table.lookup(inputs["q"])}

    module.transform_fn = transform_fn.get_concrete_function()
    tf.saved_model.save(module, str(folder))


def test_a_saved_function_follows_its_vocabulary_and_needs_it_no_more(tmp_path):
    words, folder = tmp_path / "words", tmp_path / "saved"
    words.write_text("a\nb\n")
    saved(words, folder)
    words.unlink()
    first = hr.from_transform_output(str(folder), QUERY)["it"]
    (folder / "assets" / "words").write_text("b\na\n")
    second = hr.from_transform_output(str(folder), QUERY)["it"]
    shutil.rmtree(folder)
    assert computed(first, ROWS).to_pylist() == [0, 1, -1]
    assert computed(second, ROWS).to_pylist() == [1, 0, -1]
    assert fingerprint(first.node) != fingerprint(second.node)


@pytest.mark.parametrize("content", [b"", b"not a model", bytes(range(256))])
def test_a_folder_without_a_model_is_an_error_of_headrace(tmp_path, content):
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(InputError):
        hr.from_transform_output(str(tmp_path), QUERY)


def attribute_error(inputs):
    return inputs["q"].no_such_thing


def recursion(inputs):
    return recursion(inputs)


def eagerly_wrong(inputs):
    with tf.init_scope():
        return tf.raw_ops.Pack(values=[tf.zeros([2]), tf.zeros([3])])


#: Functions that cannot be traced, by what their refusal says.
HOSTILE = {
    "AttributeError": attribute_error,
    "RecursionError": recursion,
    "must be a tensor": lambda i: None,
    "give each tensor a key of its own": lambda i: [i["q"], i["q"]],
    "OperatorNotAllowedInGraphError": lambda i: i["q"] if i["q"] == "a" else i["r"],
    "ZeroDivisionError": lambda i: 1 / 0,
    "ValueError": lambda i: tf.reshape(i["p"], [3, 4]) + tf.zeros([5]),
    "only supports singleton tf.Variables": lambda i: i["p"] * tf.Variable(2.0),
    "StopIteration": lambda i: next(iter([])),
    "InvalidArgumentError": eagerly_wrong,
}


@pytest.mark.parametrize("said", HOSTILE)
def test_what_tracing_raises_is_an_error_of_ours(said):
    with pytest.raises(InputError) as caught:
        bridged(HOSTILE[said])
    assert said in str(caught.value)
    assert caught.value.next_step


@pytest.mark.parametrize("result", [None, 3, {1: 2.0}, [("a",)]])
def test_a_result_that_is_not_a_mapping_of_tensors_is_an_error(result):
    with pytest.raises(InputError):
        hr.from_preprocessing_fn(lambda inputs: result, QUERY)


def test_text_that_is_not_utf8_is_a_failure_by_name():
    cut = bridged(lambda i: tf.strings.substr(i["q"], 0, 1), QUERY)
    failed = compile_plan({"it": cut.node}).run(pa.table({"q": ["ä"]})).failures
    assert "must give text that is UTF-8" in failed["it"].error
