"""The parts of a component: every operation in it is a component by itself, with a fingerprint of its own."""

from __future__ import annotations

from transforms.graphs.graph import Node, Operation, topological


def subgraphs(root: Node) -> tuple[Operation, ...]:
    """The operations of a canonical component, each once, arguments before what reads them; the last is the root.

    The identity of each is the fingerprint of the component under it, since the arguments of a canonical operation are
    canonical: the rules work from the leaves up, and what they leave, no rule applies to. Of a component that is not
    canonical the identities are those of its nodes as they stand. A column, literal or artifact has no operations.
    """
    return tuple(node for node in topological([root]) if isinstance(node, Operation))
