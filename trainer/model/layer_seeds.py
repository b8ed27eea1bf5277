"""The seeds of a network's layers, which depend on the run's seed and on the place of a layer alone."""

from __future__ import annotations

import hashlib


class LayerSeeds:
    """The n-th layer that is made of a network, or of one part ``of`` it, has the n-th seed."""

    def __init__(self, seed: int, of: str = "") -> None:
        self._seed, self._part = seed, of.encode()
        self._made = 0

    def next(self) -> int:
        """31 bits of the next layer."""
        self._made += 1
        text = b"headrace layer/1 %d %d" % (self._seed, self._made)
        digest = hashlib.sha256(text + b" " + self._part if self._part else text).digest()
        return int.from_bytes(digest[:4], "little") >> 1


def embedding_drop_seed(seed: int) -> int:
    """The seed of the dropout of embeddings of a run with this seed."""
    return int.from_bytes(hashlib.sha256(b"headrace embedding dropout/1 %d" % seed).digest()[:4], "little") >> 1
