"""Ids from values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from transforms.expressions.methods.base import Methods


class IdMethods(Methods):
    """Ids for embedding tables."""

    __slots__ = ()

    def hash_buckets(self, buckets: int, salt: str = "") -> Self:
        """FarmHash Fingerprint64 modulo ``buckets``, as ``tf.strings.to_hash_bucket_fast`` computes it."""
        return self._apply("hash_buckets", buckets=buckets, salt=salt)

    def modulo(self, n: int) -> Self:
        """Whole numbers modulo ``n``, as ids in [0, n)."""
        return self._apply("modulo", n=n)

    def lookup(self, table: Mapping[str, object] | Mapping[int, object], default: float | str | None = None) -> Self:
        """The value of a dictionary for each key; ``default``, or null, for an unknown key."""
        from transforms.expressions.methods.dictionaries import lookup_params

        return self._apply("lookup", **lookup_params(self.type, table, default))
