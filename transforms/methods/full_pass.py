"""Operators that must first see all events of some partitions."""

from __future__ import annotations

from transforms.methods.base import Methods


class FullPassMethods(Methods):
    """Full-pass operators."""

    __slots__ = ()
