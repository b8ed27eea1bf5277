"""The subgraphs of a component: each operation in it is a component with its own fingerprint."""

from __future__ import annotations

from transforms.graphs.graph import Node, Operation, topological


def subgraphs(root: Node) -> tuple[Operation, ...]:
    """The operations of a canonical component, each once, arguments before their readers; the last is the root.

    The identity of each is the fingerprint of the component under it, since the arguments of a canonical operation are
    canonical. In a component that is not canonical the identities are only those of its nodes. A column, literal or
    artifact has no operations.
    """
    return tuple(node for node in topological([root]) if isinstance(node, Operation))
