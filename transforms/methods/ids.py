"""Turning values into ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.methods.base import Methods

if TYPE_CHECKING:
    from transforms.expression import Expr


class IdMethods(Methods):
    """Ids for embedding tables."""

    __slots__ = ()

    def hash_buckets(self, buckets: int, salt: str = "") -> Expr:
        """FarmHash Fingerprint64 modulo ``buckets``, as ``tf.strings.to_hash_bucket_fast`` computes it."""
        return self._apply("hash_buckets", buckets=buckets, salt=salt)
