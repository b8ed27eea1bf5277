"""A traced TensorFlow graph with inlined calls and normalised attributes, constants and bodies."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import function_def_to_graph, op_def_registry

from transforms.graphs.encoding import digest
from transforms.twins.allowed_operations import CALLBACKS, CALLS
from transforms.twins.refusals import UNWRITABLE, NotBridged, check_operation

Ref = tuple[str, int]

#: The prefix of the names of bodies.
BODY = "body_"

PASSING_ON = frozenset({"Identity", "StopGradient", "PreventGradient", "Print", "Snapshot", "PlaceholderWithDefault"})
#: Operations that show the sign and payload of a NaN; elsewhere NaNs are equal, at the latest in the stored output.
_SHOW_NAN = frozenset(
    {"AsString", "Bitcast", "StringFormat", "SerializeSparse", "SerializeManySparse", "SerializeTensor"}
)
FLOATS = frozenset({"DT_HALF", "DT_BFLOAT16", "DT_FLOAT", "DT_DOUBLE", "DT_COMPLEX64", "DT_COMPLEX128"})


@dataclass
class Vertex:
    """A node with its calls inlined.

    Attributes:
        op: the operation.
        attributes: JSON documents of attribute values.
        inputs: the tensors it reads.
        controls: the nodes it waits for.
        bodies: the functions it runs, by their names in the library.
        written: whether the bridge wrote it in place of a captured table.
    """

    op: str
    attributes: dict[str, Any]
    inputs: list[Ref]
    controls: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    written: bool = False


class Graph:
    """A traced graph with inlined calls. ``leaves`` are the labels of placeholders by node name."""

    def __init__(self, definition: Any, leaves: Mapping[str, str], constants: Mapping[str, Any]) -> None:
        self._library = {function.signature.name: function for function in definition.library.function}
        self._definition = definition
        self.leaves = dict(leaves)
        self.vertices: dict[str, Vertex] = {}
        self._aliases: dict[Ref, Ref] = {}
        self._bodies: dict[str, str] = {}
        for name, value in constants.items():
            self.vertices[name] = _captured(value)
        self._add(definition.node, "", {name: (name, 0) for name in [*leaves, *constants]})

    def _add(self, nodes: Sequence[Any], prefix: str, given: Mapping[str, Ref]) -> None:
        for node in nodes:
            if node.name in given:
                self._aliases[(prefix + node.name, -1)] = given[node.name]
                continue
            refs = [_ref(text, prefix) for text in node.input if not text.startswith("^")]
            controls = [prefix + text[1:] for text in node.input if text.startswith("^")]
            if node.op in CALLS:
                self._inline(node, prefix, refs)
            elif node.op == "Const":
                self.vertices[prefix + node.name] = replace(_captured(_values_of(node)), controls=controls)
            else:
                attributes = _attributes(node, self._library)
                self.vertices[prefix + node.name] = Vertex(node.op, attributes, refs, controls, _bodies(node))

    def _inline(self, node: Any, prefix: str, refs: list[Ref]) -> None:
        function = self._library[node.attr["f"].func.name]
        body, flat = function_def_to_graph.function_def_to_graph_def(function)
        inner = f"{prefix}{node.name}/"
        arguments = dict(zip((arg.name for arg in function.signature.input_arg), refs, strict=True))
        self._add(body.node, inner, arguments)
        for position, arg in enumerate(function.signature.output_arg):
            name = flat[function.ret[arg.name]] if function.ret[arg.name] in flat else function.ret[arg.name]
            self._aliases[(prefix + node.name, position)] = _ref(name, inner)

    def labelled(self, leaves: Mapping[str, str]) -> Graph:
        """The same graph with other labels for its leaves."""
        other = copy.copy(self)
        other.leaves = dict(leaves)
        return other

    def resolved(self, ref: Ref) -> Ref:
        """The tensor of a reference, resolved through calls, arguments and identity nodes."""
        while True:
            name, _ = ref
            if ref in self._aliases:
                ref = self._aliases[ref]
            elif (name, -1) in self._aliases and self._aliases[(name, -1)] != ref:
                ref = self._aliases[(name, -1)]
            elif name in self.vertices and self.vertices[name].op in PASSING_ON and name not in self.leaves:
                ref = self.vertices[name].inputs[0]
            else:
                return ref

    def checks(self, names: Sequence[str]) -> list[str]:
        """The assertions that nodes wait for, directly or through nodes that do nothing."""
        found: set[str] = set()
        ahead, seen = list(names), set()
        while ahead:
            name = ahead.pop()
            if name in seen or name not in self.vertices:
                continue
            seen.add(name)
            vertex = self.vertices[name]
            if vertex.op == "Assert":
                found.add(name)
            elif vertex.op in {"NoOp", *PASSING_ON}:
                ahead += vertex.controls
        return sorted(found)

    def needed(self, name: str) -> list[str]:
        """The nodes that a node reads or waits for."""
        if name in self.leaves:
            return []
        vertex = self.vertices[name]
        return [self.resolved(ref)[0] for ref in vertex.inputs] + self.checks(vertex.controls)

    def users(self, name: str) -> dict[str, Vertex]:
        """The readers of a node, whether or not an output needs them."""
        return {
            other: vertex
            for other, vertex in self.vertices.items()
            if any(self.resolved(ref)[0] == name for ref in vertex.inputs)
        }

    def reached(self, refs: Sequence[Ref]) -> list[str]:
        """The nodes that tensors need, control dependencies included, each once."""
        ahead = [self.resolved(ref)[0] for ref in refs]
        seen: dict[str, None] = {}
        while ahead:
            name = ahead.pop()
            if name not in seen:
                seen[name] = None
                ahead += self.needed(name)
        return list(seen)

    def check(self, name: str, where: str) -> None:
        """Raise :class:`NotBridged` for a node, or one of the bodies it runs, that is not allowed."""
        if name in self.leaves:
            return
        vertex = self.vertices[name]
        if not vertex.written:
            check_operation(vertex.op, name, where)
        self.check_bodies(name, where)

    def check_bodies(self, name: str, where: str) -> None:
        """Raise :class:`NotBridged` for a node of the bodies that is not allowed, even without readers."""
        for node in self._body_nodes(name):
            op = node.op if node.op != "Const" else _captured(_values_of(node)).op
            check_operation(op, f"{node.name}, which {name} runs", where)

    def shows_nan(self, name: str) -> bool:
        """Whether a node, or one of the bodies it runs, may show the bits of a NaN."""
        if name in self.leaves:
            return False
        vertex = self.vertices[name]
        shown = vertex.op in _SHOW_NAN and element(vertex) in {*FLOATS, "None"}
        return shown or any(node.op in _SHOW_NAN for node in self._body_nodes(name))

    def _body_nodes(self, name: str) -> Iterator[Any]:
        ahead, seen = list(self.vertices[name].bodies), set()
        while ahead:
            body = ahead.pop()
            if body not in seen:
                seen.add(body)
                yield from self._library[body].node_def
                ahead += [called for node in self._library[body].node_def for called in _bodies(node)]

    def refuse_callbacks(self) -> None:
        """Raise :class:`NotBridged` for any Python callback, which may change inputs of the outputs."""
        bodies = (node for function in self._library.values() for node in function.node_def)
        for node in (*self._definition.node, *bodies):
            if node.op in CALLBACKS:
                check_operation(node.op, node.name, "a node that no output reads")

    def functions(self, names: set[str]) -> dict[str, Any]:
        """The bodies by digest, with those that they use."""
        if names and not self._bodies:
            self._bodies.update({_function_digest(name, self._library): name for name in self._library})
        found = self._bodies
        needed: dict[str, Any] = {}
        ahead = list(names)
        while ahead:
            key = ahead.pop()
            if key not in needed:
                document = _function_document(self._library[found[key]], self._library)
                needed[key] = document
                ahead += [name for name in found if name in json.dumps(document)]
        return needed


def _captured(value: Any) -> Vertex:
    try:
        return constant_vertex(value)
    except (TypeError, ValueError, NotImplementedError, tf.errors.OpError):
        return Vertex(UNWRITABLE, {}, [])


def constant_vertex(value: Any) -> Vertex:
    """A constant from its values, in one form."""
    tensor = tf.make_tensor_proto(value)
    _keep_nan(tensor)
    attributes = {
        "dtype": {"type": _type_name(tensor.dtype)},
        "value": {"tensor": json_format.MessageToDict(tensor)},
    }
    return Vertex("Const", attributes, [])


def _keep_nan(tensor: Any) -> None:
    """Bytes in place of numbers if a NaN has a sign or a payload, which JSON numbers cannot hold."""
    if tensor.tensor_content or not (tensor.float_val or tensor.double_val):
        return
    values = tf.make_ndarray(tensor)
    bits = values.view(np.dtype(f"u{values.itemsize}"))
    if (bits[np.isnan(values)] != np.array(np.nan, values.dtype).view(bits.dtype)).any():
        tensor.ClearField("float_val")
        tensor.ClearField("double_val")
        tensor.tensor_content = values.tobytes()


def _type_name(number: int) -> str:
    return str(types_pb2.DataType.Name(number))


def _ref(text: str, prefix: str) -> Ref:
    name, _, index = text.partition(":")
    return prefix + name, int(index or 0)


def _attributes(node: Any, library: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with an effect on a node, as JSON: constants in one form, functions by digest."""
    if node.op == "Const":
        return _captured(_values_of(node)).attributes
    declared = op_def_registry.get(node.op)
    defaults = (
        {attr.name: attr.default_value for attr in declared.attr if attr.HasField("default_value")} if declared else {}
    )
    kept = {}
    for name, value in node.attr.items():
        if name.startswith("_") or (name in defaults and _same_bits(defaults[name], value)):
            continue
        kept[name] = _attribute(value, library)
    return kept


