"""What a joined column of a fragment is computed from, as a digest. Pure.

A fragment's *view* of another table is the set of the fragments whose rows its events may see. Its digest is over what is read of them, their
deleted rows, what is read of the fragment itself, and the definition. Equal views have equal values, whatever files and versions they came in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from transforms.arrays import Array
from transforms.graphs.encoding import digest
from transforms.joins.definition import JoinDefinition
from transforms.joins.visibility import seen_range
from warehouse.models.joined_columns import JoinedRecord
from warehouse.tables.manifests import PlacedFragment

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class TimedFragment:
    """A fragment with the first and the last time of its rows, in microseconds since 1970; None: it has no time."""

    placed: PlacedFragment
    first_micros: int | None
    last_micros: int | None


class Views:
    """The views of fragments of one table of another one.

    Args:
        own_time: the time column of the table.
        others: the fragments of the other one; those without a time are seen by no event.
        other_time: its time column.
    """

    def __init__(self, own_time: str, others: Sequence[TimedFragment], other_time: str) -> None:
        self._own_time, self._other_time = own_time, other_time
        self._others = tuple(one for one in others if one.first_micros is not None)
        self._first = np.array([one.first_micros for one in self._others], np.int64)
        self._last = np.array([one.last_micros for one in self._others], np.int64)
        self._contents: dict[frozenset[str], _Contents] = {}
        self._definitions: dict[str, str] = {}

    def seen(self, definition: JoinDefinition, own: TimedFragment) -> tuple[TimedFragment, ...]:
        """The fragments with rows that events of ``own`` may see."""
        return tuple(self._others[at] for at in np.flatnonzero(self._is_seen(definition, own)))

    def digest(self, record: JoinedRecord, own: TimedFragment) -> str:
        """The digest of the view of a joined column over ``own``."""
        contents = self._content_of(record)
        fragment = own.placed.fragment
        read = sorted({*record.own_columns, self._own_time})
        mine = [fragment.rows, [[name, fragment.digests[name]] for name in read]]
        seen = contents.digest_of(self._is_seen(record.definition, own))
        definition = self._definitions.get(record.column) or self._definitions.setdefault(
            record.column, record.definition.digest
        )
        return digest([definition, record.table, mine, seen])

    def changed(
        self, record: JoinedRecord, own: TimedFragment, before: Views
    ) -> tuple[tuple[TimedFragment, ...], tuple[TimedFragment, ...]]:
        """What events of ``own`` may see here and not in other views, and what only there: fragments of this and of those views."""
        now, then = self._pieces(record, own), before._pieces(record, own)
        return _without(now, then), _without(then, now)

    def _pieces(self, record: JoinedRecord, own: TimedFragment) -> dict[bytes, list[TimedFragment]]:
        digests = self._content_of(record).digests
        found: dict[bytes, list[TimedFragment]] = {}
        for at in np.flatnonzero(self._is_seen(record.definition, own)):
            found.setdefault(digests[at], []).append(self._others[at])
        return found

    def contents(self, record: JoinedRecord, own: TimedFragment) -> dict[bytes, int]:
        """The rows of each content that events of ``own`` may see of what a joined column reads."""
        return {
            content: sum(one.placed.fragment.live_rows for one in pieces)
            for content, pieces in self._pieces(record, own).items()
        }

    def _is_seen(self, definition: JoinDefinition, own: TimedFragment) -> Array:
        low, high = bounds(definition, own)
        if low is None or high is None:
            return np.zeros(len(self._others), bool)
        found: Array = (self._first <= high) & (self._last >= low)
        return found

    def _content_of(self, record: JoinedRecord) -> _Contents:
        read = frozenset({*record.other_columns, self._other_time})
        if read not in self._contents:
            digests = tuple(_content(one, read) for one in self._others)
            self._contents[read] = _Contents(digests, self._first, self._last)
        return self._contents[read]


@dataclass(frozen=True)
class _Contents:
    """What is read of each fragment, as a digest, with the first and the last time of it."""

    digests: tuple[bytes, ...]
    first: Array
    last: Array

    @cached_property
    def _order(self) -> Array:
        """The fragments by time and content: an order that depends on neither files nor versions."""
        order = sorted(range(len(self.digests)), key=lambda at: (self.first[at], self.last[at], self.digests[at]))
        return np.array(order, np.int64)

    @cached_property
    def _ordered(self) -> Array:
        stored = np.frombuffer(b"".join(self.digests), np.uint8).reshape(-1, _DIGEST_BYTES)
        found: Array = stored[self._order]
        return found

    @cached_property
    def _known(self) -> dict[bytes, str]:
        return {}

    def digest_of(self, is_seen: Array) -> str:
        """The digest of a set of fragments."""
        chosen = is_seen[self._order]
        key = np.packbits(chosen).tobytes()
        if key not in self._known:
            self._known[key] = hashlib.sha256(self._ordered[chosen].tobytes()).hexdigest()
        return self._known[key]


def _without(
    pieces: Mapping[bytes, Sequence[TimedFragment]], others: Mapping[bytes, Sequence[TimedFragment]]
) -> tuple[TimedFragment, ...]:
    """The fragments whose content the others do not have, or have less often."""
    return tuple(one for content, listed in pieces.items() for one in listed[len(others.get(content, ())) :])


def bounds(definition: JoinDefinition, own: TimedFragment) -> tuple[int | None, int | None]:
    """The first and the last time, both included, of rows that events of ``own`` may see; None without a time."""
    if own.first_micros is None or own.last_micros is None:
        return None, None
    return seen_range(definition, own.first_micros, own.last_micros)


def _content(one: TimedFragment, read: frozenset[str]) -> bytes:
    fragment = one.placed.fragment
    columns = tuple((name, fragment.digests[name]) for name in sorted(read))
    return _digest(fragment.rows, columns, "" if fragment.deletions is None else fragment.deletions.checksum)


@lru_cache(maxsize=65_536)
def _digest(rows: int, columns: tuple[tuple[str, str], ...], deletions: str) -> bytes:
    return bytes.fromhex(digest([rows, [list(pair) for pair in columns], deletions]))
