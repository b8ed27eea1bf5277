"""Documents of tf.Transform's analyzers in a traced function: their operations and input tensors.

The document of an analyzer covers its operations, with every field but their labels, and names the tensors that it reads.
Functions with equal documents of graphs and analyzers have equal results on equal data.
"""

from __future__ import annotations

import enum
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from transforms.twins.inlined_graph import Ref
from transforms.twins.refusals import NotBridged

#: The collection of the traced graph in which tf.Transform records its analyzers.
_ANALYZERS = "tft_tensor_replacements"
#: A field that only distinguishes analyzers of one graph.
_LABEL = "label"
#: The packages whose code is identified by name: their versions are part of the digest.
_TRUSTED = frozenset({"tensorflow_transform", "tensorflow", "tfx_bsl", "numpy", "builtins", "functools", "operator"})


@dataclass(frozen=True)
class Analyzer:
    """One value that an analyzer gives.

    Attributes:
        placeholder: the node of the graph that stands for the value.
        name: the called function, such as ``scale_to_z_score``.
        sources: the tensors that it reads, in the order in which ``document`` names them.
        document: its operations as JSON values; ``["tensor", i]`` is the i-th of ``sources``.
    """

    placeholder: str
    name: str
    sources: tuple[Ref, ...]
    document: Any


def analyzers_of(graph: Any) -> tuple[Analyzer, ...]:
    """The analyzers of a traced graph, in the order in which the function calls them.

    Raises :class:`NotBridged` for one with user-defined Python code, or with fields that have no JSON form.
    """
    return tuple(_analyzer(sink) for sink in graph.get_collection(_ANALYZERS))


def names_of(analyzers: Iterable[Analyzer]) -> str:
    """The functions that analyse, as an error lists them."""
    return ", ".join(sorted({analyzer.name for analyzer in analyzers}))


def _analyzer(sink: Any) -> Analyzer:
    label = str(sink.future.parent_operation.operation_def.label)
    name = label.partition("[")[2].rstrip("]").partition("#")[0] or label
    sources: list[Ref] = []
    document = _value_node(sink.future, name, sources)
    return Analyzer(sink.tensor.op.name, name, tuple(sources), [document, bool(sink.is_asset_filepath)])


def _value_node(node: Any, name: str, sources: list[Ref]) -> Any:
    """The source of a value: an operation with its fields, its inputs and the index of the output."""
    operation = node.parent_operation
    definition = operation.operation_def
    inputs = [_value_node(each, name, sources) for each in operation.inputs]
    fields = {field: _spelled(value, name, sources) for field, value in _fields(definition) if field != _LABEL}
    return [_class_name(type(definition)), fields, inputs, node.value_index]


def _fields(definition: Any) -> Iterable[tuple[str, Any]]:
    if hasattr(definition, "_asdict"):
        return sorted(definition._asdict().items())
    return sorted(vars(definition).items())


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _spelled(value: Any, name: str, sources: list[Ref]) -> Any:
    """A field's value as JSON values. Raises :class:`NotBridged` for a value without a JSON form."""
    match value:
        case None | bool() | int() | str() if not isinstance(value, enum.Enum):
            return value
        case float():
            return ["float", value.hex() if math.isfinite(value) else repr(value)]
        case bytes():
            return ["bytes", value.hex()]
        case tf.Tensor():
            sources.append((value.op.name, value.value_index))
            return ["tensor", len(sources) - 1]
        case enum.Enum():
            return ["enumeration", _class_name(type(value)), value.name]
        case tf.DType():
            return ["dtype", value.name]
        case tf.TensorShape():
            return ["shape", None if value.rank is None else value.as_list()]
        case np.ndarray() | np.generic():
            array = np.asarray(value)
            if not array.dtype.hasobject:
                return ["array", array.dtype.str, list(array.shape), array.tobytes().hex()]
        case np.dtype():
            return ["dtype", value.str]
        case Mapping():
            return ["mapping", sorted([str(key), _spelled(each, name, sources)] for key, each in value.items())]
        case list() | tuple():
            kind = _class_name(type(value)) if hasattr(value, "_asdict") else "list"
            return [kind, [_spelled(each, name, sources) for each in value]]
    return _spelled_object(value, name, sources)


def _is_plain(value: Any) -> bool:
    """Whether the attributes of an object are its whole state."""
    kinds = [kind for kind in type(value).__mro__ if kind is not object]
    own = all(kind.__module__.partition(".")[0] in {*_TRUSTED, "abc"} for kind in kinds)
    return own and hasattr(value, "__dict__") and not any(vars(kind).get("__slots__") for kind in kinds)


def _spelled_object(value: Any, name: str, sources: list[Ref]) -> Any:
    module = str(getattr(value, "__module__", None) or type(value).__module__)
    if module.partition(".")[0] in _TRUSTED:
        match value:
            case partial():
                parts = [value.func, value.args, value.keywords]
                return ["partial", [_spelled(each, name, sources) for each in parts]]
            case types.MethodType():
                return ["method", _class_name(type(value.__self__)), value.__name__]
            case type() | types.BuiltinFunctionType() | np.ufunc():
                return ["named", module, str(getattr(value, "__qualname__", value.__name__))]
            case types.FunctionType() if not value.__closure__:
                return ["named", module, value.__qualname__, value.__code__.co_firstlineno]
            case _ if _is_plain(value):
                spelled = [[key, _spelled(each, name, sources)] for key, each in sorted(vars(value).items())]
                return ["object", _class_name(type(value)), spelled]
    raise NotBridged("an analyzer must be one that can be fingerprinted, and this one is given Python code or an object",
                     where=f"analyzer {name}", value=f"{getattr(value, '__qualname__', type(value).__name__)} of {module}",
                     allowed="numbers, text, arrays, what tf.Transform itself brings",
                     next_step="run tf.Transform's AnalyzeDataset and bridge what it wrote with hr.from_transform_output")  # fmt: skip
