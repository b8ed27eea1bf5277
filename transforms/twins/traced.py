"""Run the graph of ``tensorflow_graph`` over columns, one event, or tensors."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.framework import graph_pb2, types_pb2

from transforms.arrays import Array
from transforms.columns.arrow_types import arrow_type
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings, Vectors, from_arrow
from transforms.errors import DataError, InputError
from transforms.functions.errors import OtherPackageVersion
from transforms.functions.run import array_of, python_value
from transforms.kernels.arrow import to_arrow
from transforms.kernels.spans import gather_spans
from transforms.twins.allowed_operations import STORED
from transforms.twins.canonical_graph import FORMAT
from transforms.twins.refusals import NotBridged, next_step
from transforms.twins.tables import tables_of
from transforms.twins.tensors import ELEMENT, DenseTensor, VectorTensor, both, emptied, rows_of, zeroed
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, type_from_document

#: Rows are padded to a multiple of this, so that the same vector instructions compute each row at any position.
_ROWS_MULTIPLE = 64
#: The number of rows that are computed again alone, to check that a row depends only on itself.
_PROBES = 8
#: Ways in which every event has a value; ``column`` is a tensor of shape [rows, 1].
_FILLED = ("dense", "column")


@lru_cache(maxsize=256)
def parsed(graph: str) -> dict[str, Any]:
    """The document of a graph.

    Raises :class:`InputError` for another format or an operation that is not allowed, and :class:`OtherPackageVersion`.
    """
    document: dict[str, Any] = json.loads(graph)
    if document.get("format") != FORMAT:
        raise InputError(
            "the text must be the TensorFlow graph of a component", value=document.get("format"), allowed=FORMAT
        )
    for package, version in document["packages"].items():
        if version != tf.__version__:
            raise OtherPackageVersion(
                "the version of TensorFlow must be the one that the graph was fingerprinted with",
                value=f"{package} {tf.__version__}",
                allowed=f"{package} {version}",
                next_step="install that version here, or submit the model again from a process that has this one",
            )
    bodies = (node for body in document["functions"].values() for node in body["nodeDef"])
    for node in (*document["nodes"], *bodies):
        if node["op"] not in STORED:
            raise NotBridged("a TensorFlow graph must hold only operations whose result depends on their inputs alone",
                             value=node["op"], allowed="the operations of transforms/twins/allowed_operations.py",
                             next_step=f"submit the model again without it: {next_step(node['op'])}")  # fmt: skip
    return document


def definition_of(document: Mapping[str, Any]) -> graph_pb2.GraphDef:
    """The graph as a TensorFlow definition, with a placeholder for every tensor of a column."""
    nodes = []
    for position, entry in enumerate(document["inputs"]):
        for part, spec in enumerate(_specs(entry)):
            attributes = {
                "dtype": {"type": _enum(spec.dtype)},
                "shape": {"shape": json_format.MessageToDict(spec.shape.as_proto())},
            }
            nodes.append({"name": f"in{position}_{part}", "op": "Placeholder", "attr": attributes})
    nodes += [{"name": f"n{i}", **node} for i, node in enumerate(document["nodes"])]
    functions = [
        {**body, "signature": {"name": name, **body["signature"]}} for name, body in document["functions"].items()
    ]
    return json_format.ParseDict({"node": nodes, "library": {"function": functions}}, graph_pb2.GraphDef())


def _enum(dtype: tf.DType) -> str:
    return str(types_pb2.DataType.Name(dtype.as_datatype_enum))


def _specs(entry: Mapping[str, Any]) -> list[tf.TensorSpec]:
    column_type = type_from_document(entry["type"])
    element = ELEMENT[column_type.dtype]
    match entry["as"]:
        case "sparse":
            return [tf.TensorSpec([None, 2], tf.int64), tf.TensorSpec([None], element), tf.TensorSpec([2], tf.int64)]
        case "ragged":
            return [tf.TensorSpec([None], element), tf.TensorSpec([None], tf.int64)]
        case _:
            size = [column_type.size] if isinstance(column_type, Vector) else [1] * (entry["as"] == "column")
            return [tf.TensorSpec([None, *size], element)]


class _Session:
    """A graph that is loaded once per process; several threads may run it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(definition_of(document), name="")
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"GPU": 0}
        )
        # The fingerprinted graph runs as it is, without optimisations that depend on the release.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        for name in document["initializers"]:
            self._session.run(graph.get_operation_by_name(name))
        feeds = [f"in{position}_{part}:0" for position, entry in enumerate(document["inputs"])
                 for part in range(len(_specs(entry)))]  # fmt: skip
        self.run = self._session.make_callable(list(document["output"]), feed_list=feeds)


