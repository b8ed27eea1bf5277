"""Expression graphs: immutable nodes over raw columns and literals.

A node has an identity, a SHA-256 over its operator name and version, parameters, type and its arguments' identities (a
Merkle hash, computed once per node). Two nodes are equal if their identities are. A *component* is the graph under one
root, which one model input reads.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from transforms.documents import Part, document_part
from transforms.errors import InputError
from transforms.graphs.encoding import digest, encode, encode_list
from transforms.graphs.programs import PROGRAMS, program_params
from transforms.graphs.scalar_documents import literal_from, param_from, scalar_document
from transforms.operators.declaration import Scalar
from transforms.types import ColumnType, Vector, type_document, type_from_document

FORMAT = "headrace.component/1"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """One value of the graph. Use the subclasses: :class:`RawColumn`, :class:`Literal`, :class:`Artifact`, :class:`Operation`."""

    type: ColumnType
    identity: str = field(init=False, default="")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.identity[:12]}, {self.type})"

    @property
    def args(self) -> tuple[Node, ...]:
        """The nodes this one reads, in order."""
        return ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RawColumn(Node):
    """A column of the table, read as ``type``."""

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", digest(["column", self.name, type_document(self.type)]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Node):
    """A constant: the same value for every event. Every NaN is the one quiet NaN."""

    value: bool | int | float | str

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and math.isnan(self.value):
            object.__setattr__(self, "value", math.nan)
        object.__setattr__(self, "identity", digest(["literal", self.value, type_document(self.type)]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Artifact(Node):
    """The result of a full pass, such as the terms of a vocabulary: values that all events share, named by their digest.

    Its type is a vector of as many values. The values are stored outside the graph; see
    :func:`transforms.execution.plan.compile_plan`.
    """

    digest: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", digest(["artifact", self.digest, type_document(self.type)]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operation(Node):
    """An operator of a stated version applied to arguments. ``params`` is sorted by name."""

    op: str
    version: int
    operands: tuple[Node, ...]
    params: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", self._identity_over(lambda node: node.identity, self.version))

    def _identity_over(self, of: Callable[[Node], str], version: int | None) -> str:
        # What digest(["operation", op, version, params, type, args]) gives; types and names repeat.
        args = encode_list([encode(of(arg)) for arg in self.operands])
        params = encode(dict(self.params)) if self.params else _NO_PARAMS
        parts = (_OPERATION, encode(self.op), encode(version), params, _type_bytes(self.type), args)
        return hashlib.sha256(encode_list(parts)).hexdigest()

    @property
    def args(self) -> tuple[Node, ...]:
        """The operands."""
        return self.operands


_OPERATION, _NO_PARAMS = encode("operation"), encode({})


def _type_bytes(column_type: ColumnType) -> bytes:
    """The encoding of the type's document."""
    if column_type.buckets is None and not isinstance(column_type, Vector):
        return _plain_type_bytes(type(column_type).__name__.lower(), column_type.dtype.value)
    return encode(type_document(column_type))


@lru_cache(maxsize=64)
def _plain_type_bytes(kind: str, dtype: str) -> bytes:
    return encode({"kind": kind, "dtype": dtype})


def topological(roots: Iterable[Node], known: Container[str] = frozenset()) -> Iterator[Node]:
    """Every node under ``roots`` once, arguments before their readers. Iterative: depth is not limited.

    Nodes whose identity is ``known``, and nodes that only they read, are left out.
    """
    seen: set[str] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, expanded = stack.pop()
        if node.identity in seen or node.identity in known:
            continue
        if expanded:
            seen.add(node.identity)
            yield node
        else:
            stack.append((node, True))
            stack += [(arg, False) for arg in reversed(node.args) if arg.identity not in seen]


def fold(root: Node, combine: Callable[[Node, tuple[_T, ...]], _T]) -> _T:
    """Compute a value bottom-up: ``combine(node, values of its arguments)``, each node once."""
    values: dict[str, _T] = {}
    for node in topological([root]):
        values[node.identity] = combine(node, tuple(values[arg.identity] for arg in node.args))
    return values[root.identity]


def raw_columns(root: Node) -> tuple[RawColumn, ...]:
    """The raw columns a component reads, by name."""
    columns = (node for node in topological([root]) if isinstance(node, RawColumn))
    return tuple(sorted(columns, key=lambda column: column.name))


