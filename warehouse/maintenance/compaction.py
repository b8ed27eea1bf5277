"""Which memo files to rewrite: a pure decision."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from transforms.errors import InputError


@dataclass(frozen=True)
class FileShare:
    """A memo file and how much of it is live. Files of one ``group`` (a fragment's content) may become one file.

    ``components``: those of which it holds ready memos.
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
        """What rewriting it frees."""
        return self.size_bytes - self.live_bytes


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """A file is *sparse* when less than ``threshold`` of it is live and rewriting frees ``least_gain_bytes``.

    Files up to ``small_bytes`` are *small*; ``many_files`` of them over one fragment are merged. A new file gets up to
    ``most_bytes`` of live columns, more only if one old file has more.
    """

    threshold: float = 0.5
    least_gain_bytes: int = 4096
    small_bytes: int = 1 << 20
    many_files: int = 8
    most_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        if not (math.isfinite(self.threshold) and 0 <= self.threshold <= 1):
            raise InputError("a share is between 0 and 1", where="compaction threshold", value=self.threshold,
                             allowed="0 (only merge small files) to 1 (rewrite whatever has a dead column)")  # fmt: skip
        for name, least in (("least_gain_bytes", 1), ("small_bytes", 0), ("many_files", 2), ("most_bytes", 1)):
            if getattr(self, name) < least:
                raise InputError("a setting is out of range", where=f"CompactionPolicy.{name}", value=getattr(self, name),
                                 allowed=f"an integer >= {least}")  # fmt: skip

    def is_sparse(self, file: FileShare) -> bool:
        """Whether it is worth rewriting by itself."""
        return file.live_bytes < self.threshold * file.size_bytes and file.dead_bytes >= self.least_gain_bytes

    def is_small(self, file: FileShare) -> bool:
        """Whether it is one that may be merged with others."""
        return file.size_bytes <= self.small_bytes


@dataclass(frozen=True)
class Rewrite:
    """Files whose live columns become one new file."""

    files: tuple[FileShare, ...]

    @property
    def dead_bytes(self) -> int:
        """What it frees."""
        return sum(file.dead_bytes for file in self.files)

    @property
    def live_bytes(self) -> int:
        """What is copied, about."""
        return sum(file.live_bytes for file in self.files)


def choose_rewrites(files: Iterable[FileShare], policy: CompactionPolicy) -> tuple[Rewrite, ...]:
    """What to rewrite: sparse files, and small ones where there are many; files of a group are put together.

    Every file is in one rewrite at most; within one, all have equal rows and no component is in two of them. Each
    rewrite frees bytes or makes one file of several, so that repeating the choice comes to an end.
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
    """Each file into the first pack that has room for it and lacks its components."""
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
