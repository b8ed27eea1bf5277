"""Turning values into ids."""

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
        """The value that a dictionary has for each; ``default``, or null, where it has none. Its keys are of this type."""
        from transforms.expressions.methods.dictionaries import lookup_params

        return self._apply("lookup", **lookup_params(self.type, table, default))
