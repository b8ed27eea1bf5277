"""A tf.Transform ``preprocessing_fn`` as components: traced once, then taken apart, one graph an output."""

from __future__ import annotations

import base64
import importlib
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.framework import tensor_pb2, types_pb2

from transforms.encoding import digest
from transforms.errors import UnknownColumn
from transforms.expression import Expr, apply
from transforms.functions.packages import version_of
from transforms.twins.canonical_graph import FORMAT, UNWRITTEN_TABLE, Canonical, Graph, NotBridged, Ref, constant_vertex
from transforms.twins.tensors import ELEMENT
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, type_document

#: A collection of the traced graph in which tf.Transform notes what only a pass over the data can give.
_ANALYZERS = "tft_tensor_replacements"

#: TensorFlow's element types that an output may have, and what they become without loss.
_ELEMENT: dict[tf.DType, DType] = {
    tf.string: DType.STRING, tf.bool: DType.BOOL, tf.float32: DType.FLOAT32, tf.float64: DType.FLOAT64,
    tf.float16: DType.FLOAT32, tf.bfloat16: DType.FLOAT32, tf.int8: DType.INT64, tf.int16: DType.INT64,
    tf.int32: DType.INT64, tf.int64: DType.INT64, tf.uint8: DType.INT64, tf.uint16: DType.INT64, tf.uint32: DType.INT64,
}  # fmt: skip

#: The next step where there is another SavedModel, or none.
_FOLDER = "give the transform_fn folder of a tf.Transform output"

Tensors = Mapping[str, Any]


def bridged(
    function: Callable[[dict[str, Any]], Tensors],
    columns: Mapping[str, Expr],
    sparse: Collection[str],
    ragged: Collection[str],
) -> dict[str, Expr]:
    """See :func:`transforms.preprocessing.from_preprocessing_fn`."""
    specs = {name: _spec(expression.type, name, sparse, ragged) for name, expression in columns.items()}
    module = tf.Module()  # keeps the function's tables alive

    def traced(inputs: Tensors) -> Tensors:
        copy = tf.nest.map_structure(tf.identity, dict(inputs), expand_composites=True)
        with _transform_context(module):
            return dict(function(_Given(copy)))

    concrete = tf.function(traced, input_signature=[specs], autograph=False).get_concrete_function()
    _refuse_analyzers(concrete.graph)
    return _Tracing(concrete, specs, columns).expressions()


class _Given(dict[str, Any]):
    """The function's inputs, by key."""

    def __missing__(self, key: str) -> Any:
        raise UnknownColumn("the preprocessing_fn reads a column that was not given", value=key,
                            allowed=", ".join(sorted(self)),
                            next_step=f'add it, as in columns={{{key!r}: hr.text({key!r})}}')  # fmt: skip


def from_saved(
    path: str, columns: Mapping[str, Expr], sparse: Collection[str], ragged: Collection[str]
) -> dict[str, Expr]:
    """See :func:`transforms.preprocessing.from_transform_output`."""
    try:
        loaded = tf.saved_model.load(path)
    except (OSError, ValueError) as error:
        raise NotBridged("no SavedModel can be read here", value=path, next_step=_FOLDER) from error
    if not hasattr(loaded, "transform_fn"):
        raise NotBridged("the SavedModel is not one that tf.Transform wrote", value=path, next_step=_FOLDER)
    (signature,), _ = loaded.transform_fn.structured_input_signature
    if missing := sorted(set(signature) - set(columns)):
        raise UnknownColumn("the analysed function reads columns that were not given", value=", ".join(missing),
                            allowed=", ".join(sorted(signature)), next_step="add them to columns")  # fmt: skip
    as_sparse = {name for name, spec in signature.items() if isinstance(spec, tf.SparseTensorSpec)}
    as_ragged = {name for name, spec in signature.items() if isinstance(spec, tf.RaggedTensorSpec)}
    needed = {name: columns[name] for name in signature}
    return bridged(
        lambda inputs: loaded.transform_fn(dict(inputs)), needed, {*sparse, *as_sparse}, {*ragged, *as_ragged}
    )


def _transform_context(module: tf.Module) -> Any:
    """What tf.Transform's own functions look for while they are traced, if the process has loaded it."""
    if "tensorflow_transform" not in sys.modules:
        return nullcontext()
    context = importlib.import_module("tensorflow_transform.graph_context")
    return context.TFGraphContext(module_to_export=module, temp_dir=None, evaluated_replacements=None)


