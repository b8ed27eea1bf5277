"""The merged graph of a model's inputs: what matching decides about, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from transforms.graphs.graph import Node, Operation, RawColumn, topological


@dataclass(frozen=True)
class MergedGraph:
    """Every node under some components, each once, arguments before what reads them.

    ``roots``: the components. An operation's identity is the fingerprint of the subgraph under it.
    """

    roots: tuple[Node, ...]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in topological order."""
        return tuple(topological(self.roots))

    @cached_property
    def operations(self) -> Mapping[str, Node]:
        """What can be memoized, by fingerprint: the operations that read any column."""
        return {
            node.identity: node for node in self.nodes if isinstance(node, Operation) and self.columns_of[node.identity]
        }

    @cached_property
    def columns_of(self) -> Mapping[str, tuple[str, ...]]:
        """The raw columns under every node, by its identity; sorted names."""
        found: dict[str, frozenset[str]] = {}
        for node in self.nodes:
            own = frozenset((node.name,)) if isinstance(node, RawColumn) else frozenset[str]()
            found[node.identity] = own.union(*(found[arg.identity] for arg in node.args))
        return {identity: tuple(sorted(names)) for identity, names in found.items()}

    @cached_property
    def components(self) -> Mapping[str, Node]:
        """The roots that can be memoized, by fingerprint, in order: raw columns are read as they stand."""
        return {root.identity: root for root in self.roots if root.identity in self.operations}

    def columns(self, fingerprints: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The raw columns that each of these operations reads."""
        return {fingerprint: self.columns_of[fingerprint] for fingerprint in fingerprints}
