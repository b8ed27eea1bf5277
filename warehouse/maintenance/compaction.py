"""Select the memo files to rewrite. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from transforms.errors import InputError


@dataclass(frozen=True)
class FileShare:
    """A memo file with its live bytes.

    Files of one ``group`` (a fragment's content) can be merged. ``components``: those with ready memos in it.
    """

    file: int
    path: str
    group: str
    rows: int
    size_bytes: int
    live_bytes: int
    components: frozenset[str]

    @property
    def dead_bytes(self) -> int:
        """Bytes that rewriting it frees."""
        return self.size_bytes - self.live_bytes


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """The limits of compaction.

    Attributes:
        threshold: A file is *sparse* if a smaller share of it is live.
        least_gain_bytes: A rewrite of a sparse file frees at least this.
        small_bytes: Files up to this size are *small*.
        many_files: This number of small files over one fragment is merged.
        most_bytes: Live bytes of a new file; more only if one old file has more.
    """

    threshold: float = 0.5
    least_gain_bytes: int = 4096
    small_bytes: int = 1 << 20
    many_files: int = 8
    most_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        if not (math.isfinite(self.threshold) and 0 <= self.threshold <= 1):
            raise InputError("threshold must be a share in [0, 1]", where="compaction threshold", value=self.threshold,
                             allowed="0 (only merge small files) to 1 (rewrite whatever has a dead column)")  # fmt: skip
        for name, least in (("least_gain_bytes", 1), ("small_bytes", 0), ("many_files", 2), ("most_bytes", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be >= {least}", where=f"CompactionPolicy.{name}", value=getattr(self, name),
                                 allowed=f"an integer >= {least}")  # fmt: skip

    def is_sparse(self, file: FileShare) -> bool:
        """Whether it is rewritten by itself."""
        return file.live_bytes < self.threshold * file.size_bytes and file.dead_bytes >= self.least_gain_bytes

    def is_small(self, file: FileShare) -> bool:
        """Whether it may be merged with others."""
        return file.size_bytes <= self.small_bytes


@dataclass(frozen=True)
class Rewrite:
    """Files whose live columns become one new file."""

    files: tuple[FileShare, ...]

    @property
    def dead_bytes(self) -> int:
        """Bytes that it frees."""
        return sum(file.dead_bytes for file in self.files)

    @property
    def live_bytes(self) -> int:
        """Bytes that it copies, about."""
        return sum(file.live_bytes for file in self.files)


def choose_rewrites(files: Iterable[FileShare], policy: CompactionPolicy) -> tuple[Rewrite, ...]:
    """The rewrites: sparse files, and small ones if there are many, merged by group.

    Every file is in at most one rewrite; its files have equal rows and disjoint components. Each
    rewrite frees bytes or merges files, so that repeated compaction ends.
    """
    groups: defaultdict[tuple[str, int], list[FileShare]] = defaultdict(list)
    for file in files:
        groups[file.group, file.rows].append(file)
    rewrites = []
    for _, members in sorted(groups.items()):
        small = [file for file in members if policy.is_small(file)]
        merged = {file.file for file in small} if len(small) >= policy.many_files else set()
        chosen = [file for file in members if file.file in merged or policy.is_sparse(file)]
        for pack in _packs(sorted(chosen, key=lambda file: file.file), policy):
            if len(pack) > 1 or policy.is_sparse(pack[0]):
                rewrites.append(Rewrite(tuple(pack)))
    return tuple(rewrites)


def _packs(files: list[FileShare], policy: CompactionPolicy) -> list[list[FileShare]]:
    """Add each file to the first pack with enough space and without its components."""
    packs: list[list[FileShare]] = []
    held: list[set[str]] = []
    sizes: list[int] = []
    for file in files:
        for at, pack in enumerate(packs):
            if sizes[at] + file.live_bytes <= policy.most_bytes and held[at].isdisjoint(file.components):
                pack.append(file)
                held[at] |= file.components
                sizes[at] += file.live_bytes
                break
        else:
            packs.append([file])
            held.append(set(file.components))
            sizes.append(file.live_bytes)
    return packs
