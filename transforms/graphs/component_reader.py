"""Read many components of which most share nodes, as a search of a catalog does."""

from __future__ import annotations

from collections.abc import Sequence

from transforms.graphs.graph import Node, component_entries, node_from

#: The most nodes that a reader keeps; then it forgets all of them.
KEPT_NODES = 100_000


class ComponentReader:
    """Reads documents of components. An entry of a document that equals one read before, over the same arguments, is not read again.

    Equal documents give the nodes of :func:`~transforms.graphs.graph.component_from_document`, and the same errors.
    """

    def __init__(self, kept_nodes: int = KEPT_NODES) -> None:
        self._kept_nodes = kept_nodes
        self._known: dict[tuple[str, tuple[str, ...]], Node] = {}

    def read(self, document: object) -> Node:
        """The component of a document. Raises :class:`~transforms.errors.DataError`, as the plain function does."""
        if len(self._known) > self._kept_nodes:
            self._known.clear()
        nodes: list[Node] = []
        for entry in component_entries(document):
            key = _key(entry.value, nodes)
            node = None if key is None else self._known.get(key)
            if node is None:
                node = node_from(entry, nodes)
                if key is not None:
                    self._known[key] = node
            nodes.append(node)
        return nodes[-1]


def _key(entry: object, before: Sequence[Node]) -> tuple[str, tuple[str, ...]] | None:
    """What an entry is read from: its text, with the identities of its arguments in place of their positions; None if it is not that simple.

    A text tells ``1``, ``1.0`` and ``True`` apart, which are equal as values.
    """
    if type(entry) is not dict:
        return None
    args = entry.get("args")
    identities: tuple[str, ...] = ()
    if args is None:
        own = entry
    elif type(args) is list and all(type(one) is int and 0 <= one < len(before) for one in args):
        own = {name: value for name, value in entry.items() if name != "args"}
        identities = tuple(before[one].identity for one in args)
    else:
        return None
    try:
        return repr(own), identities
    except RecursionError:
        return None