_LOCK = threading.Lock()


@lru_cache(maxsize=64)
def _loaded(graph: str) -> _Session:
    return _Session(parsed(graph))


def _session(graph: str) -> _Session:
    with _LOCK:
        return _loaded(graph)


def tensorflow_graph(*columns: Column, graph: str) -> Column:
    """The graph over whole columns. Raises :class:`DataError` for an error of TensorFlow, and for a row that
    depends on other rows."""
    document = parsed(graph)
    gives = type_from_document(document["type"])
    rows = len(columns[0])
    if rows == 0:
        return from_arrow(pa.array([], arrow_type(gives)), gives)
    result = _computed(columns, graph, document, np.arange(rows))
    if rows > 1:
        picks = np.arange(rows - 2, -1, -max(rows // _PROBES, 2))
        alone = _computed(columns, graph, document, picks)
        if not _alike(alone, result, picks, gives):
            raise DataError("the output of a TensorFlow graph for a row must not depend on other rows",
                            value="the first rows that were tried", allowed="a function of one event",
                            next_step="leave out what reads the whole batch, such as its mean")  # fmt: skip
    return result


def one_event(*row: Any, graph: str) -> object:
    """The graph over a batch of one row: its meaning for one event."""
    document = parsed(graph)
    types = [type_from_document(entry["type"]) for entry in document["inputs"]]
    gives = type_from_document(document["type"])
    columns = [from_arrow(array_of([value], at), at) for value, at in zip(row, types, strict=True)]
    return python_value(to_arrow(tensorflow_graph(*columns, graph=graph), gives), gives)


def _computed(columns: Sequence[Column], graph: str, document: Mapping[str, Any], picks: Array) -> Column:
    padded = np.resize(picks, -(-len(picks) // _ROWS_MULTIPLE) * _ROWS_MULTIPLE)
    fed: list[Any] = []
    valid: Array | None = None
    for column, entry in zip(columns, document["inputs"], strict=True):
        fed += _fed(column, entry["as"], padded)
        if entry["as"] in _FILLED and isinstance(column, Numbers | Strings) and column.valid is not None:
            valid = column.valid[picks] if valid is None else valid & column.valid[picks]
    try:
        out = _session(graph).run(*fed)
    except tf.errors.OpError as error:
        raise DataError("a TensorFlow graph failed", value=error.message[:400]) from error
    gives = type_from_document(document["type"])
    return _stored(out, document["as"], gives, len(padded), len(picks), valid)


def _fed(column: Column, way: str, rows: Array) -> list[Any]:
    match column:
        case Numbers() | Strings() if way == "dense":
            return [_values(column, rows)]
        case Numbers() | Strings() if way == "column":
            return [_values(column, rows)[:, None]]
        case Numbers() | Strings():
            known = np.ones(len(rows), np.bool_) if column.valid is None else column.valid[rows]
            at = np.flatnonzero(known)
            indices = np.stack([at, np.zeros_like(at)], axis=1).astype(np.int64)
            return [indices, _values(column, rows[at]), np.array([len(rows), int(known.any())], np.int64)]
        case Vectors():
            picks = (rows[:, None] * column.size + np.arange(column.size)).ravel()
            return [_values(column.items, picks).reshape(-1, column.size)]
        case RaggedItems():
            lengths = np.diff(column.offsets)[rows].astype(np.int64)
            ends = np.cumsum(lengths)
            within = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
            values = _values(column.items, np.repeat(column.offsets[rows].astype(np.int64), lengths) + within)
            if way == "ragged":
                return [values, np.concatenate([[0], ends]).astype(np.int64)]
            indices = np.stack([np.repeat(np.arange(len(rows)), lengths), within], axis=1).astype(np.int64)
            return [indices, values, np.array([len(rows), lengths.max(initial=0)], np.int64)]
        case _:
            raise DataError(
                "a TensorFlow graph must be given the types that it was traced for", value=type(column).__name__
            )


def _values(items: Numbers | Strings, picks: Array) -> Array:
    if isinstance(items, Numbers):
        return items.values[picks]
    offsets, data = gather_spans(items.data, items.starts[picks], items.ends[picks])
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    texts: Array = pa.Array.from_buffers(pa.large_binary(), len(picks), buffers).to_numpy(zero_copy_only=False)
    return texts


def _stored(out: Sequence[Any], way: str, gives: ColumnType, rows: int, kept: int, valid: Array | None) -> Column:
    """TensorFlow's output as a column of the first ``kept`` rows, null (empty, zeros) where ``valid`` is False."""
    if way in _FILLED:
        (values,) = out
        if len(values) != rows:
            raise DataError(
                "a TensorFlow graph must return as many rows as it is given", value=len(values), allowed=str(rows)
            )
        values = values[:kept] if way == "dense" else values[:kept, 0]
        if valid is not None:
            empty = b"" if gives.dtype is DType.STRING else values.dtype.type(0)
            values = np.where(valid if values.ndim == 1 else valid[:, None], values, empty)
        items = _items(values.ravel(), gives.dtype, valid if isinstance(gives, Dense) else None)
        return Vectors(items, gives.size) if isinstance(gives, Vector) else items
    if way == "sparse":
        indices, values, shape = out
        lengths = np.bincount(indices[:, 0], minlength=int(shape[0]))
        order = np.argsort(indices[:, 0], kind="stable")
        values = values[order]
    else:
        values, splits = out
        lengths = np.diff(splits)
    if len(lengths) != rows:
        raise DataError(
            "a TensorFlow graph must return as many rows as it is given", value=len(lengths), allowed=str(rows)
        )
    total = int(lengths[:kept].sum())
    lengths, values = lengths[:kept], values[:total]
    if valid is not None:
        values, lengths = values[np.repeat(valid, lengths)], np.where(valid, lengths, 0)
    return RaggedItems(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), _items(values, gives.dtype, None))


def _items(values: Array, dtype: DType, valid: Array | None) -> Numbers | Strings:
    """TensorFlow's values at the width of the column's element; every NaN is one."""
    if dtype is DType.STRING:
        try:
            array = pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise DataError("a TensorFlow graph must give text that is UTF-8", value=str(error),
                            next_step="encode other bytes, as with tf.io.encode_base64") from error  # fmt: skip
        column = from_arrow(array, Dense(dtype))
        assert isinstance(column, Strings), "text is text"
        return Strings(column.data, column.starts, column.ends, valid)
    whole: Array = values.astype(
        {DType.BOOL: np.bool_, DType.FLOAT32: np.float32, DType.FLOAT64: np.float64}.get(dtype, np.int64)
    )
    if dtype in (DType.FLOAT32, DType.FLOAT64):
        whole = np.where(np.isnan(whole), np.array(np.nan, whole.dtype), whole)
    return Numbers(whole, valid)


def _alike(alone: Column, whole: Column, picks: Array, gives: ColumnType) -> bool:
    """Whether rows computed alone equal those computed with others; floats up to about the last bit."""
    a, b = to_arrow(alone, gives), to_arrow(whole, gives).take(picks)
    if gives.dtype not in (DType.FLOAT32, DType.FLOAT64):
        return bool(a.equals(b))
    if not isinstance(gives, Dense):
        if isinstance(gives, Ragged) and not a.value_lengths().equals(b.value_lengths()):
            return False
        a, b = a.flatten(), b.flatten()
    x, y = (each.fill_null(0).to_numpy(zero_copy_only=False) for each in (a, b))
    return len(x) == len(y) and bool(np.allclose(x, y, rtol=1e-4, atol=1e-30, equal_nan=True))


def twin(*columns: Any, graph: str) -> Any:
    """The graph over tensors, eagerly or into the graph being traced: for serving."""
    document = parsed(graph)
    definition = definition_of(document)
    feeds: dict[str, Any] = {}
    valid = None
    rows = rows_of(columns[0])
    # As in the kernel, so that a row's last bit does not depend on the number of rows.
    padded = tf.range((rows + _ROWS_MULTIPLE - 1) // _ROWS_MULTIPLE * _ROWS_MULTIPLE) % tf.maximum(rows, 1)
    for position, (column, entry) in enumerate(zip(columns, document["inputs"], strict=True)):
        if entry["as"] in _FILLED:
            valid = both(valid, column.valid if isinstance(column, DenseTensor) else None)
        for part, tensor in enumerate(_parts(_taken(column, padded), entry["as"])):
            feeds[f"in{position}_{part}:0"] = tensor
    feeds |= tables_of(document)
    out = _imported(definition, feeds, list(document["output"]))
    return _as_column(out, document["as"], type_from_document(document["type"]), rows, valid)


def _taken(column: Any, rows: Any) -> Any:
    match column:
        case DenseTensor():
            return DenseTensor(
                tf.gather(column.values, rows), None if column.valid is None else tf.gather(column.valid, rows)
            )
        case VectorTensor():
            return VectorTensor(tf.gather(column.values, rows))
        case _:
            return tf.gather(column, rows)


def _imported(definition: graph_pb2.GraphDef, feeds: Mapping[str, Any], outputs: list[str]) -> list[Any]:
    """The outputs of the graph over ``feeds``."""
    names = list(feeds)

    def inner(*given: Any) -> list[Any]:
        found = tf.graph_util.import_graph_def(
            definition, input_map=dict(zip(names, given, strict=True)), return_elements=outputs, name="bridged"
        )
        return list(found)

    result: list[Any] = tf.function(inner, autograph=False)(*(feeds[name] for name in names))
    return result


def _parts(column: Any, way: str) -> list[Any]:
    match column:
        case DenseTensor() if way == "dense":
            return [column.values]
        case VectorTensor():
            return [column.values]
        case DenseTensor() if way == "column":
            return [column.values[:, tf.newaxis]]
        case DenseTensor():
            rows = tf.shape(column.values, tf.int64)[0]
            known = tf.ones_like(column.values, tf.bool) if column.valid is None else column.valid
            at = tf.where(known)[:, 0]
            width = tf.cast(tf.reduce_any(known), tf.int64)
            return [tf.stack([at, tf.zeros_like(at)], 1), tf.gather(column.values, at), tf.stack([rows, width])]
        case tf.RaggedTensor() if way == "ragged":
            return [column.values, column.row_splits]
        case _:
            sparse = column.to_sparse()
            return [sparse.indices, sparse.values, sparse.dense_shape]


def _as_column(out: Sequence[Any], way: str, gives: ColumnType, rows: Any, valid: Any) -> Any:
    element = ELEMENT[gives.dtype]
    if way in _FILLED:
        values = _cast(out[0] if way == "dense" else out[0][:, 0], element)[:rows]
        if isinstance(gives, Vector):
            values = tf.reshape(values, [-1, gives.size])
            return VectorTensor(values if valid is None else zeroed(values, valid[:, tf.newaxis]))
        return DenseTensor(values if valid is None else zeroed(values, valid), valid)
    if way == "sparse":
        indices, values, shape = out
        order = tf.argsort(indices[:, 0], stable=True)
        lists = tf.RaggedTensor.from_value_rowids(
            tf.gather(_cast(values, element), order), tf.gather(indices[:, 0], order), shape[0], validate=False
        )
    else:
        lists = tf.RaggedTensor.from_row_splits(_cast(out[0], element), tf.cast(out[1], tf.int64), validate=False)
    lists = lists[:rows]
    return lists if valid is None else emptied(lists, valid)


def _cast(values: Any, element: tf.DType) -> Any:
    values = values if values.dtype == element else tf.cast(values, element)
    if element in (tf.float32, tf.float64):
        return tf.where(tf.math.is_nan(values), tf.constant(np.nan, element), values)
    return values
