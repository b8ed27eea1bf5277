"""A tf.Transform ``preprocessing_fn`` as components: traced once, then split into one graph per output."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from transforms.analysis.preprocessing_functions import AnalyzedFunction, keep_function
from transforms.errors import UnknownColumn
from transforms.expressions.expression import Expr, apply
from transforms.functions.packages import version_of
from transforms.graphs.canonical import canonicalize
from transforms.graphs.encoding import digest
from transforms.time_range import TimeRange, moment_text
from transforms.twins.analyzer_documents import Analyzer, analyzers_of, names_of
from transforms.twins.canonical_graph import FORMAT, Canonical
from transforms.twins.captured_tables import Tables, own_tables
from transforms.twins.entering import PARTS, Ways, spec
from transforms.twins.inlined_graph import Graph, Ref
from transforms.twins.refusals import NotBridged, refused_when
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, type_document

#: TensorFlow's element types of outputs, with the element types that hold them without loss.
_ELEMENT: dict[tf.DType, DType] = {
    tf.string: DType.STRING, tf.bool: DType.BOOL, tf.float32: DType.FLOAT32, tf.float64: DType.FLOAT64,
    tf.float16: DType.FLOAT32, tf.bfloat16: DType.FLOAT32, tf.int8: DType.INT64, tf.int16: DType.INT64,
    tf.int32: DType.INT64, tf.int64: DType.INT64, tf.uint8: DType.INT64, tf.uint16: DType.INT64, tf.uint32: DType.INT64,
}  # fmt: skip

#: The next step for a wrong or missing SavedModel.
_FOLDER = "give the transform_fn folder of a tf.Transform output"

Tensors = Mapping[str, Any]


def bridged(
    function: Callable[[dict[str, Any]], Tensors],
    columns: Mapping[str, Expr],
    ways: Ways,
    over: TimeRange | None = None,
    *,
    narrow: bool = False,
) -> dict[str, Expr]:
    """See :func:`transforms.twins.preprocessing.from_preprocessing_fn`.

    With ``narrow`` every output of shape [rows, 1] is a dense column; otherwise only if it reads a column of that shape.
    """
    entering = ways.given({name: expression.type for name, expression in columns.items()})
    specs = {name: spec(entering[name], expression.type) for name, expression in columns.items()}
    module = tf.Module()  # keeps the function's tables alive

    def traced(inputs: Tensors) -> Tensors:
        copy = tf.nest.map_structure(tf.identity, dict(inputs), expand_composites=True)
        with _transform_context(module), own_tables():
            return dict(function(_Given(copy)))

    with refused_when("traced"), own_tables():  # out here, for tables that are lifted out of the function
        concrete = tf.function(traced, input_signature=[specs], autograph=False).get_concrete_function()
    with refused_when("written down"):
        return _Tracing(function, concrete, entering, columns, over, narrow).expressions()


class _Given(dict[str, Any]):
    """The function's inputs, by key."""

    def __missing__(self, key: str) -> Any:
        raise UnknownColumn("a column that the preprocessing_fn reads must be given", value=key,
                            allowed=", ".join(sorted(self)),
                            next_step=f'add it, as in columns={{{key!r}: hr.text({key!r})}}')  # fmt: skip


def from_saved(path: str, columns: Mapping[str, Expr], ways: Ways) -> dict[str, Expr]:
    """See :func:`transforms.twins.preprocessing.from_transform_output`."""
    function, signature = saved_function(path)
    if missing := sorted(set(signature) - set(columns)):
        raise UnknownColumn("columns that the analysed function reads must be given", value=", ".join(missing),
                            allowed=", ".join(sorted(signature)), next_step="add them to columns")  # fmt: skip
    as_sparse = {name for name, each in signature.items() if isinstance(each, tf.SparseTensorSpec)}
    as_ragged = {name for name, each in signature.items() if isinstance(each, tf.RaggedTensorSpec)}
    as_shape1 = {name for name, each in signature.items() if isinstance(each, tf.TensorSpec) and _is_column(each.shape)}
    needed = {name: columns[name] for name in signature}
    ways = Ways({*ways.sparse, *as_sparse}, {*ways.ragged, *as_ragged}, {*ways.shape1, *as_shape1})
    return bridged(function, needed, ways)


def saved_function(path: str) -> tuple[Callable[[dict[str, Any]], Tensors], Mapping[str, tf.TypeSpec]]:
    """The function of a ``transform_fn`` folder and its inputs by key. Raises :class:`NotBridged` for another folder."""
    try:
        loaded = tf.saved_model.load(path)
    except Exception as error:  # the folder may hold anything
        raise NotBridged("the folder must hold a readable SavedModel", value=path, next_step=_FOLDER) from error
    match getattr(getattr(loaded, "transform_fn", None), "structured_input_signature", None):
        case ((dict() as signature,), _):
            return (lambda inputs: dict(loaded.transform_fn(dict(inputs)))), signature
        case _:
            raise NotBridged("the SavedModel must be one that tf.Transform wrote", value=path, next_step=_FOLDER)


