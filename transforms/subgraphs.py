"""The subgraphs of a component: what several components may have in common."""

from __future__ import annotations

from transforms.graph import Node, Operation, topological


def subgraphs(root: Node) -> tuple[Node, ...]:
    """The operations of a component, arguments before what reads them, the root (if it is one) last; each once.

    The ``identity`` of a node of a canonical component is the fingerprint of the subgraph under it.
    """
    return tuple(node for node in topological([root]) if isinstance(node, Operation))
