"""Verify the catalog's rows of memo files: coverage, counts, rows and identities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy import Connection, delete, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.maintenance.findings import (
    REPAIR,
    BadFile,
    BadFragment,
    BadMemo,
    Finding,
    FindingKind,
    Problem,
)
from warehouse.memos.coverage import add_coverage, count_live_bytes, members_of
from warehouse.memos.memos import evict_memos
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import all_tables, fragments_by_row
from warehouse.tables.table import Fragment, content_of, memo_key
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class CatalogMemo:
    """A ready memo in the catalog: its key, component, fragment and column."""

    key: str
    fingerprint: str
    file: int
    rows: int | None
    size_bytes: int | None
    fragment: Fragment
    columns: tuple[str, ...]

    @property
    def content(self) -> str:
        """The content of its fragment."""
        return content_of(self.fragment, self.columns)

    def is_of(self, fragment: Fragment) -> bool:
        """Whether it is the memo of its component over this fragment."""
        try:
            return memo_key(self.fingerprint, fragment.digests, self.columns) == self.key
        except KeyError:
            return False


@dataclass(frozen=True)
class CatalogFile:
    """A memo file in the catalog, with its ready memos and its coverage (content to components)."""

    id: int
    path: str
    checksum: str
    rows: int
    size_bytes: int
    live_bytes: int
    is_unreferenced: bool
    memos: tuple[CatalogMemo, ...] = ()
    coverage: Mapping[str, frozenset[str]] = field(default_factory=dict)


def list_files(connection: Connection) -> tuple[list[int], list[int]]:
    """The ids of all memo files, and of those that are referenced."""
    of = schema.memo_files.c
    rows = connection.execute(select(of.id, of.condemned_at).order_by(of.id)).all()
    return [row.id for row in rows], [row.id for row in rows if row.condemned_at is None]


def load_files(connection: Connection, ids: Sequence[int]) -> list[CatalogFile]:
    """Some memo files in the catalog, without those that were deleted meanwhile."""
    of, covered = schema.memo_files.c, schema.coverage.c
    memos: defaultdict[int, list[CatalogMemo]] = defaultdict(list)
    for memo in _memos_in(connection, ids):
        memos[memo.file].append(memo)
    places = connection.execute(select(schema.coverage).where(covered.file.in_(ids))).all()
    members = members_of(connection, {place.column_set for place in places})
    coverage: defaultdict[int, dict[str, frozenset[str]]] = defaultdict(dict)
    for place in places:
        coverage[place.file][place.content] = members[place.column_set]
    rows = connection.execute(select(schema.memo_files).where(of.id.in_(ids)).order_by(of.id))
    return [
        CatalogFile(row.id, row.path, row.checksum, row.rows, row.size_bytes, row.live_bytes,
                   row.condemned_at is not None, tuple(memos[row.id]), coverage[row.id])
        for row in rows
    ]  # fmt: skip


def _memos_in(connection: Connection, files: Sequence[int]) -> list[CatalogMemo]:
    of = schema.memos.c
    query = select(of.memo_key, of.fingerprint, of.file, of.rows, of.size_bytes, of.fragment)
    rows = connection.execute(query.where(of.file.in_(files), of.state == MemoState.READY).order_by(of.memo_key)).all()
    fragments = fragments_by_row(connection, {row.fragment for row in rows})
    columns = _columns(connection, {row.fingerprint for row in rows})
    return [
        CatalogMemo(row.memo_key, row.fingerprint, row.file, row.rows, row.size_bytes, fragments[row.fragment],
                   columns[row.fingerprint])
        for row in rows
    ]  # fmt: skip


def _columns(connection: Connection, fingerprints: Collection[str]) -> dict[str, tuple[str, ...]]:
    of = schema.component_columns.c
    found: dict[str, list[str]] = {fingerprint: [] for fingerprint in fingerprints}
    for chunk in chunks(sorted(fingerprints)):
        for fingerprint, name in connection.execute(
            select(of.fingerprint, of.column_name).where(of.fingerprint.in_(chunk))
        ):
            found[fingerprint].append(name)
    return {fingerprint: tuple(sorted(names)) for fingerprint, names in found.items()}


def check_file(contents: Contents, file: CatalogFile) -> list[Problem]:
    """Contradictions between a file and its memos."""
    problems = [problem for memo in file.memos for problem in _check_memo(file, memo)]
    problems += _check_coverage(contents, file)
    live = sum(memo.size_bytes or 0 for memo in file.memos)
    if live != file.live_bytes:
        problems.append(_of_file(file, "counts", f"live_bytes is {file.live_bytes}, its ready memos take {live}"))
    if file.is_unreferenced and file.memos:
        problems.append(_of_file(file, "counts", f"it is marked unreferenced, but has {len(file.memos)} ready memos"))
    if not file.is_unreferenced and not file.memos:
        problems.append(_of_file(file, "counts", "it has no ready memo, but is not marked unreferenced"))
    return problems


def _of_file(file: CatalogFile, kind: FindingKind, what: str) -> Problem:
    return Problem(Finding(kind, file.path, what, REPAIR), BadFile(file.id))


def _check_memo(file: CatalogFile, memo: CatalogMemo) -> list[Problem]:
    if not memo.is_of(memo.fragment):
        what = "the memo's key is not that of its component over its fragment"
        return [
            Problem(Finding("identity", file.path, what, REPAIR, memo.fingerprint), BadFragment(memo.key, file.path))
        ]
    if not memo.rows == file.rows == memo.fragment.rows:
        what = f"the memo has {memo.rows} rows, its file {file.rows}, its fragment {memo.fragment.rows}"
        return [Problem(Finding("rows", file.path, what, REPAIR, memo.fingerprint), BadMemo(memo.key, file.path, what))]
    return []


def _check_coverage(contents: Contents, file: CatalogFile) -> list[Problem]:
    right = right_coverage(contents, file)
    lacking = sum(len(held - file.coverage.get(content, frozenset())) for content, held in right.items())
    excess = sum(len(held - right.get(content, frozenset())) for content, held in file.coverage.items())
    problems = []
    if lacking:
        problems.append(_of_file(file, "coverage", f"coverage lacks {lacking} memos that are ready in it"))
    if excess:
        problems.append(_of_file(file, "coverage", f"coverage claims {excess} memos that are not ready in it"))
    return problems


def right_coverage(contents: Contents, file: CatalogFile) -> dict[str, frozenset[str]]:
    """The right coverage of a file: every memo under its own content, and under registered equal contents."""
    right: defaultdict[str, set[str]] = defaultdict(set)
    by_component = {memo.fingerprint: memo for memo in file.memos}
    for memo in file.memos:
        right[memo.content].add(memo.fingerprint)
    for content, held in file.coverage.items():
        others = [by_component[one] for one in held - right[content] if one in by_component]
        if others:
            elsewhere = contents.fragments(content).values()
            right[content].update(memo.fingerprint for memo in others if _is_of_any(memo, content, elsewhere))
    return {content: frozenset(held) for content, held in right.items() if held}


class Contents:
    """Finds fragments by content, with a cache of the overlaid ones."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fragments(self, content: str) -> Mapping[int, Fragment]:
        """Fragments by row: those with this content, else all with overlays, or without values of some column."""
        of = schema.fragments.c
        rows = self._connection.execute(select(of.id).where(of.fragment_id == content)).scalars().all()
        return fragments_by_row(self._connection, rows) if rows else self._overlaid

    @cached_property
    def _overlaid(self) -> Mapping[int, Fragment]:
        of = schema.fragments.c
        columns = {table.name: len(table.columns) for table in all_tables(self._connection)}
        query = select(of.id, of.table_name, of.digests, of.overlays)
        rows = [
            row.id
            for row in self._connection.execute(query)
            if row.overlays is not None or len(row.digests) < columns.get(row.table_name, 0)
        ]
        return fragments_by_row(self._connection, rows)