def _refuse_analyzers(graph: Any) -> None:
    sinks = graph.get_collection(_ANALYZERS)
    if not sinks:
        return
    labels = {str(sink.future.parent_operation.operation_def.label) for sink in sinks}
    names = sorted({label.partition("[")[2].rstrip("]").partition("#")[0] or label for label in labels})
    raise NotBridged(
        "a preprocessing_fn that analyses the data has no graph before the analysis ran",
        value=", ".join(names),
        allowed="functions of one event",
        next_step="run tf.Transform's AnalyzeDataset and bridge what it wrote with hr.from_transform_output, or use "
        "Headrace's own full-pass operators",
    )


def _spec(column_type: ColumnType, name: str, sparse: Collection[str], ragged: Collection[str]) -> tf.TypeSpec:
    match column_type:
        case Dense(dtype=dtype) if name in sparse:
            return tf.SparseTensorSpec([None, None], ELEMENT[dtype])
        case Dense(dtype=dtype):
            return tf.TensorSpec([None], ELEMENT[dtype])
        case Ragged(dtype=dtype) if name in ragged:
            return tf.RaggedTensorSpec([None, None], ELEMENT[dtype], 1, tf.int64)
        case Ragged(dtype=dtype):
            return tf.SparseTensorSpec([None, None], ELEMENT[dtype])
        case Vector(dtype=dtype, size=size):
            return tf.TensorSpec([None, size], ELEMENT[dtype])
        case _:
            raise NotBridged("a preprocessing_fn takes no column of this type", where=f"column {name}",
                             value=str(column_type), allowed="Dense, Ragged, Vector")  # fmt: skip


class _Tracing:
    """A traced function: its graph, which placeholder is whose, and which column a placeholder belongs to."""

    def __init__(self, concrete: Any, specs: Mapping[str, tf.TypeSpec], columns: Mapping[str, Expr]) -> None:
        self._concrete = concrete
        self._specs = specs
        self._columns = columns
        self._definition = concrete.graph.as_graph_def()
        self._owner: dict[str, tuple[str, int]] = {}
        placeholders = iter(concrete.graph.inputs)
        for name in sorted(specs):  # tf.nest sorts the keys of a mapping
            for position in range(_PARTS[_way(specs[name])]):
                self._owner[next(placeholders).op.name] = (name, position)
        self._constants: dict[str, Any] = {}
        self._tables: dict[str, Any] = {}
        for outer, inner in concrete.graph.captures:
            place = self._tables if outer.dtype == tf.resource else self._constants
            place[inner.op.name] = outer
        self._graph, self._initializers = self._written()

    def expressions(self) -> dict[str, Expr]:
        outputs = self._concrete.structured_outputs
        return {name: self._expression(name, outputs[name]) for name in sorted(outputs)}

    def _expression(self, name: str, output: Any) -> Expr:
        kind, tensors, column_type = _output(name, output)
        refs = [(tensor.op.name, tensor.value_index) for tensor in tensors]
        reached = self._reached(refs)
        if not reached:
            raise NotBridged("an output reads no column", where=f"output {name}", next_step="leave it out")
        inputs = {self._input(column): self._columns[column].node for column in reached}
        order = {each: position for position, each in enumerate(sorted(inputs))}
        leaves = {
            placeholder: f"in{order[self._input(column)]}_{part}"
            for placeholder, (column, part) in self._owner.items()
            if column in reached
        }
        graph = self._graph.labelled({**dict.fromkeys(self._owner, ""), **leaves})
        document = {
            "format": FORMAT,
            **Canonical(graph, refs, self._initializers).document(),
            "inputs": [{"as": way, "type": _type_of(inputs[identity, way].type)} for identity, way in order],
            "as": kind,
            "type": type_document(column_type),
            "packages": {"tensorflow": str(version_of("tensorflow") or tf.__version__)},
        }
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return apply("tensorflow_graph", *(Expr(inputs[each]) for each in order), graph=text)

    def _input(self, column: str) -> tuple[str, str]:
        """What a key enters as: keys of one column that enter the same way are one input."""
        return self._columns[column].node.identity, _way(self._specs[column])

    def _reached(self, refs: Sequence[Ref]) -> set[str]:
        graph = self._graph
        ahead = [graph.resolved(ref)[0] for ref in refs]
        seen: set[str] = set()
        while ahead:
            name = ahead.pop()
            if name in seen:
                continue
            seen.add(name)
            ahead += graph.needed(name)
        return {self._owner[name][0] for name in seen & self._owner.keys()}

    def _written(self) -> tuple[Graph, dict[str, str]]:
        """The graph with what it captured written into it; and for each table, the node that fills it.

        It is read once for all outputs, which differ only in the labels of their leaves.
        """
        leaves = {placeholder: placeholder for placeholder in self._owner}
        graph = Graph(self._definition, leaves, {**self._constants, **dict.fromkeys(self._tables, 0)})
        initializers: dict[str, str] = {}
        for placeholder, handle in self._tables.items():
            self._write_table(graph, placeholder, handle, initializers)
        return graph, initializers

    def _write_table(self, graph: Graph, placeholder: str, handle: Any, initializers: dict[str, str]) -> None:
        users = [vertex for vertex in graph.vertices.values()
                 if vertex.inputs and graph.resolved(vertex.inputs[0])[0] == placeholder]  # fmt: skip
        finds = [vertex for vertex in users if vertex.op == "LookupTableFindV2"]
        if not finds:
            graph.vertices[placeholder].op = UNWRITTEN_TABLE
            return
        types = {"key_dtype": finds[0].attributes["Tin"], "value_dtype": finds[0].attributes["Tout"]}
        filled = [vertex for vertex in users if vertex.op == "LookupTableImportV2"]
        keys, values = _filled(graph, filled[0]) if filled else _exported(handle, types, placeholder)
        order = sorted(range(len(keys)), key=lambda i: keys[i])
        names = f"{placeholder}/keys", f"{placeholder}/values"
        graph.vertices[names[0]] = constant_vertex(keys[order])
        graph.vertices[names[1]] = constant_vertex(values[order])
        content = json.dumps([graph.vertices[name].attributes for name in names], sort_keys=True)
        shared = base64.b64encode(digest(content).encode()).decode()
        table = graph.vertices[placeholder]
        table.op, table.attributes, table.inputs = "HashTableV2", {**types, "shared_name": {"s": shared}}, []
        fill = f"{placeholder}/fill"
        graph.vertices[fill] = type(table)(
            "LookupTableImportV2", {"Tin": types["key_dtype"], "Tout": types["value_dtype"]},
            [(placeholder, 0), (names[0], 0), (names[1], 0)])  # fmt: skip
        initializers[placeholder] = fill


