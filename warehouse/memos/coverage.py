"""Coverage: the ready memos over a table as column sets, one row per file and content instead of one per memo.

Workers write the memos of a fragment together, so a year of hours of 500 inputs, four million memos, is some thousand files
over a few column sets. A *layout* maps components to a fragment's files, for all fragments with equal sets; memory is that of
the files. The transactions that make memos ready or evict them write the rows, so coverage is always consistent with
``memos``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from transforms.graphs.encoding import digest
from warehouse.catalog import schema
from warehouse.catalog.bulk import insert_rows
from warehouse.catalog.catalog import chunks, insert_absent, one_of, rows_of
from warehouse.files.column_files import MemoRef, NewFile
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import content_of


@dataclass(frozen=True)
class SlotLayout:
    """The ready components of fragments with equal column sets, each with the position of its file."""

    slots: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CoveredFragment:
    """The ready memos over one fragment: the number of its layout, and the files of the layout's slots."""

    layout: int
    files: tuple[MemoRef, ...]


@dataclass(frozen=True)
class Coverage:
    """The ready memos of some components over some fragments, in the fragments' order."""

    layouts: tuple[SlotLayout, ...]
    fragments: tuple[CoveredFragment, ...]

    def part(self, first: int, last: int) -> Coverage:
        """The coverage of the fragments at positions ``[first, last)``."""
        return Coverage(self.layouts, self.fragments[first:last])

    @property
    def fragments_by_layout(self) -> tuple[int, ...]:
        """The number of fragments with each layout."""
        counted = Counter(covered.layout for covered in self.fragments)
        return tuple(counted[number] for number in range(len(self.layouts)))

    def slots(self, position: int) -> Mapping[str, int]:
        """The ready components of the fragment at ``position``, each with the position of its file."""
        return self.layouts[self.fragments[position].layout].slots


_NO_COLUMNS: frozenset[str] = frozenset()
#: For at most this many contents the query has them as a condition.
_FEW_CONTENTS = 500


@dataclass(frozen=True, slots=True)
class _Files:
    """The files with memos of one content, those with the most requested components first, each with its column set."""

    column_sets: tuple[int, ...] = ()
    refs: tuple[MemoRef, ...] = ()


_NO_FILES = _Files()


def find_coverage(
    connection: Connection, components: Mapping[str, Sequence[str]], fragments: Sequence[PlacedFragment]
) -> Coverage:
    """The ready memos of ``components`` (fingerprint to the columns it reads) over ``fragments``.

    If several files hold a component, the one with the most requested components is used.
    """
    members = _sets_of(connection, components)
    grouped = _Grouped(components)
    places = [grouped.contents(placed) for placed in fragments]
    files = _files_of(connection, members, {content for place in places for content, _ in place})
    numbers: dict[tuple[tuple[int, tuple[int, ...]], ...], int] = {}
    layouts: list[tuple[SlotLayout, tuple[tuple[int, int], ...]]] = []
    covered = []
    for place in places:
        here = [(group, files.get(content, _NO_FILES)) for content, group in place]
        signature = tuple([(group, held.column_sets) for group, held in here])
        number = numbers.get(signature)
        if number is None:
            number = numbers[signature] = len(layouts)
            layouts.append(_slot_layout(signature, grouped.groups, members))
        by_group = dict(here)
        refs = tuple([by_group[group].refs[at] for group, at in layouts[number][1]])
        covered.append(CoveredFragment(number, refs))
    return Coverage(tuple(layout for layout, _ in layouts), tuple(covered))


class _Grouped:
    """Components grouped by the overlays that they read; usually there are none, and one group."""

    def __init__(self, components: Mapping[str, Sequence[str]]) -> None:
        self._components = components
        self.groups: list[tuple[str, ...]] = []
        self._known: dict[frozenset[str], tuple[tuple[int, frozenset[str]], ...]] = {}

    def contents(self, placed: PlacedFragment) -> list[tuple[str, int]]:
        """The distinct contents of a fragment for the groups, each with its group's number."""
        overlays = placed.fragment.overlays
        overlaid = frozenset(overlay.column for overlay in overlays) if overlays else _NO_COLUMNS
        if overlaid not in self._known:
            self._known[overlaid] = self._split(overlaid)
        return [(content_of(placed.fragment, seen), group) for group, seen in self._known[overlaid]]

    def _split(self, overlaid: frozenset[str]) -> tuple[tuple[int, frozenset[str]], ...]:
        by_seen: defaultdict[frozenset[str], list[str]] = defaultdict(list)
        for fingerprint, columns in self._components.items():
            by_seen[overlaid.intersection(columns)].append(fingerprint)
        split = []
        for seen, fingerprints in sorted(by_seen.items(), key=lambda item: sorted(item[0])):
            split.append((len(self.groups), seen))
            self.groups.append(tuple(fingerprints))
        return tuple(split)


