"""Mutations of files by seed: flipped bits, inserted, removed, repeated or spliced bytes, and tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Change = Callable[[bytearray, int, Random], None]


def mutated(content: bytes, random: Random, tokens: Sequence[bytes] = (), most: int = 6) -> bytes:
    """``content`` after 1 to ``most`` changes; equal seeds give equal bytes."""
    changed = bytearray(content)
    for _ in range(random.randint(1, most)):
        at = random.randrange(len(changed) + 1)
        if tokens and random.random() < 0.5:
            token = random.choice(tokens)
            changed[at : at + random.choice((0, 0, len(token)))] = token
        else:
            random.choice(_CHANGES)(changed, at, random)
    return bytes(changed)


def _flip(content: bytearray, at: int, random: Random) -> None:
    if at < len(content):
        content[at] ^= 1 << random.randrange(8)


def _overwrite(content: bytearray, at: int, random: Random) -> None:
    if at < len(content):
        content[at] = random.choice((0, 0x7F, 0x80, 0xFF, random.randrange(256)))


def _insert(content: bytearray, at: int, random: Random) -> None:
    content[at:at] = random.randbytes(random.randint(1, 4))


def _remove(content: bytearray, at: int, random: Random) -> None:
    del content[at : at + random.randint(1, 8)]


def _cut(content: bytearray, at: int, random: Random) -> None:
    if random.random() < 0.5:
        del content[at:]


def _splice(content: bytearray, at: int, random: Random) -> None:
    start = random.randrange(len(content) + 1)
    content[at:at] = content[start : start + random.randint(1, 64)]


def _repeat_line(content: bytearray, at: int, random: Random) -> None:
    start = content.rfind(b"\n", 0, at) + 1
    end = content.find(b"\n", at) + 1 or len(content)
    content[end:end] = bytes(content[start:end]) * random.choice((1, 1, 2, 40))


_CHANGES: tuple[Change, ...] = (_flip, _overwrite, _insert, _remove, _cut, _splice, _repeat_line)