def _filled(graph: Graph, vertex: Any) -> tuple[Any, Any]:
    found = []
    for ref in vertex.inputs[1:]:
        constant = graph.vertices.get(graph.resolved(ref)[0])
        if constant is None or constant.op != "Const":
            raise NotBridged("a table is filled by something else than constants", value=ref[0],
                             next_step="fill it from constants, or bridge an analysed function")  # fmt: skip
        found.append(
            tf.make_ndarray(json_format.ParseDict(constant.attributes["value"]["tensor"], tensor_pb2.TensorProto()))
        )
    return found[0], found[1]


def _exported(handle: Any, types: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    kinds = [types_pb2.DataType.Value(types[each]["type"]) for each in ("key_dtype", "value_dtype")]
    try:
        keys, values = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=kinds[0], Tvalues=kinds[1])
    except (tf.errors.OpError, ValueError) as error:
        raise NotBridged("a table that the function looks up is gone, or empty", value=f"{name}: {error}",
                         next_step="keep the table in a variable outside the function") from error  # fmt: skip
    return keys.numpy(), values.numpy()


#: How many tensors a column enters as.
_PARTS = {"dense": 1, "sparse": 3, "ragged": 2}


def _way(spec: tf.TypeSpec) -> str:
    match spec:
        case tf.SparseTensorSpec():
            return "sparse"
        case tf.RaggedTensorSpec():
            return "ragged"
        case _:
            return "dense"


def _type_of(column_type: ColumnType) -> dict[str, object]:
    document = type_document(column_type)
    document.pop("buckets", None)
    return document


def _output(name: str, output: Any) -> tuple[str, list[Any], ColumnType]:
    """How an output is stored: (way, its tensors, its column type)."""
    dtype = _ELEMENT.get(output.dtype)
    if dtype is not None:
        match output:
            case tf.SparseTensor() if output.shape.rank in (2, None):
                return "sparse", [output.indices, output.values, output.dense_shape], Ragged(dtype)
            case tf.RaggedTensor() if output.ragged_rank == 1 and output.flat_values.shape.rank == 1:
                return "ragged", [output.flat_values, output.row_splits], Ragged(dtype)
            case tf.Tensor() if output.shape.rank == 1:
                return "dense", [output], Dense(dtype)
            case tf.Tensor() if output.shape.rank == 2 and output.shape[1]:
                return "dense", [output], Vector(dtype, int(output.shape[1]))
    raise NotBridged("an output of this type and shape cannot be a model input", where=f"output {name}",
                     value=f"{type(output).__name__} of {output.dtype.name}, shape {output.shape}",
                     allowed="[rows] or [rows, n] with a known n, or a sparse or ragged tensor of two dimensions, "
                     "of numbers, text or booleans",
                     next_step="reshape it, or leave it out")  # fmt: skip