def artifacts(roots: Iterable[Node]) -> tuple[Artifact, ...]:
    """The artifacts that components read, by digest."""
    found = (node for node in topological(roots) if isinstance(node, Artifact))
    return tuple(sorted(found, key=lambda artifact: artifact.digest))


def shape_identity(root: Node) -> str:
    """An identity without operator versions: equal for components that differ only in these."""

    def combine(node: Node, args: tuple[str, ...]) -> str:
        if not isinstance(node, Operation):
            return node.identity
        by_identity = dict(zip((arg.identity for arg in node.args), args, strict=True))
        return node._identity_over(lambda arg: by_identity[arg.identity], None)

    return fold(root, combine)


def operator_versions(root: Node) -> dict[str, int]:
    """Operator name to version, for every operator under ``root``."""
    return {node.op: node.version for node in topological([root]) if isinstance(node, Operation)}


def component_document(root: Node) -> dict[str, object]:
    """The component as a JSON object: nodes in topological order, arguments by position. The last node is the root."""
    position: dict[str, int] = {}
    nodes: list[dict[str, object]] = []
    for node in topological([root]):
        position[node.identity] = len(nodes)
        nodes.append(_node_document(node, position))
    return {"format": FORMAT, "nodes": nodes}


def _node_document(node: Node, position: Mapping[str, int]) -> dict[str, object]:
    spelled: dict[str, object] = {"type": type_document(node.type)}
    match node:
        case RawColumn():
            return {"column": node.name, **spelled}
        case Literal():
            # A float is written in hexadecimal, so that NaN, infinities and -0.0 survive JSON.
            return {"literal": scalar_document(node.value), **spelled}
        case Artifact():
            return {"artifact": node.digest, **spelled}
        case Operation():
            params = {name: scalar_document(value) for name, value in node.params}
            args = [position[arg.identity] for arg in node.args]
            return {"op": node.op, "version": node.version, "params": params, "args": args, **spelled}
        case _:
            raise InputError(
                "a node of a component must be a column, literal, artifact or operation", value=type(node).__name__
            )


_KIND = "component"
_LARGEST_VERSION = 2**31 - 1
#: The fields of an entry of each kind; the first one determines the kind.
_ENTRIES = (("column", "type"), ("literal", "type"), ("artifact", "type"), ("op", "version", "params", "args", "type"))


def component_from_document(document: object) -> Node:
    """The component that a document, or a part of one, describes.

    :func:`transforms.execution.plan.compile_plan` checks the operators and their types. Raises
    :class:`~transforms.errors.DataError`, which names the place, for any other document.
    """
    nodes: list[Node] = []
    for entry in component_entries(document):
        nodes.append(node_from(entry, nodes))
    return nodes[-1]


def component_entries(document: object) -> Iterable[Part]:
    """The entries of a component's document, one a node, arguments before their readers; at least one.

    Raises :class:`~transforms.errors.DataError` for anything else.
    """
    whole = document_part(document, _KIND)
    stated = whole.at("format") if whole.has("format") else whole
    if stated.value != FORMAT:
        raise stated.refused(FORMAT if stated is not whole else f"an object of format {FORMAT}")
    return whole.fields(("format", "nodes")).at("nodes").items(least=1)


def node_from(entry: Part, before: Sequence[Node]) -> Node:
    """The node of an entry; ``before``: the nodes of the entries before it. Raises :class:`~transforms.errors.DataError`."""
    fields = next((fields for fields in _ENTRIES if entry.has(fields[0])), _ENTRIES[-1])
    entry.fields(fields)
    column_type = type_from_document(entry.at("type"))
    match fields[0]:
        case "column":
            return RawColumn(column_type, entry.at("column").text(least=1))
        case "literal":
            return Literal(column_type, literal_from(entry.at("literal"), column_type))
        case "artifact":
            return Artifact(column_type, entry.at("artifact").digest())
        case _:
            return _operation_from(entry, column_type, before)


def _operation_from(entry: Part, column_type: ColumnType, before: Sequence[Node]) -> Operation:
    op = entry.at("op").text(least=1)
    operands = tuple(before[place.integer(0, len(before) - 1)] for place in entry.at("args").items())
    params = tuple(sorted((name, param_from(value)) for name, value in entry.at("params").entries()))
    if op in PROGRAMS:
        entry.at("params").made(lambda: program_params(op, dict(params)), f"the parameters of {op}")
    return Operation(column_type, op, entry.at("version").integer(1, _LARGEST_VERSION), operands, params)