def _sets_of(connection: Connection, fingerprints: Iterable[str]) -> dict[int, frozenset[str]]:
    """The column sets with any of these components, each with those components."""
    of = schema.set_members.c
    found: defaultdict[int, set[str]] = defaultdict(set)
    for chunk in chunks(sorted(fingerprints)):
        for number, fingerprint in connection.execute(
            select(of.column_set, of.fingerprint).where(one_of(connection, of.fingerprint, chunk))
        ):
            found[number].add(fingerprint)
    return {number: frozenset(held) for number, held in found.items()}


def _files_of(
    connection: Connection, members: Mapping[int, Collection[str]], contents: Collection[str]
) -> dict[str, _Files]:
    """The files of these sets by content, those with the most requested components first."""
    of, files = schema.coverage.c, schema.memo_files.c
    query = select(of.content, of.column_set, files.path, files.checksum).join(schema.memo_files, files.id == of.file)
    few = len(contents) <= _FEW_CONTENTS
    held: defaultdict[str, list[tuple[int, MemoRef]]] = defaultdict(list)
    for chunk in chunks(sorted(members)):
        narrowed = query.where(one_of(connection, of.column_set, chunk))
        if few:
            narrowed = narrowed.where(one_of(connection, of.content, sorted(contents)))
        for content, number, path, checksum in rows_of(connection, narrowed):
            if few or content in contents:
                held[content].append((number, MemoRef(path, checksum)))
    for listed in held.values():
        if len(listed) > 1:
            listed.sort(key=lambda file: (-len(members[file[0]]), file[0], file[1].path))
    return {content: _Files(*zip(*listed, strict=True)) for content, listed in held.items()}


def _slot_layout(
    signature: tuple[tuple[int, tuple[int, ...]], ...],
    groups: Sequence[Sequence[str]],
    members: Mapping[int, Collection[str]],
) -> tuple[SlotLayout, tuple[tuple[int, int], ...]]:
    """The layout, and for each of its slots the group and the position among that group's files."""
    slots: dict[str, int] = {}
    used: list[tuple[int, int]] = []
    for group, sets in signature:
        missing = set(groups[group])
        for at, number in enumerate(sets):
            here = missing.intersection(members[number])
            if here:
                slots.update(dict.fromkeys(sorted(here), len(used)))
                used.append((group, at))
                missing -= here
    return SlotLayout(slots), tuple(used)


def enter_files(connection: Connection, files: Collection[NewFile], now: float) -> dict[str, int]:
    """The ids of files in ``memo_files`` by path; new rows have no live bytes until :func:`count_live_bytes`."""
    of = schema.memo_files.c
    insert_absent(connection, schema.memo_files, (
        {"path": file.path, "checksum": file.checksum, "rows": file.rows, "size_bytes": file.size_bytes,
         "live_bytes": 0, "written_at": now}
        for file in files
    ))  # fmt: skip
    ids: dict[str, int] = {}
    for chunk in chunks(sorted({file.path for file in files})):
        ids.update(
            tuple(row) for row in connection.execute(select(of.path, of.id).where(one_of(connection, of.path, chunk)))
        )
    return ids


def add_coverage(connection: Connection, ready: Mapping[tuple[int, str], Collection[str]]) -> None:
    """Add components to the coverage of files and contents."""
    of = schema.coverage.c
    before = {(row.file, row.content): row.column_set for row in _rows_of(connection, {file for file, _ in ready})}
    held = members_of(connection, {before[place] for place in ready if place in before})
    after = {
        place: frozenset(fingerprints) | (held[before[place]] if place in before else frozenset())
        for place, fingerprints in ready.items()
    }
    sets = get_or_create_column_sets(connection, set(after.values()))
    new = []
    for (file, content), fingerprints in after.items():
        if (file, content) not in before:
            new.append({"file": file, "content": content, "column_set": sets[fingerprints]})
        elif before[file, content] != sets[fingerprints]:
            place = (of.file == file, of.content == content)
            connection.execute(update(schema.coverage).where(*place).values(column_set=sets[fingerprints]))
    insert_rows(connection, schema.coverage, new)


def keep_removed(connection: Connection, gone: Mapping[int, Collection[str]], eviction: int) -> None:
    """Note what :func:`remove_coverage` is about to remove, so that the eviction of this row can be undone."""
    places = _rows_of(connection, gone)
    held = members_of(connection, {place.column_set for place in places})
    removed = {(place.file, place.content): held[place.column_set] & frozenset(gone[place.file]) for place in places}
    sets = get_or_create_column_sets(connection, {fingerprints for fingerprints in removed.values() if fingerprints})
    insert_absent(connection, schema.evicted_coverage, (
        {"eviction": eviction, "file": file, "content": content, "column_set": sets[fingerprints]}
        for (file, content), fingerprints in removed.items() if fingerprints
    ))  # fmt: skip