def _same_bits(first: Any, second: Any) -> bool:
    """Whether two attributes are equal; 0.0 and -0.0 are not."""
    return bool(
        first == second and first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    )


def _values_of(node: Any) -> Any:
    tensor = node.attr["value"].tensor
    try:
        return tf.make_ndarray(tensor)
    except (TypeError, ValueError):
        return tensor  # which cannot be written either


def _bodies(node: Any) -> list[str]:
    """The functions that a node runs, by name. Raises :class:`NotBridged` for one with attributes of its own."""
    called = [each for value in node.attr.values() for each in (value.func, *value.list.func) if each.name]
    for function in called:
        if any(not name.startswith("_") for name in function.attr):
            raise NotBridged(
                "a function of a graph must be the same wherever it is called",
                value=f"{node.op} ({node.name}): {function.name}",
                next_step="write the function for TensorFlow 2",
            )
    return [function.name for function in called]


def _attribute(value: Any, library: Mapping[str, Any]) -> Any:
    if value.HasField("func") and value.func.name in library:
        return {"func": {"name": _function_digest(value.func.name, library)}}
    document = json_format.MessageToDict(value)
    functions = document.get("list", {}).get("func", [])
    for function in functions:
        if function.get("name") in library:
            function["name"] = _function_digest(function["name"], library)
            function.pop("attr", None)
    return document


