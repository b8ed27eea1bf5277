"""Pairs of preprocessing_fns that differ by means that a graph does not hold: both are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from tests.transforms.twins.bridge_pairs import Function, by, table

RAW = tf.raw_ops
ADDED = [1.0, 2.0]


def shaped(tensor: Any) -> Any:
    return tf.ensure_shape(tensor, [None])


def mutable() -> Any:
    made = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    made.insert(["a"], tf.constant([1], tf.int64))
    return made


def inserting(value: int) -> Function:
    made = mutable()

    def function(i: dict[str, Any]) -> Any:
        made.insert(["a"], tf.constant([value], tf.int64))
        return shaped(made.lookup(i["q"]))

    return function


def inserting_in_a_loop(value: int) -> Function:
    made = mutable()

    def step(k: Any) -> Any:
        made.insert(["a"], tf.constant([value], tf.int64))
        return k + 1

    def function(i: dict[str, Any]) -> Any:
        tf.while_loop(lambda k: k < 3, step, [tf.constant(0)])
        return shaped(made.lookup(i["q"]))

    return function


def inserting_from_python(value: int) -> Function:
    made = mutable()

    def function(i: dict[str, Any]) -> Any:
        tf.py_function(lambda: made.insert(["a"], tf.constant([value], tf.int64)), [], [])
        return shaped(made.lookup(i["q"]))

    return function


def filled_again(first: bool) -> Function:
    """Fills a table before it is looked up, or after."""
    made = mutable()

    def fill() -> None:
        RAW.LookupTableImportV2(table_handle=made.resource_handle, keys=["a"], values=tf.constant([7], tf.int64))

    def function(i: dict[str, Any]) -> Any:
        if first:
            fill()
        found = shaped(made.lookup(i["q"]))
        if not first:
            fill()
        return found

    return function


def variables(value: float) -> Function:
    variable = tf.Variable(value)
    return lambda i: i["p"] * variable


def variables_in_a_body(value: float) -> Function:
    variable = tf.Variable(value)
    return lambda i: tf.map_fn(lambda x: x * variable, i["p"])


def called(function: Function) -> Function:
    """The function inside a function of TensorFlow, inside the body of a branch."""
    inside = tf.function(lambda inputs: function(inputs), autograph=False)
    return lambda i: tf.cond(tf.size(i["p"]) > 0, lambda: inside(i), lambda: inside(i))


def refused(folder: Path) -> dict[str, list[tuple[Function, Function]]]:
    """Pairs by the name of the operation that their refusal names. The files hold one word each."""
    one, other = folder / "one", folder / "other"
    one.write_text("red")
    other.write_text("blue")
    files = (str(one), str(other))
    data = tf.data.Dataset.range
    scalar = tf.constant([], tf.int32)
    return {
        "ReadFile": by(lambda i, path: tf.strings.join([i["q"], tf.io.read_file(path)]), *files)
        + [tuple(map(called, pair)) for pair in by(lambda i, path: tf.strings.join([i["q"], tf.io.read_file(path)]), *files)]
        + by(lambda i, path: tf.map_fn(lambda q: q + tf.io.read_file(path), i["q"]), *files)
        + by(lambda i, path: tf.sparse.map_values(lambda x: tf.strings.as_string(x) + tf.io.read_file(path), i["ids"]), *files),
        "MatchingFiles": by(lambda i, at: tf.strings.join([i["q"], tf.io.matching_files(f"{folder}/*")[at]]), 0, 1),
        "GenerateVocabRemapping": by(lambda i, path: i["p"] + tf.cast(RAW.GenerateVocabRemapping(
            new_vocab_file=path, old_vocab_file=files[0], new_vocab_offset=0, num_new_vocab=1)[1], tf.float32), *files),
        "ImmutableConst": by(lambda i, path: i["p"] + RAW.ImmutableConst(dtype=tf.float32, shape=[], memory_region_name=path),
                             *files),
        "DecodeProtoV2": by(lambda i, path: tf.squeeze(tf.io.decode_proto(
            i["q"], "tensorflow.Feature", ["bytes_list"], [tf.string], path)[1][0], 1), *files),
        "ReaderSerializeStateV2": by(lambda i, path: tf.strings.join([i["q"], RAW.ReaderSerializeStateV2(
            reader_handle=RAW.WholeFileReaderV2(shared_name=path))]), *files),
        "RestoreV2": by(lambda i, path: i["p"] + tf.reshape(RAW.RestoreV2(
            prefix=path, tensor_names=["x"], shape_and_slices=[""], dtypes=[tf.float32])[0], []), *files),
        "PyFuncStateless": by(lambda i, c: shaped(tf.numpy_function(lambda x: x * c, [i["p"]], tf.float32, stateful=False)), 2.0, 3.0)
        + by(lambda i, c: shaped(tft.apply_pyfunc(lambda x: x * c, tf.float32, False, "name", i["p"])), 2.0, 3.0)
        + by(lambda i, c: tf.map_fn(lambda x: tf.ensure_shape(tf.numpy_function(lambda x: x * c, [x], tf.float32, stateful=False), []),
                                    i["p"]), 2.0, 3.0),
        "PyFunc": by(lambda i, c: shaped(tf.numpy_function(lambda x: x * c, [i["p"]], tf.float32)), 2.0, 3.0),
        "EagerPyFunc": by(lambda i, c: shaped(tf.py_function(lambda x: x * c, [i["p"]], tf.float32)), 2.0, 3.0)
        + by(lambda i, c: c(i), inserting_from_python(2), inserting_from_python(3)),
        "ReadVariableOp": by(lambda i, c: c(i), variables(2.0), variables(3.0), variables_in_a_body(2.0), variables_in_a_body(3.0)),
        "RandomUniform": by(lambda i, seed: i["p"] * tf.random.uniform([], seed=seed), 1, 2)
        + by(lambda i, seed: tf.map_fn(lambda x: x * tf.random.uniform([], seed=seed), i["p"]), 1, 2),
        "StatelessRandomUniform": by(lambda i, c: i["p"] + RAW.StatelessRandomUniform(shape=scalar, seed=c), [1, 2], [2, 1]),
        "StatelessRandomNormalV2": by(lambda i, c: i["p"] + tf.random.stateless_normal([], c), [1, 2], [2, 1]),
        "RandomShuffle": by(lambda i, seed: tf.random.shuffle(i["p"], seed), 1, 2),
        "ExtractGlimpseV2": by(lambda i, c: tf.reshape(tf.image.extract_glimpse(
            tf.reshape(i["p"], [1, -1, 1, 1]), [c, c], [[5.0, 5.0]]), [-1]), 8, 9),
        "FractionalMaxPool": by(lambda i, seed: tf.reshape(tf.nn.fractional_max_pool(
            tf.reshape(i["p"], [1, -1, 1, 1]), [1.0, 1.5, 1.0, 1.0], seed=seed)[0], [-1]), 1, 2),
        "Timestamp": by(lambda i, c: tf.cast(i["p"], tf.float64) + c * tf.timestamp(), 1.0, 2.0),
        "ReduceDataset": by(lambda i, c: i["n"] + data(c).reduce(tf.constant(0, tf.int64), lambda a, b: a + b), 3, 4)
        + by(lambda i, c: i["n"] + c.reduce(tf.constant(0, tf.int64), lambda a, b: a + b), data(3), data(4)),
        "IteratorGetNext": by(lambda i, c: i["n"] + next(c), iter(data(1, 3)), iter(data(2, 3))),
        "LookupTableInsertV2": by(lambda i, c: c(i), inserting(2), inserting(3), inserting_in_a_loop(2), inserting_in_a_loop(3)),
        "filled once": by(lambda i, c: c(i), filled_again(True), filled_again(False)),
        "LookupTableExportV2": by(lambda i, at: shaped(
            i["n"] + table(["a", "b"], [1, 2]).export()[1][at] + table(["a"], [1]).lookup(i["q"])), 0, 1),
        "HashTableV2": by(lambda i, name: shaped(RAW.LookupTableFindV2(
            table_handle=RAW.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name=name), keys=i["q"],
            default_value=tf.constant(-1, tf.int64))), "one", "other"),
        "QueueDequeueV2": by(lambda i, c: shaped(i["p"] + tf.queue.FIFOQueue(c, tf.float32).dequeue()), 1, 2),
        "Merge": by(lambda i, c: RAW.Merge(inputs=[i["p"], i["p"] * c])[0], 2.0, 3.0),
        "DynamicStitch": by(lambda i, at: tf.dynamic_stitch([[0], [at]], [i["p"][:1], i["p"][1:2]]), 3, 4),
        "ParallelDynamicStitch": by(lambda i, at: RAW.ParallelDynamicStitch(indices=[[0], [at]], data=[i["p"][:1], i["p"][1:2]]), 0, 1),
        "DecodeJSONExample": by(lambda i, c: tf.io.decode_json_example(tf.strings.join([i["q"], c])), "{}", "{ }"),
        "InplaceUpdate": by(lambda i, c: RAW.InplaceUpdate(x=i["p"], i=[0], v=[c]), 1.0, 2.0),
        "captured tensor": by(lambda i, c: i["p"] + RAW.TensorListGetItem(
            input_handle=c, index=0, element_shape=scalar, element_dtype=tf.float32),
            *(RAW.TensorListFromTensor(tensor=tf.constant([value]), element_shape=scalar) for value in ADDED)),
    }  # fmt: skip
