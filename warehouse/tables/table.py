"""Tables, partitions and fragments as values.

A *table* is a folder of hive-partitioned Parquet files, registered in place. A *partition* is a time range of it. A
*fragment* is a range of row groups of one immutable file, and the unit of alignment: row i of every memo of a
fragment is event i of that fragment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any

from transforms.derived_documents import Digest, Name, Omitted, PathOrNone, document_of, read_value, whole
from transforms.documents import Part, document_part
from transforms.errors import UnknownColumn, nearest
from transforms.graphs.encoding import digest, encode, encode_list

#: The type of a column that has no values yet.
NULL = "null"


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """A column of a table.

    Attributes:
        name: its name.
        arrow_type: the text form of the Arrow type that its values are read as (``list<element: string>``).
        overlay_only: no file holds it; its values are in overlays.
        stored_types: the types that files hold it in, in order of arrival, if they are several; ``arrow_type`` holds the
            values of all of them.
    """

    name: str
    arrow_type: str
    overlay_only: bool = False
    stored_types: tuple[str, ...] = ()

    @property
    def first_type(self) -> str:
        """The type that the column began with, which stays in the digest of a fragment without values of it."""
        return next((one for one in self.stored_types if one != NULL), self.arrow_type)

    def to_document(self) -> list[object]:
        """The column as a JSON list, without trailing defaults."""
        if self.stored_types:
            return [self.name, self.arrow_type, self.overlay_only, list(self.stored_types)]
        return [self.name, self.arrow_type, *([True] if self.overlay_only else [])]

    @classmethod
    def from_document(cls, document: Sequence[Any]) -> ColumnSchema:
        """The inverse of :meth:`to_document`."""
        overlay_only = len(document) > 2 and document[2]
        return cls(document[0], document[1], overlay_only, tuple(document[3]) if len(document) > 3 else ())


@dataclass(frozen=True, slots=True)
class Table:
    """A registered table; ``version`` increases by one with every registration or change of data."""

    name: str
    root: str
    columns: tuple[ColumnSchema, ...]
    time_column: str | None
    version: int

    def column(self, name: str) -> ColumnSchema:
        """The column of this name. Raises :class:`UnknownColumn` with the nearest names."""
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownColumn(f"table {self.name!r} has no such column", value=name,
                            allowed=nearest(name, [column.name for column in self.columns]))  # fmt: skip

    @property
    def file_columns(self) -> tuple[ColumnSchema, ...]:
        """The columns in the table's files."""
        return tuple(column for column in self.columns if not column.overlay_only)


