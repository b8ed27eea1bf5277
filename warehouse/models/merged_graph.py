"""The merged graph of a model's inputs, whose nodes matching decides about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from transforms.graphs.graph import Node, Operation, RawColumn, topological
from transforms.joins.column_names import is_joined


@dataclass(frozen=True)
class MergedGraph:
    """The nodes of some components (``roots``), each once; an operation's identity is its subgraph's fingerprint."""

    roots: tuple[Node, ...]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in topological order."""
        return tuple(topological(self.roots))

    @cached_property
    def operations(self) -> Mapping[str, Node]:
        """The nodes that can have memos, by fingerprint: operations that read a column."""
        return {
            node.identity: node for node in self.nodes if isinstance(node, Operation) and self.columns_of[node.identity]
        }

    @cached_property
    def columns_of(self) -> Mapping[str, tuple[str, ...]]:
        """The sorted raw columns of every node, by its identity."""
        found: dict[str, frozenset[str]] = {}
        for node in self.nodes:
            own = frozenset((node.name,)) if isinstance(node, RawColumn) else frozenset[str]()
            found[node.identity] = own.union(*(found[arg.identity] for arg in node.args))
        return {identity: tuple(sorted(names)) for identity, names in found.items()}

    @cached_property
    def joined(self) -> frozenset[str]:
        """The joined columns that are read."""
        return frozenset(node.name for node in self.nodes if isinstance(node, RawColumn) and is_joined(node.name))

    @cached_property
    def components(self) -> Mapping[str, Node]:
        """The roots that can have memos, by fingerprint, in order; raw columns cannot."""
        return {root.identity: root for root in self.roots if root.identity in self.operations}

    def columns(self, fingerprints: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The raw columns that each of these operations reads."""
        return {fingerprint: self.columns_of[fingerprint] for fingerprint in fingerprints}
