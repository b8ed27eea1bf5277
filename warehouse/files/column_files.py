"""Files of columns: what is known of one that is in place, and of each of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnBytes:
    """One column of a file. ``checksum`` vouches for it: of a memo its stored bytes, of a change its logical values.

    ``size_bytes`` is its share of the file: the whole, split in proportion to the columns' bytes; shared ones count in part.
    """

    checksum: str
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class MemoFile:
    """A file that is in place. ``checksum`` vouches for any of its columns."""

    path: str
    size_bytes: int
    checksum: str
    columns: Mapping[str, ColumnBytes]


@dataclass(frozen=True, slots=True)
class NewFile:
    """What the catalog keeps of a memo file: ``rows`` of its fragment, ``checksum`` that vouches for any of its columns."""

    path: str
    checksum: str
    rows: int
    size_bytes: int


def size_shares(size_bytes: int, parts: Sequence[int]) -> list[int]:
    """``size_bytes`` split in proportion to the parts, which are at least 1; the first has what is left."""
    whole = sum(parts)
    shares = [size_bytes * part // whole for part in parts]
    shares[0] += size_bytes - sum(shares)
    return shares


@dataclass(frozen=True, slots=True)
class MemoRef:
    """A memo file: its path relative to the home, and the digest of its columns' checksums."""

    path: str
    checksum: str