def _function_digest(name: str, library: Mapping[str, Any]) -> str:
    return BODY + digest(json.dumps(_function_document(library[name], library), sort_keys=True))[:32]


def _function_document(function: Any, library: Mapping[str, Any]) -> dict[str, Any]:
    """A body with its arguments, nodes and results renamed by position, without a name."""
    names = {arg.name: f"a{i}" for i, arg in enumerate(function.signature.input_arg)}
    nodes = {node.name: node for node in function.node_def}
    order = list(_body_order(function, nodes))
    names |= {name: f"n{i}" for i, name in enumerate(order)}
    body = [
        {
            "name": names[name],
            "op": nodes[name].op,
            "input": [_renamed(text, names) for text in nodes[name].input],
            "attr": _attributes(nodes[name], library),
        }
        for name in order
    ]
    outputs = [arg.name for arg in function.signature.output_arg]
    return {
        "signature": {
            "inputArg": [{"name": f"a{i}", "type": _type_name(arg.type)} for i, arg in enumerate(function.signature.input_arg)],
            "outputArg": [{"name": f"r{i}", "type": _type_name(arg.type)} for i, arg in enumerate(function.signature.output_arg)],
        },
        "nodeDef": body,
        "ret": {f"r{i}": _renamed(function.ret[name], names) for i, name in enumerate(outputs)},
    }  # fmt: skip


def _renamed(text: str, names: Mapping[str, str]) -> str:
    control, text = ("^", text[1:]) if text.startswith("^") else ("", text)
    name, colon, rest = text.partition(":")
    return f"{control}{names[name]}{colon}{rest}"


def _body_order(function: Any, nodes: Mapping[str, Any]) -> Iterator[str]:
    """The nodes that the results need, each after its inputs, in the order of discovery."""
    seen: set[str] = set()
    roots = [function.ret[arg.name] for arg in function.signature.output_arg]
    stack = [(text.partition(":")[0], False) for text in reversed(roots)]
    while stack:
        name, expanded = stack.pop()
        if name not in nodes or name in seen:
            continue
        if expanded:
            seen.add(name)
            yield name
            continue
        stack.append((name, True))
        stack += [(text.lstrip("^").partition(":")[0], False) for text in reversed(nodes[name].input)]


def element(vertex: Vertex) -> str:
    """The element type that a vertex computes with, or ``None``."""
    return str(vertex.attributes.get("T", {}).get("type"))
