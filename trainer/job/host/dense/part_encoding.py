"""How floats of gradients are encoded between hosts: as they are, or rounded to bfloat16. They are added in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from trainer.job.host.dense.all_reduce import floats_of
from trainer.tables.wire import bfloat16
from trainer.tables.wire.settings import DENSE_VALUES
from transforms.arrays import Array
from transforms.errors import DataError


class PartEncoding(Protocol):
    """An encoding of floats."""

    value_bytes: int

    def encode(self, floats: Array) -> Array:
        """What is sent of ``floats``, flat float32; it may be a view of them."""

    def decode(self, sender: int, arrays: Sequence[Array], size: int) -> Array:
        """The ``size`` floats that a host has sent. Raises :class:`DataError` for other arrays."""

    def round(self, floats: Array) -> None:
        """Replace floats by what others decode."""


class PlainFloats:
    """Floats as they are."""

    value_bytes = 4

    def encode(self, floats: Array) -> Array:
        """See :class:`PartEncoding`."""
        return floats

    def decode(self, sender: int, arrays: Sequence[Array], size: int) -> Array:
        """See :class:`PartEncoding`."""
        return floats_of(sender, arrays, size)

    def round(self, floats: Array) -> None:
        """See :class:`PartEncoding`."""


class RoundedFloats:
    """Floats as the nearest bfloat16."""

    value_bytes = 2

    def encode(self, floats: Array) -> Array:
        """See :class:`PartEncoding`."""
        return bfloat16.encode(floats)

    def decode(self, sender: int, arrays: Sequence[Array], size: int) -> Array:
        """See :class:`PartEncoding`."""
        wanted = (bfloat16.encoded_bytes(size),)
        if len(arrays) != 1 or arrays[0].dtype != np.uint8 or arrays[0].shape != wanted:
            raise DataError("a message of gradients must have the rounded floats of its bucket", where=f"host of rank {sender}",
                            value=[f"{one.dtype} {one.shape}" for one in arrays[:4]], allowed=f"uint8 {wanted}")  # fmt: skip
        found = np.empty(size, np.float32)
        bfloat16.decode(arrays[0], found)
        return found

    def round(self, floats: Array) -> None:
        """See :class:`PartEncoding`."""
        bfloat16.decode(bfloat16.encode(floats), floats)


PLAIN: Final = PlainFloats()
_ENCODINGS: Final[dict[str, PartEncoding]] = dict(zip(DENSE_VALUES, (PLAIN, RoundedFloats()), strict=True))


def encoding_of(values: str) -> PartEncoding:
    """The encoding of a name of :data:`~trainer.tables.wire.settings.DENSE_VALUES`."""
    return _ENCODINGS[values]
