"""Unicode 14.0 as tables for TensorFlow graphs: case, properties, decompositions and compositions.

They are computed at first use, in less than a second, from :mod:`transforms.operators.unicode14` and ``unicodedata`` over
the characters of Unicode 14.0, so they are the same under every Python version.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from transforms.arrays import Array
from transforms.operators import unicode14

OTHER, CASED, IGNORABLE = 0, 1, 2

#: Bits of a code point, so that two of them make one number.
CODE_BITS = 21


@dataclass(frozen=True, slots=True)
class Expansions:
    """Code point ``of[i]`` becomes ``into[begins[i]:begins[i] + sizes[i]]``; those not in ``of``, ascending, stay."""

    of: Array
    begins: Array
    sizes: Array
    into: Array


@dataclass(frozen=True, slots=True)
class Ranges:
    """Code points from ``begins[i]`` to the next one have ``values[i]``."""

    begins: Array
    values: Array


@dataclass(frozen=True, slots=True)
class Compositions:
    """The tables of canonical composition.

    ``pairs``, ascending, are two code points that make one, of ``composites``. ``links``, ascending, are two neighbours
    of which the second, a starter, may be composed to what ends in the first. ``depth`` is the most that are composed to
    one starter.
    """

    pairs: Array
    composites: Array
    links: Array
    depth: int


@cache
def lower_table() -> Expansions:
    """Lower case, but for final sigma."""
    return _expansions(unicode14.lower, (character for character in _characters() if character.lower() != character))


@cache
def upper_table() -> Expansions:
    """Upper case."""
    return _expansions(unicode14.upper, (character for character in _characters() if character.upper() != character))


@cache
def decomposition_table() -> Expansions:
    """Full compatibility decompositions, Hangul included."""
    return _expansions(lambda character: unicodedata.normalize("NFKD", character), _known())


@cache
def case_kinds() -> Ranges:
    """CASED, IGNORABLE or OTHER, as the rule for final sigma has them; what is both counts as ignorable.

    A sigma after a character shows its kind: it is final after a cased one, and after an ignorable one that follows a
    cased one. Spaces separate the probes.
    """
    known = _known().replace(" ", "")
    cased = _sigmas(" ".join(f"{character}Σ" for character in known))
    through = _sigmas(" ".join(f"A{character}Σ" for character in known))
    kinds = np.where(cased, CASED, np.where(through, IGNORABLE, OTHER))
    return _ranges([ord(character) for character in known], kinds.tolist())


@cache
def combining_classes() -> Ranges:
    """Canonical combining classes."""
    codes = [ord(character) for character in _known()]
    return _ranges(codes, [unicodedata.combining(chr(code)) for code in codes])


@cache
def composition_table() -> Compositions:
    """Primary composites, Hangul included."""
    made: dict[int, int] = {}
    links: set[int] = set()
    depth = 0
    for character in _known():
        parts = unicodedata.normalize("NFD", character)
        if len(parts) < 2 or unicodedata.normalize("NFC", character) != character:
            continue
        first = unicodedata.normalize("NFC", parts[:-1])
        made[_pair(first, parts[-1])] = ord(character)
        depth = max(depth, len(parts) - 1)
        if unicodedata.combining(parts[-1]) == 0:
            links.add(_pair(parts[-2], parts[-1]))
    pairs = np.array(sorted(made), np.int64)
    composites = np.array([made[pair] for pair in sorted(made)], np.int32)
    return Compositions(pairs, composites, np.array(sorted(links), np.int64), depth)


def _pair(first: str, second: str) -> int:
    return ord(first) << CODE_BITS | ord(second)


def _characters() -> Iterator[str]:
    return (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


@cache
def _known() -> str:
    return "".join(unicode14.known_pieces("".join(_characters())))


def _expansions(change: Callable[[str], str], characters: Iterable[str]) -> Expansions:
    changed = {ord(character): change(character) for character in characters if change(character) != character}
    sizes = np.array([len(text) for text in changed.values()], np.int32)
    into = np.array([ord(character) for text in changed.values() for character in text], np.int32)
    return Expansions(np.array(list(changed), np.int32), (np.cumsum(sizes) - sizes).astype(np.int32), sizes, into)


def _sigmas(probes: str) -> Array:
    """Whether the last sigma of each probe became a final one."""
    return np.array([probe.endswith("ς") for probe in unicode14.lower(probes).split(" ")])


def _ranges(codes: Iterable[int], values: Iterable[int]) -> Ranges:
    every = np.zeros(sys.maxunicode + 1, np.int32)
    every[list(codes)] = list(values)
    begins = np.flatnonzero(np.diff(every, prepend=-1))
    return Ranges(begins.astype(np.int32), every[begins])