def removed_coverage(connection: Connection, eviction: int) -> dict[tuple[int, str], frozenset[str]]:
    """What :func:`keep_removed` noted, by file and content, of files that still have a row."""
    of = schema.evicted_coverage.c
    places = connection.execute(select(of.file, of.content, of.column_set).where(of.eviction == eviction)).all()
    held = members_of(connection, {place.column_set for place in places})
    found: defaultdict[tuple[int, str], frozenset[str]] = defaultdict(frozenset)
    for place in places:
        found[place.file, place.content] |= held[place.column_set]
    return dict(found)


def remove_coverage(connection: Connection, gone: Mapping[int, Collection[str]], now: float) -> tuple[int, ...]:
    """Remove components, whose memos must no longer be READY, from the coverage of files.

    Returns the ids of files that become unreferenced.
    """
    of = schema.coverage.c
    changes: defaultdict[tuple[int, frozenset[str]], set[int]] = defaultdict(set)
    for row in _rows_of(connection, gone):
        changes[row.column_set, frozenset(gone[row.file])].add(row.file)
    held = members_of(connection, {column_set for column_set, _ in changes})
    left = {change: held[change[0]] - change[1] for change in changes}
    sets = get_or_create_column_sets(connection, {fingerprints for fingerprints in left.values() if fingerprints})
    for change, files in changes.items():
        for chunk in chunks(sorted(files)):
            rows = (of.column_set == change[0], one_of(connection, of.file, chunk))
            if left[change]:
                values = {"column_set": sets[left[change]]}
                connection.execute(update(schema.coverage).where(*rows).values(**values))
            else:
                connection.execute(delete(schema.coverage).where(*rows))
    return count_live_bytes(connection, gone, now)


def count_live_bytes(connection: Connection, files: Collection[int], now: float) -> tuple[int, ...]:
    """Count the bytes of ready memos in these files, and mark files without any as unreferenced; returns the latter.

    An unreferenced file becomes referenced again if further memos in it are committed under the same lease.
    """
    of, memos = schema.memo_files.c, schema.memos.c
    taken = (
        select(func.coalesce(func.sum(memos.size_bytes), 0))
        .where(memos.file == of.id, memos.state == MemoState.READY)
        .scalar_subquery()
    )
    named = exists().where(memos.file == of.id, memos.state == MemoState.READY)
    condemned: list[int] = []
    for chunk in chunks(sorted(files)):
        connection.execute(update(schema.memo_files).where(one_of(connection, of.id, chunk)).values(live_bytes=taken))
        taken_back = (one_of(connection, of.id, chunk), of.condemned_at.is_not(None), named)
        connection.execute(update(schema.memo_files).where(*taken_back).values(condemned_at=None))
        unnamed = (one_of(connection, of.id, chunk), of.condemned_at.is_(None), ~named)
        condemned += connection.execute(select(of.id).where(*unnamed)).scalars()
        connection.execute(update(schema.memo_files).where(*unnamed).values(condemned_at=now))
    return tuple(condemned)


def _rows_of(connection: Connection, files: Collection[int]) -> list[Any]:
    of = schema.coverage.c
    rows: list[Any] = []
    for chunk in chunks(sorted(files)):
        rows += connection.execute(
            select(of.file, of.content, of.column_set).where(one_of(connection, of.file, chunk))
        ).all()
    return rows


def members_of(connection: Connection, sets: Collection[int]) -> dict[int, frozenset[str]]:
    """The components of these column sets."""
    of = schema.set_members.c
    found: dict[int, set[str]] = {number: set() for number in sets}
    for chunk in chunks(sorted(sets)):
        for number, fingerprint in connection.execute(
            select(of.column_set, of.fingerprint).where(one_of(connection, of.column_set, chunk))
        ):
            found[number].add(fingerprint)
    return {number: frozenset(held) for number, held in found.items()}


def get_or_create_column_sets(connection: Connection, sets: Collection[frozenset[str]]) -> dict[frozenset[str], int]:
    """The ids of these sets of fingerprints in ``column_sets``; missing rows are inserted."""
    of = schema.column_sets.c
    by_digest = {digest(sorted(held)): held for held in sets}
    known: dict[str, int] = {}
    for chunk in chunks(sorted(by_digest)):
        known.update(
            tuple(row)
            for row in connection.execute(select(of.digest, of.id).where(one_of(connection, of.digest, chunk)))
        )
    for identity in sorted(by_digest.keys() - known.keys()):
        number = connection.execute(insert(schema.column_sets).values(digest=identity).returning(of.id)).scalar_one()
        known[identity] = number
        insert_rows(
            connection,
            schema.set_members,
            [{"column_set": number, "fingerprint": fingerprint} for fingerprint in sorted(by_digest[identity])],
        )
    return {held: known[identity] for identity, held in by_digest.items()}