def _is_column(shape: tf.TensorShape) -> bool:
    return bool(shape.rank == 2 and shape[1] == 1)


def _transform_context(module: tf.Module) -> Any:
    """The context that tf.Transform's functions need while they are traced, if tf.Transform is loaded."""
    if "tensorflow_transform" not in sys.modules:
        return nullcontext()
    context = importlib.import_module("tensorflow_transform.graph_context")
    return context.TFGraphContext(module_to_export=module, temp_dir=None, evaluated_replacements=None)


class _Tracing:
    """A traced function: its graph, and the key and part of every placeholder.

    An input is identified by its column's canonical identity and its way of entering: the keys and the order of tracing
    have no effect on the inputs and their order.
    """

    def __init__(
        self,
        function: Callable[[dict[str, Any]], Tensors],
        concrete: Any,
        ways: Mapping[str, str],
        columns: Mapping[str, Expr],
        over: TimeRange | None,
        narrow: bool,
    ) -> None:
        self._function = function
        self._concrete = concrete
        self._ways = ways
        self._columns = columns
        self._over = over
        self._narrow = narrow
        self._owner: dict[str, tuple[str, int]] = {}
        placeholders = iter(concrete.graph.inputs)
        for name in sorted(ways):  # tf.nest sorts the keys of a mapping
            for position in range(PARTS[ways[name]]):
                self._owner[next(placeholders).op.name] = (name, position)
        self._inputs = {name: (canonicalize(columns[name].node).identity, way) for name, way in ways.items()}
        self._analyzers = {each.placeholder: each for each in analyzers_of(concrete.graph)}
        captured = {inner.op.name: outer for outer, inner in concrete.graph.captures}
        resources = {name: outer for name, outer in captured.items() if outer.dtype == tf.resource}
        # Read once for all outputs, which differ in the labels of their leaves only.
        self._graph = Graph(concrete.graph.as_graph_def(), {name: name for name in (*self._owner, *self._analyzers)},
                            {**captured, **dict.fromkeys(resources, 0)})  # fmt: skip
        self._initializers = Tables(resources, self._analyzers).write(self._graph, "the tables of the function")

    def expressions(self) -> dict[str, Expr]:
        outputs = self._concrete.structured_outputs
        for name in outputs:
            if not isinstance(name, str):
                raise NotBridged("the key of an output must be text", value=name, next_step="name the output")
        stored = {name: _output(name, outputs[name]) for name in sorted(outputs)}
        waiting = {name for name, output in stored.items() if self._reached_analyzers(output.refs)}
        analyzed = self._analyzed({name: stored[name] for name in sorted(waiting)}) if waiting else {}
        expressions = {
            name: analyzed[name] if name in waiting else self._expression(name, output)
            for name, output in stored.items()
        }
        self._graph.refuse_callbacks()
        return expressions

    def _expression(self, name: str, output: _Output) -> Expr:
        reached = self._reached(output.refs)
        where = f"output {name}"
        if not reached:
            raise NotBridged("an output must read a column", where=where, next_step="leave it out")
        if self._narrow or any(self._ways[column] == "column" for column in reached):
            output = output.narrowed()
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
            **Canonical(graph, output.refs, self._initializers, where).document(),
            "inputs": [{"as": way, "type": _type_of(inputs[identity, way].type)} for identity, way in order],
            "as": output.way,
            "type": type_document(output.type),
            "packages": {"tensorflow": str(version_of("tensorflow") or tf.__version__)},
        }
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return apply("tensorflow_graph", *(Expr(inputs[each]) for each in order), graph=text)

    def _reached(self, refs: Sequence[Ref]) -> list[str]:
        """The keys that tensors read, sorted."""
        return sorted({self._owner[name][0] for name in self._graph.reached(refs) if name in self._owner})

    def _reached_analyzers(self, refs: Sequence[Ref]) -> list[Analyzer]:
        """The analyzers that tensors need, directly or not, in the order of the function."""
        found: set[str] = set()
        ahead = list(refs)
        while ahead:
            new = {name for name in self._graph.reached(ahead) if name in self._analyzers} - found
            found |= new
            ahead = [ref for name in new for ref in self._analyzers[name].sources]
        return [analyzer for name, analyzer in self._analyzers.items() if name in found]

    def _analyzed(self, outputs: Mapping[str, _Output]) -> dict[str, Expr]:
        """The outputs that need an analysis, as expressions that :mod:`transforms.analysis.full_pass` resolves."""
        needed = self._reached_analyzers([ref for output in outputs.values() for ref in output.refs])
        if self._over is None:
            raise NotBridged(
                "over must be given for a preprocessing_fn that analyses the data",
                value=names_of(needed),
                allowed="over=hr.between(START, END)",
                next_step='state it, as in hr.from_preprocessing_fn(fn, columns, over=hr.between("2026-01-01", '
                '"2026-01-08")), or bridge what tf.Transform\'s own analysis wrote with hr.from_transform_output',
            )
        sources = [ref for analyzer in self._analyzers.values() for ref in analyzer.sources]
        function = AnalyzedFunction(
            digest=self._digest(outputs, needed),
            function=self._function,
            ways=self._ways,
            types={name: expression.type for name, expression in self._columns.items()},
            analyzed=tuple(self._reached(sources)),
            outputs=tuple(outputs),
            analyzers=names_of(needed),
        )
        keep_function(function)
        keys = sorted({*function.analyzed, *self._reached([ref for output in outputs.values() for ref in output.refs])})
        return {name: self._waiting(function, name, output, keys, self._over) for name, output in outputs.items()}

    def _digest(self, outputs: Mapping[str, _Output], needed: Sequence[Analyzer]) -> str:
        """The identity of the function for its analysis: columns and outputs by key, analyzers by position."""
        labels = {placeholder: f"column/{key}/{part}" for placeholder, (key, part) in self._owner.items()}
        labels |= {analyzer.placeholder: f"analyzer/{place}" for place, analyzer in enumerate(self._analyzers.values())}
        refs = [ref for output in outputs.values() for ref in output.refs]
        refs += [ref for analyzer in needed for ref in analyzer.sources]
        graph = Canonical(
            self._graph.labelled(labels), refs, self._initializers, "an output that is analysed"
        ).document()
        return digest(json.dumps({
            "format": FORMAT,
            "graph": graph,
            "outputs": [[name, each.way, len(each.refs), type_document(each.type)] for name, each in outputs.items()],
            "columns": [[name, way, _type_of(self._columns[name].type)] for name, way in sorted(self._ways.items())],
            "analyzers": [[labels[each.placeholder], len(each.sources), each.document] for each in needed],
            "packages": {name: version_of(name) for name in _ANALYSING},
        }, sort_keys=True))  # fmt: skip

    def _waiting(
        self, function: AnalyzedFunction, name: str, output: _Output, keys: Sequence[str], over: TimeRange
    ) -> Expr:
        """One output over every column that the analysis or an output with it reads."""
        if not keys:
            raise NotBridged("an output must read a column", where=f"output {name}", next_step="leave it out")
        output = output.narrowed()
        return apply(
            "preprocessing_output", *(self._columns[key] for key in keys), function=function.digest, output=name,
            columns=tuple(keys), gives=json.dumps(type_document(output.type), sort_keys=True),
            start=moment_text(over.start), end=moment_text(over.end))  # fmt: skip


