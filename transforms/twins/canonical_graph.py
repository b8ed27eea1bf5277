"""The canonical document of the TensorFlow graph under one output: equal programs have equal documents.

Calls are inlined; names, devices, colocation, debug attributes, defaults of attributes and nodes that only pass a value
on are dropped; equal nodes become one; arguments of commutative operations are put in order where that changes no bit;
nodes are numbered in the order in which the output reaches them. What remains is ``headrace.tensorflow_graph/1``:

    nodes         op, attributes and inputs (``node:output``; ``in0_1`` is the second tensor of the first column)
    functions     bodies of loops and branches, named by their digest
    output        the tensors of the output
    initializers  nodes that fill tables; they run once
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.graphs.encoding import digest
from transforms.twins.inlined_graph import BODY, FLOATS, Graph, Ref, Vertex, element

FORMAT = "headrace.tensorflow_graph/1"

#: Commutative bit for bit, except for the choice between two NaNs. Not minimum and maximum, which distinguish -0.0.
_COMMUTATIVE = frozenset({"Add", "AddV2", "Mul", "Equal", "NotEqual", "LogicalAnd", "LogicalOr", "BitwiseAnd",
                          "BitwiseOr", "BitwiseXor", "SquaredDifference"})  # fmt: skip


@dataclass(frozen=True)
class _Content:
    """A node by its content: its inputs in canonical order and the assertions that it waits for, by identity."""

    op: str
    attributes: dict[str, Any]
    inputs: tuple[Ref, ...]
    controls: tuple[str, ...]


class Canonical:
    """The document of one output of a graph; errors name it by ``where``. Raises :class:`NotBridged`."""

    def __init__(self, graph: Graph, output: Sequence[Ref], initializers: Mapping[str, str], where: str) -> None:
        self._graph = graph
        self._identity: dict[str, str] = {}
        self._content: dict[str, _Content] = {}
        self._names: dict[str, str] = {}
        self._nodes: list[dict[str, Any]] = []
        refs = [graph.resolved(ref) for ref in output]
        reached = graph.reached(refs)
        for name in reached:
            graph.check(name, where)
        self._shows_nan = any(graph.shows_nan(name) for name in reached)
        self._identify([name for name, _ in refs])
        fillers = [initializers[name] for name in initializers if name in self._identity]
        self._identify(fillers)
        self._write([self._identity[name] for name, _ in refs])
        self._write(sorted(self._identity[name] for name in fillers))
        self._output = [self._spelled((self._identity[name], index)) for name, index in refs]
        self._initializers = sorted({self._names[self._identity[name]] for name in fillers})

    def document(self) -> dict[str, Any]:
        """Nodes, bodies, the output and the initializers of tables, as JSON values."""
        values = [value for node in self._nodes for value in node["attr"].values()]
        bodies = {value["func"]["name"] for value in values if "func" in value}
        bodies |= {each["name"] for value in values for each in value.get("list", {}).get("func", [])}
        functions = self._graph.functions({name for name in bodies if name.startswith(BODY)})
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
        refs = [self._graph.resolved(ref) for ref in vertex.inputs]
        inputs = [(self._identity[at], index) for at, index in refs]
        if self._commutes(vertex):
            inputs.sort()
        controls = sorted({self._identity[each] for each in self._graph.checks(vertex.controls)})
        identity = digest(json.dumps([vertex.op, vertex.attributes, inputs, controls], sort_keys=True))
        self._content[identity] = _Content(vertex.op, vertex.attributes, tuple(inputs), tuple(controls))
        return identity

    def _commutes(self, vertex: Vertex) -> bool:
        of = element(vertex)
        of_text = vertex.op == "Add" and of == "DT_STRING"
        return vertex.op in _COMMUTATIVE and not of_text and not (self._shows_nan and of in FLOATS)

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