@dataclass(frozen=True, slots=True)
class Overlay:
    """New values of a column for a fragment; value i belongs to event i.

    Attributes:
        column: the column, also in the file.
        path: the file, relative to the home; empty for a column without values, which is null for every event: the file does
            not have it, or has nulls alone.
        checksum: the column's digest (:mod:`warehouse.files.digests`); of a column without values :func:`absent_digest`.
        arrow_type: the type of a column without values.
    """

    column: str
    path: PathOrNone
    checksum: Digest
    arrow_type: Omitted[Name] = ""

    @property
    def is_absent(self) -> bool:
        """Whether the column has no values, so that it is null for every event."""
        return not self.path

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for a column without values and without a type."""
        if self.is_absent and not self.arrow_type:
            raise part.at("path").refused("a relative path that stays inside its folder")


#: Arrow counts the rows of many columns in 32 bits.
MOST_ROWS = 2**31 - 1


def _row_groups(part: Part) -> tuple[int, ...]:
    groups = tuple(group.integer(0, MOST_ROWS) for group in part.items())
    if any(first >= second for first, second in pairwise(groups)):
        raise part.refused("a list of row groups in ascending order")
    return groups


def _types(part: Part) -> dict[str, str]:
    """Types by column, in text form."""
    from warehouse.tables.stored_types import parse_stored_type  # loads Arrow, which few documents need

    found = {}
    for name, stated in part.entries():
        found[name] = stated.name()
        if parse_stored_type(found[name]) is None:
            raise stated.refused("the text form of an Arrow type")
    return found


_Types = Annotated[Mapping[str, str], _types]


@dataclass(frozen=True)
class Fragment:
    """A range of row groups of one Parquet file with its overlays and deletions.

    Attributes:
        fragment_id: the identity of the file's *content*; copies of a file share it.
        path: the Parquet file.
        row_groups: the row groups, in order.
        rows: the events, including deleted ones.
        size_bytes: the compressed bytes of the row groups.
        digests: the digest of every column (:mod:`warehouse.files.digests`) with overlays applied.
        overlays: the overlays, by column name.
        deletions: the deletion vector; deleted events remain in memos and are left out of training.
        deleted_rows: the number of deleted events.
        members: of a merged fragment, the fragments of whose events it consists, in order; ``path`` and ``row_groups`` are
            those of the first. Empty for a fragment of one file.
        types: the types that columns are read as, by column, where files of the table hold them in several types.
        levels: the values of columns that are levels of the file's folders (``country=DE``), by column.
        digest_types: the types that columns of the file are digested in, by column, where an earlier file held the same
            values in another type, whose digest and memos stay valid.
    """

    fragment_id: Digest
    path: Annotated[str, Part.outside_path]
    row_groups: Annotated[tuple[int, ...], _row_groups]
    rows: Annotated[int, whole(most=MOST_ROWS)]
    size_bytes: int
    digests: Annotated[Mapping[str, str], Part.digests]
    overlays: Omitted[tuple[Overlay, ...]] = field(default=(), kw_only=True)
    deletions: Omitted[Overlay | None] = field(default=None, kw_only=True)
    deleted_rows: Omitted[int] = field(default=0, kw_only=True)
    members: Omitted[tuple[Fragment, ...]] = field(default=(), kw_only=True)
    types: Omitted[_Types] = field(default_factory=dict, kw_only=True)
    levels: Omitted[Mapping[str, str]] = field(default_factory=dict, kw_only=True)
    digest_types: Omitted[_Types] = field(default_factory=dict, kw_only=True)

    @property
    def live_rows(self) -> int:
        """Events that are not deleted."""
        return self.rows - self.deleted_rows

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for parts that contradict each other."""
        columns = [overlay.column for overlay in self.overlays]
        if len(set(columns)) != len(columns):
            raise part.at("overlays").refused("a list that names each column once", value=", ".join(columns)[:80])
        if self.deleted_rows > (0 if self.deletions is None else self.rows):
            raise part.at("deleted_rows").refused("at most the rows, and absent where there are no deletions")
        if not part.has("members"):
            return
        if len(self.members) < 2 or sum(member.rows for member in self.members) != self.rows:
            raise part.at("members").refused("fragments with the rows of the whole")
        if any(member.members for member in self.members):
            raise part.at("members").refused("fragments without members")

    def to_document(self) -> dict[str, Any]:
        """The fragment as a JSON object, without absent overlays and deletions."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def from_document(cls, document: object) -> Fragment:
        """The inverse of :meth:`to_document`. Raises :class:`~transforms.errors.DataError` for any other document."""
        return read_value(cls, document_part(document, "fragment"))


def content_of(fragment: Fragment, columns: Iterable[str]) -> str:
    """The identity of the content of these columns, 64 hexadecimal digits.

    It is ``fragment_id`` unless one of them is overlaid; overlays of other columns do not change it.
    """
    if not fragment.overlays:
        return fragment.fragment_id
    read = set(columns)
    changed = sorted((overlay.column, overlay.checksum) for overlay in fragment.overlays if overlay.column in read)
    return digest([fragment.fragment_id, [list(pair) for pair in changed]]) if changed else fragment.fragment_id


@lru_cache(maxsize=65_536)
def absent_digest(arrow_type: str, rows: int) -> str:
    """The digest of a column without values, which costs the same for any number of rows."""
    return digest({"absent": arrow_type, "rows": rows})


def fragment_identity(digests: Mapping[str, str], rows: int) -> str:
    """SHA-256 over the digest of every column and the row count."""
    return digest({"rows": rows, "columns": dict(digests)})


def merge_fragments(members: Sequence[Fragment]) -> Fragment:
    """The fragment of all events of ``members``, in order. Its identity and digests are those of its members, in order.

    Left out are columns that a member does not have, and the digest of a column without values in every member, as in a
    fragment of one file. The overlays are those of columns with an overlay file. Deletions stay with the members.
    """
    columns = [name for name in members[0].digests if all(name in member.digests for member in members)]
    overlaid: dict[str, str] = {}
    absent = set(columns)
    for member in members:
        here = {overlay.column: overlay for overlay in member.overlays}
        overlaid |= {name: one.path for name, one in here.items() if not one.is_absent and name not in overlaid}
        absent &= {name for name, one in here.items() if one.is_absent}
    digests = {
        name: digest({"merged": [member.digests[name] for member in members]}) for name in columns if name not in absent
    }
    changed = overlaid.keys() & digests.keys()
    return Fragment(
        digest({"merged": [member.fragment_id for member in members]}),
        members[0].path,
        members[0].row_groups,
        sum(member.rows for member in members),
        sum(member.size_bytes for member in members),
        digests,
        overlays=tuple(Overlay(name, overlaid[name], digests[name]) for name in sorted(changed)),
        members=tuple(replace(member, deletions=None, deleted_rows=0) for member in members),
        types=members[0].types,
    )


def memo_key(fingerprint: str, digests: Mapping[str, str], columns: Iterable[str] | None = None) -> str:
    """The identity of a memo, from the component's fingerprint and the digests of the columns that it reads.

    It has 64 hexadecimal digits, the first 16 of which are the fingerprint's. ``columns``: the columns of ``digests`` that the
    component reads, by default all. Other columns, such as a late label, do not change the key.
    """
    return MemoKeys(digests).key(fingerprint, tuple(sorted(digests) if columns is None else sorted(set(columns))))


#: Digits of the fingerprint that a memo's key begins with.
_KEY_PREFIX = 16


def memo_keys_of(fingerprint: str) -> tuple[str, str]:
    """The half-open range of the keys of a component's memos."""
    return fingerprint[:_KEY_PREFIX], fingerprint[:_KEY_PREFIX] + "g"


