"""What hosts tell each other of their events: whole numbers to all of them, and arrays of any length and type to each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array

#: The longest part of an array in a message; messages have a limit.
MOST_PART_BYTES: Final = 1 << 27


def gather_numbers(exchange: Exchange, numbers: Sequence[int] | Array) -> Array:
    """The numbers of all hosts, int64 [hosts, numbers]; each host gives equally many."""
    own = np.asarray(numbers, np.int64)
    return np.stack([np.asarray(one) for (one,) in exchange.all_to_all([[own]] * exchange.hosts)])


def gather_bytes(exchange: Exchange, content: bytes, *, to: int | None = None) -> list[bytes]:
    """The contents of all hosts by rank, on the host of rank ``to``; None: on all. Empty ones on other hosts."""
    own, none = np.frombuffer(content, np.uint8), np.zeros(0, np.uint8)
    parts = [[own if to in (None, r) else none] for r in range(exchange.hosts)]
    return [one.tobytes() for one in shuffled(exchange, parts)[0]]


def shuffled(
    exchange: Exchange, parts: Sequence[Sequence[Array]], *, most_bytes: int = MOST_PART_BYTES
) -> list[list[Array]]:
    """For each place in ``parts[r]``, flat arrays for the host of rank r, what each host has sent to this one there, by rank.

    All hosts give equally many arrays, of one type at each place. An array travels in as many messages as it needs.
    """
    width = len(parts[0])
    messages = [max(-(-part[k].nbytes // most_bytes) for part in parts) for k in range(width)]
    rounds = gather_numbers(exchange, messages).max(axis=0).tolist()
    found: list[list[Array]] = []
    for k in range(width):
        sent = [np.ascontiguousarray(part[k]).view(np.uint8) for part in parts]
        received: list[list[Array]] = [[] for _ in range(exchange.hosts)]
        for step in range(rounds[k]):
            place = slice(step * most_bytes, (step + 1) * most_bytes)
            for arrays, (one,) in zip(received, exchange.all_to_all([[own[place]] for own in sent]), strict=True):
                arrays.append(one)
        none = np.zeros(0, np.uint8)
        found.append([np.concatenate([none, *arrays]).view(parts[0][k].dtype) for arrays in received])
    return found