#: The packages that an analysis depends on.
_ANALYSING = ("numpy", "python", "tensorflow", "tensorflow-transform", "tfx-bsl")


def _type_of(column_type: ColumnType) -> dict[str, object]:
    document = type_document(column_type)
    document.pop("buckets", None)
    return document


@dataclass(frozen=True)
class _Output:
    """The storage of an output: its form, its tensors and its column type."""

    way: str
    refs: tuple[Ref, ...]
    type: ColumnType

    def narrowed(self) -> _Output:
        """A tensor of shape [rows, 1] as a dense column; others as they are."""
        if isinstance(self.type, Vector) and self.type.size == 1:
            return _Output("column", self.refs, Dense(self.type.dtype))
        return self


def _output(name: str, output: Any) -> _Output:
    if not isinstance(output, tf.Tensor | tf.SparseTensor | tf.RaggedTensor):
        raise NotBridged("an output must be a tensor", where=f"output {name}", value=type(output).__name__,
                         allowed="a tensor, a SparseTensor or a RaggedTensor",
                         next_step="give each tensor a key of its own")  # fmt: skip
    dtype = _ELEMENT.get(output.dtype)
    if dtype is not None:
        match output:
            case tf.SparseTensor() if output.shape.rank in (2, None):
                return _made("sparse", [output.indices, output.values, output.dense_shape], Ragged(dtype))
            case tf.RaggedTensor() if output.ragged_rank == 1 and output.flat_values.shape.rank == 1:
                return _made("ragged", [output.flat_values, output.row_splits], Ragged(dtype))
            case tf.Tensor() if output.shape.rank == 1:
                return _made("dense", [output], Dense(dtype))
            case tf.Tensor() if output.shape.rank == 2 and output.shape[1]:
                return _made("dense", [output], Vector(dtype, int(output.shape[1])))
    raise NotBridged("an output must have the type and shape of a model input", where=f"output {name}",
                     value=f"{type(output).__name__} of {output.dtype.name}, shape {output.shape}",
                     allowed="[rows] or [rows, n] with a known n, or a sparse or ragged tensor of two dimensions, "
                     "of numbers, text or booleans",
                     next_step="reshape it, or leave it out")  # fmt: skip


def _made(way: str, tensors: Sequence[Any], column_type: ColumnType) -> _Output:
    return _Output(way, tuple((tensor.op.name, tensor.value_index) for tensor in tensors), column_type)
