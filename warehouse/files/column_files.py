"""Descriptions of written files and of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transforms.derived_documents import Digest, InsidePath


@dataclass(frozen=True, slots=True)
class ColumnBytes:
    """One column of a file.

    Attributes:
        checksum: of the stored bytes of a memo, or of the logical values of an overlay.
        rows: its length.
        size_bytes: its part of the file's bytes, in proportion to the columns' bytes; shared bytes count in part.
    """

    checksum: str
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class MemoFile:
    """A written file and its columns; ``checksum`` verifies any of them."""

    path: str
    size_bytes: int
    checksum: str
    columns: Mapping[str, ColumnBytes]


@dataclass(frozen=True, slots=True)
class NewFile:
    """A memo file for the catalog: ``rows`` of its fragment, and the ``checksum`` that verifies any of its columns."""

    path: InsidePath
    checksum: Digest
    rows: int
    size_bytes: int


def size_shares(size_bytes: int, parts: Sequence[int]) -> list[int]:
    """``size_bytes`` split in proportion to ``parts``, each >= 1; the first also gets the remainder."""
    whole = sum(parts)
    shares = [size_bytes * part // whole for part in parts]
    shares[0] += size_bytes - sum(shares)
    return shares


@dataclass(frozen=True, slots=True)
class MemoRef:
    """A memo file: its path relative to the home, and the digest of its columns' checksums."""

    path: InsidePath
    checksum: Digest
