"""A tf.Transform ``preprocessing_fn`` as components: traced once, then taken apart, one graph an output."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from transforms.canonical import canonicalize
from transforms.errors import UnknownColumn
from transforms.expression import Expr, apply
from transforms.functions.packages import version_of
from transforms.twins.canonical_graph import FORMAT, Canonical
from transforms.twins.captured_tables import Tables, own_tables
from transforms.twins.inlined_graph import Graph, Ref
from transforms.twins.refusals import NotBridged, refused_when
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
        with _transform_context(module), own_tables():
            return dict(function(_Given(copy)))

    with refused_when("traced"), own_tables():  # out here for tables that are lifted out of the function
        concrete = tf.function(traced, input_signature=[specs], autograph=False).get_concrete_function()
    _refuse_analyzers(concrete.graph)
    with refused_when("written down"):
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
    except Exception as error:  # the folder may hold anything
        raise NotBridged("no SavedModel can be read here", value=path, next_step=_FOLDER) from error
    match getattr(getattr(loaded, "transform_fn", None), "structured_input_signature", None):
        case ((dict() as signature,), _):
            pass
        case _:
            raise NotBridged("the SavedModel is not one that tf.Transform wrote", value=path, next_step=_FOLDER)
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
    """A traced function: its graph, and the key and part of every placeholder.

    A key enters as its column's canonical identity and its way: keys of one column that enter the same way are one input,
    and the order of the inputs depends on neither the keys nor the order of tracing.
    """

    def __init__(self, concrete: Any, specs: Mapping[str, tf.TypeSpec], columns: Mapping[str, Expr]) -> None:
        self._concrete = concrete
        self._specs = specs
        self._columns = columns
        self._owner: dict[str, tuple[str, int]] = {}
        placeholders = iter(concrete.graph.inputs)
        for name in sorted(specs):  # tf.nest sorts the keys of a mapping
            for position in range(_PARTS[_way(specs[name])]):
                self._owner[next(placeholders).op.name] = (name, position)
        self._inputs = {name: (canonicalize(columns[name].node).identity, _way(spec)) for name, spec in specs.items()}
        captured = {inner.op.name: outer for outer, inner in concrete.graph.captures}
        resources = {name: outer for name, outer in captured.items() if outer.dtype == tf.resource}
        # Read once for all outputs, which differ in the labels of their leaves only.
        self._graph = Graph(concrete.graph.as_graph_def(), {name: name for name in self._owner},
                            {**captured, **dict.fromkeys(resources, 0)})  # fmt: skip
        self._initializers = Tables(resources).write(self._graph, "the tables of the function")

    def expressions(self) -> dict[str, Expr]:
        outputs = self._concrete.structured_outputs
        for name in outputs:
            if not isinstance(name, str):
                raise NotBridged("the key of an output must be text", value=name, next_step="name the output")
        expressions = {name: self._expression(name, outputs[name]) for name in sorted(outputs)}
        self._graph.refuse_callbacks()
        return expressions

    def _expression(self, name: str, output: Any) -> Expr:
        kind, tensors, column_type = _output(name, output)
        refs = [(tensor.op.name, tensor.value_index) for tensor in tensors]
        reached = self._reached(refs)
        where = f"output {name}"
        if not reached:
            raise NotBridged("an output reads no column", where=where, next_step="leave it out")
        inputs = {self._inputs[column]: self._columns[column].node for column in reversed(reached)}
        order = {each: position for position, each in enumerate(sorted(inputs))}
        leaves = {
            placeholder: f"in{order[self._inputs[column]]}_{part}"
            for placeholder, (column, part) in self._owner.items()
            if column in reached
        }
        graph = self._graph.labelled({**dict.fromkeys(self._owner, ""), **leaves})
        document = {
            "format": FORMAT,
            **Canonical(graph, refs, self._initializers, where).document(),
            "inputs": [{"as": way, "type": _type_of(inputs[identity, way].type)} for identity, way in order],
            "as": kind,
            "type": type_document(column_type),
            "packages": {"tensorflow": str(version_of("tensorflow") or tf.__version__)},
        }
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return apply("tensorflow_graph", *(Expr(inputs[each]) for each in order), graph=text)

    def _reached(self, refs: Sequence[Ref]) -> list[str]:
        """The keys that an output reads, sorted."""
        return sorted({self._owner[name][0] for name in self._graph.reached(refs) if name in self._owner})


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
    if not isinstance(output, tf.Tensor | tf.SparseTensor | tf.RaggedTensor):
        raise NotBridged("an output must be a tensor", where=f"output {name}", value=type(output).__name__,
                         allowed="a tensor, a SparseTensor or a RaggedTensor",
                         next_step="give each tensor a key of its own")  # fmt: skip
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
