"""What an expression over weighted lists offers."""

from __future__ import annotations

from transforms.methods.base import Methods


class WeightedMethods(Methods):
    """Lists of ids with weights."""

    __slots__ = ()
