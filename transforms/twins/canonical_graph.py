"""The part of a TensorFlow graph that one output needs, in one form: equal programs give equal documents.

Calls are inlined; names, devices, colocation, debug attributes, defaults of attributes and nodes that only pass a value
on are dropped; equal nodes become one; arguments of commutative operations are put in order where that changes no bit;
nodes are numbered in the order in which the output reaches them. What remains is ``headrace.tensorflow_graph/1``:

    nodes         op, attributes and inputs (``node:output``; ``in0_1`` is the second tensor of the first column)
    functions     bodies of loops and branches, named by their digest
    output        the tensors of the output
    initializers  nodes that fill tables; they run once
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import function_def_to_graph, op_def_registry

from transforms.encoding import digest
from transforms.errors import InputError

FORMAT = "headrace.tensorflow_graph/1"

Ref = tuple[str, int]

#: Stands for a table that nothing outside loops and branches looks up, so that its types are not known.
UNWRITTEN_TABLE = "UnwrittenTable"
#: What the names of bodies begin with.
_BODY = "body_"

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_PASSING_ON = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot", "PlaceholderWithDefault"})
#: Bit for bit, but for which NaN comes out, and that is made one at the end. Not minimum and maximum: they tell -0.0.
_COMMUTATIVE = frozenset({"Add", "AddV2", "Mul", "Equal", "NotEqual", "LogicalAnd", "LogicalOr", "BitwiseAnd",
                          "BitwiseOr", "BitwiseXor", "SquaredDifference"})  # fmt: skip
#: Operations with a state that does not show in what they give.
_HARMLESS = frozenset({"Assert", "LookupTableFindV2", "LookupTableSizeV2", "LookupTableExportV2", "HashTableV2",
                       "LookupTableImportV2", "StatelessWhile", "While", "If", "Case", "NoOp", "Print", "PrintV2"})  # fmt: skip


class NotBridged(InputError):
    """A TensorFlow function does something whose result cannot be kept: chance, files, state, or an unknown type."""


@dataclass
class Vertex:
    """A node with its calls inlined. ``attributes`` are JSON documents of attribute values."""

    op: str
    attributes: dict[str, Any]
    inputs: list[Ref]
    controls: list[str] = field(default_factory=list)


class Graph:
    """A traced graph, calls inlined. ``leaves`` are placeholders by node name: the label that stands for each."""

    def __init__(self, definition: Any, leaves: Mapping[str, str], constants: Mapping[str, Any]) -> None:
        self._library = {function.signature.name: function for function in definition.library.function}
        self._definition = definition
        self.leaves = dict(leaves)
        self.vertices: dict[str, Vertex] = {}
        self._aliases: dict[Ref, Ref] = {}
        self._bodies: dict[str, str] = {}
        for name, value in constants.items():
            self.vertices[name] = constant_vertex(value)
        self._add(definition.node, "", {name: (name, 0) for name in [*leaves, *constants]})

    def _add(self, nodes: Sequence[Any], prefix: str, given: Mapping[str, Ref]) -> None:
        for node in nodes:
            if node.name in given:
                self._aliases[(prefix + node.name, -1)] = given[node.name]
                continue
            refs = [_ref(text, prefix) for text in node.input if not text.startswith("^")]
            controls = [prefix + text[1:] for text in node.input if text.startswith("^")]
            if node.op in _CALLS:
                self._inline(node, prefix, refs)
            else:
                self.vertices[prefix + node.name] = Vertex(node.op, _attributes(node, self._library), refs, controls)

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
        """The tensor that a reference comes to, past calls, arguments and nodes that only pass it on."""
        while True:
            name, _ = ref
            if ref in self._aliases:
                ref = self._aliases[ref]
            elif (name, -1) in self._aliases and self._aliases[(name, -1)] != ref:
                ref = self._aliases[(name, -1)]
            elif name in self.vertices and self.vertices[name].op in _PASSING_ON and name not in self.leaves:
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
            elif vertex.op in {"NoOp", *_PASSING_ON}:
                ahead += vertex.controls
        return sorted(found)

    def needed(self, name: str) -> list[str]:
        """The nodes that a node reads or waits for."""
        if name in self.leaves:
            return []
        vertex = self.vertices[name]
        return [self.resolved(ref)[0] for ref in vertex.inputs] + self.checks(vertex.controls)

    def functions(self, names: set[str]) -> dict[str, Any]:
        """The bodies that stand under their digests, with those that they use."""
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


def constant_vertex(value: Any) -> Vertex:
    """A constant from its values, spelled one way whatever way a graph spelled it."""
    tensor = tf.make_tensor_proto(value)
    attributes = {
        "dtype": {"type": _type_name(tensor.dtype)},
        "value": {"tensor": json_format.MessageToDict(tensor)},
    }
    return Vertex("Const", attributes, [])


def _type_name(number: int) -> str:
    return str(types_pb2.DataType.Name(number))


def _ref(text: str, prefix: str) -> Ref:
    name, _, index = text.partition(":")
    return prefix + name, int(index or 0)


def _attributes(node: Any, library: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that change what a node does, as JSON: constants spelled one way, functions by their digest."""
    if node.op == "Const":
        return constant_vertex(tf.make_ndarray(node.attr["value"].tensor)).attributes
    declared = op_def_registry.get(node.op)
    defaults = (
        {attr.name: attr.default_value for attr in declared.attr if attr.HasField("default_value")} if declared else {}
    )
    kept = {}
    for name, value in node.attr.items():
        if name.startswith("_") or (name in defaults and defaults[name] == value):
            continue
        kept[name] = _attribute(value, library)
    return kept


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
    return _BODY + digest(json.dumps(_function_document(library[name], library), sort_keys=True))[:32]


