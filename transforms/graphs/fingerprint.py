"""The fingerprint of a component: equal if and only if the canonical forms are equal, on every machine."""

from __future__ import annotations

from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Node


def fingerprint(root: Node) -> str:
    """SHA-256 of the canonical component, 64 hexadecimal digits.

    It covers operator names and versions, parameters, types, raw column names and structure, but not names given by users
    and not the order of the arguments of commutative operators. Google's shared input generation calls it the signature of
    a connected component (section on matching). :mod:`transforms.graphs.encoding` has the byte rules.
    """
    return canonicalize(root).identity