@lru_cache(maxsize=65_536)
def _encoded(fingerprint: str) -> bytes:
    return encode(fingerprint)


class MemoKeys:
    """The keys of memos over one content; the digests of its columns are encoded once for all components."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = digests
        self._pairs: dict[str, bytes] = {}
        self._lists: dict[tuple[str, ...], bytes] = {}

    def key(self, fingerprint: str, columns: tuple[str, ...]) -> str:
        """:func:`memo_key` of a component that reads ``columns``, sorted names."""
        read = self._lists.get(columns)
        if read is None:
            read = self._lists[columns] = encode_list([self._pair(name) for name in columns])
        # A key begins with the fingerprint: the memos of a component are adjacent in every index of keys, so a submission
        # touches one page per component instead of one per memo.
        found = hashlib.sha256(encode_list((_encoded(fingerprint), read))).hexdigest()
        return fingerprint[:_KEY_PREFIX] + found[: 64 - _KEY_PREFIX]

    def _pair(self, name: str) -> bytes:
        if name not in self._pairs:
            self._pairs[name] = encode([name, self._digests[name]])
        return self._pairs[name]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of one partition: ``[start, end)`` in UTC and its fragments, in reading order."""

    table: str
    partition: str
    version: int
    start: datetime
    end: datetime
    fragments: tuple[Fragment, ...]

    @property
    def rows(self) -> int:
        """Events in the partition, including deleted ones."""
        return sum(fragment.rows for fragment in self.fragments)

    @property
    def deleted_rows(self) -> int:
        """Deleted events in the partition."""
        return sum(fragment.deleted_rows for fragment in self.fragments)

    @property
    def size_bytes(self) -> int:
        """Compressed bytes of the partition's raw data."""
        return sum(fragment.size_bytes for fragment in self.fragments)