def _function_document(function: Any, library: Mapping[str, Any]) -> dict[str, Any]:
    """A body with its arguments, nodes and results renamed by position; ``name`` is left to its digest."""
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
    """The nodes that the results need, each after those it reads, in the order in which the results reach them."""
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


@dataclass(frozen=True)
class _Content:
    """A node by its content: what it reads in canonical order, and the assertions that it waits for, by identity."""

    op: str
    attributes: dict[str, Any]
    inputs: tuple[Ref, ...]
    controls: tuple[str, ...]


class Canonical:
    """The document of one output of a graph; see the module. Raises :class:`NotBridged`."""

    def __init__(self, graph: Graph, output: Sequence[Ref], initializers: Mapping[str, str]) -> None:
        self._graph = graph
        self._identity: dict[str, str] = {}
        self._content: dict[str, _Content] = {}
        self._names: dict[str, str] = {}
        self._nodes: list[dict[str, Any]] = []
        refs = [graph.resolved(ref) for ref in output]
        self._identify([name for name, _ in refs])
        fillers = [initializers[name] for name in initializers if name in self._identity]
        self._identify(fillers)
        self._write([self._identity[name] for name, _ in refs])
        self._write(sorted(self._identity[name] for name in fillers))
        self._output = [self._spelled((self._identity[name], index)) for name, index in refs]
        self._initializers = sorted({self._names[self._identity[name]] for name in fillers})

    def document(self) -> dict[str, Any]:
        """Nodes, bodies, the output and what fills tables, as JSON values."""
        values = [value for node in self._nodes for value in node["attr"].values()]
        bodies = {value["func"]["name"] for value in values if "func" in value}
        bodies |= {each["name"] for value in values for each in value.get("list", {}).get("func", [])}
        functions = self._graph.functions({name for name in bodies if name.startswith(_BODY)})
        for body in functions.values():
            for node in body["nodeDef"]:
                _check(node["op"], node["name"])
        return {
            "nodes": self._nodes,
            "functions": functions,
            "output": self._output,
            "initializers": self._initializers,
        }

    def _identify(self, roots: Sequence[str]) -> None:
        stack = [(name, False) for name in roots]
        while stack:
            name, expanded = stack.pop()
            if name in self._identity:
                continue
            if expanded:
                self._identity[name] = self._identity_of(name)
                continue
            stack.append((name, True))
            stack += [(each, False) for each in self._graph.needed(name)]

    def _identity_of(self, name: str) -> str:
        if name in self._graph.leaves:
            label = self._graph.leaves[name]
            identity = digest(["leaf", label])
            self._names[identity] = label
            return identity
        vertex = self._graph.vertices[name]
        _check(vertex.op, name)
        refs = [self._graph.resolved(ref) for ref in vertex.inputs]
        inputs = [(self._identity[at], index) for at, index in refs]
        if vertex.op in _COMMUTATIVE and not (vertex.op == "Add" and _of_text(vertex)):
            inputs.sort()
        controls = sorted({self._identity[each] for each in self._graph.checks(vertex.controls)})
        identity = digest(json.dumps([vertex.op, vertex.attributes, inputs, controls], sort_keys=True))
        self._content[identity] = _Content(vertex.op, vertex.attributes, tuple(inputs), tuple(controls))
        return identity

    def _write(self, roots: Sequence[str]) -> None:
        """Number the nodes under ``roots`` in the order in which they are reached, arguments first."""
        stack = [(identity, False) for identity in reversed(roots)]
        while stack:
            identity, expanded = stack.pop()
            if identity in self._names:
                continue
            content = self._content[identity]
            if not expanded:
                stack.append((identity, True))
                needed = [at for at, _ in content.inputs] + list(content.controls)
                stack += [(each, False) for each in reversed(needed)]
                continue
            inputs = [self._spelled(ref) for ref in content.inputs] + [f"^{self._names[at]}" for at in content.controls]
            self._names[identity] = f"n{len(self._nodes)}"
            self._nodes.append({"op": content.op, "attr": content.attributes, "input": inputs})

    def _spelled(self, ref: Ref) -> str:
        identity, index = ref
        return f"{self._names[identity]}:{index}"


def _of_text(vertex: Vertex) -> bool:
    return bool(vertex.attributes.get("T", {}).get("type") == "DT_STRING")


def _check(op: str, name: str) -> None:
    declared = op_def_registry.get(op)
    if op in ("Placeholder", "PlaceholderV2"):
        raise NotBridged("an output needs a value that only a run of the pipeline gives", value=name,
                         next_step="bridge what tf.Transform's analysis wrote: from_transform_output")  # fmt: skip
    if op == UNWRITTEN_TABLE:
        raise NotBridged("an output looks a table up in a loop or branch only", value=name,
                         next_step="look the whole tensor up outside of it")  # fmt: skip
    if declared is None or (declared.is_stateful and op not in _HARMLESS | _CALLS):
        raise NotBridged("an output needs a TensorFlow operation whose result may differ from run to run",
                         value=f"{op} ({name})", next_step="leave it out of the function")  # fmt: skip