def _is_of_any(memo: CatalogMemo, content: str, fragments: Collection[Fragment]) -> bool:
    return any(content_of(one, memo.columns) == content and memo.is_of(one) for one in fragments)


def rebuild_file(warehouse: Warehouse, file: int) -> None:
    """Rebuild coverage and counts of a file from its memos."""

    def rebuild(connection: Connection) -> None:
        for stored in load_files(connection, [file]):
            right = right_coverage(Contents(connection), stored)
            connection.execute(delete(schema.coverage).where(schema.coverage.c.file == file))
            add_coverage(connection, {(file, content): held for content, held in right.items()})
            count_live_bytes(connection, [file], warehouse.clock())

    warehouse.catalog.run(rebuild, idempotent=True)


def repair_fragment(warehouse: Warehouse, key: str) -> None:
    """Set the fragment of a memo by coverage, or evict the memo if coverage has none.

    It is not queued: with a wrong fragment, wrong values would be computed under its key. The next submission queues it.
    """
    of = schema.memos.c

    def correct(connection: Connection) -> None:
        now = warehouse.clock()
        row = connection.execute(select(of.file, of.fingerprint).where(of.memo_key == key)).one()
        for file in load_files(connection, [row.file]):
            memo = next(one for one in file.memos if one.key == key)
            where = [content for content, held in file.coverage.items() if memo.fingerprint in held]
            right = _row_of(Contents(connection), memo, where)
            if right is None:
                evict_memos(connection, {key: memo.fingerprint}, {file.id: {memo.fingerprint}}, "of no fragment", now)
            else:
                connection.execute(update(schema.memos).where(of.memo_key == key).values(fragment=right))

    warehouse.catalog.run(correct, idempotent=True)


def _row_of(contents: Contents, memo: CatalogMemo, where: Sequence[str]) -> int | None:
    for content in where:
        for row, fragment in contents.fragments(content).items():
            if memo.is_of(fragment) and content_of(fragment, memo.columns) == content:
                return row
    return None
