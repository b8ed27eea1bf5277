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
from typing import Any

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
    path: str
    checksum: str
    arrow_type: str = ""

    @property
    def is_absent(self) -> bool:
        """Whether the column has no values, so that it is null for every event."""
        return not self.path

    def to_document(self) -> dict[str, str]:
        """The overlay as a JSON object."""
        document = {"column": self.column, "path": self.path, "checksum": self.checksum}
        return {**document, "arrow_type": self.arrow_type} if self.arrow_type else document

    @classmethod
    def from_document(cls, document: object) -> Overlay:
        """The inverse of :meth:`to_document`. Raises :class:`~transforms.errors.DataError` for any other document."""
        part = document_part(document, "overlay").fields(("column", "path", "checksum"), ("arrow_type",))
        arrow_type = part.at("arrow_type").name() if part.has("arrow_type") else ""
        is_absent = part.at("path").value == "" and arrow_type
        path = "" if is_absent else part.at("path").inside_path()
        return cls(part.at("column").text(), path, part.at("checksum").digest(), arrow_type)


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

    fragment_id: str
    path: str
    row_groups: tuple[int, ...]
    rows: int
    size_bytes: int
    digests: Mapping[str, str]
    overlays: tuple[Overlay, ...] = field(default=(), kw_only=True)
    deletions: Overlay | None = field(default=None, kw_only=True)
    deleted_rows: int = field(default=0, kw_only=True)
    members: tuple[Fragment, ...] = field(default=(), kw_only=True)
    types: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    levels: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    digest_types: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def live_rows(self) -> int:
        """Events that are not deleted."""
        return self.rows - self.deleted_rows

    def to_document(self) -> dict[str, Any]:
        """The fragment as a JSON object, without absent overlays and deletions."""
        document: dict[str, Any] = {
            "fragment_id": self.fragment_id,
            "path": self.path,
            "row_groups": list(self.row_groups),
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "digests": dict(self.digests),
        }
        if self.overlays:
            document["overlays"] = [overlay.to_document() for overlay in self.overlays]
        if self.deletions is not None:
            document["deletions"] = self.deletions.to_document()
            document["deleted_rows"] = self.deleted_rows
        if self.members:
            document["members"] = [member.to_document() for member in self.members]
        stated = {"types": self.types, "levels": self.levels, "digest_types": self.digest_types}
        return {**document, **{name: dict(found) for name, found in stated.items() if found}}

    @classmethod
    def from_document(cls, document: object) -> Fragment:
        """The inverse of :meth:`to_document`. Raises :class:`~transforms.errors.DataError` for any other document."""
        part = document_part(document, "fragment").fields(FRAGMENT_FIELDS, (*OPTIONAL_FIELDS, "members"))
        whole = Fragment(**fragment_fields(part))
        if not part.has("members"):
            return whole
        # A member has no members: the recursion ends after one level.
        listed = part.at("members").items(least=2)
        members = [Fragment(**fragment_fields(one.fields(FRAGMENT_FIELDS, OPTIONAL_FIELDS))) for one in listed]
        if sum(member.rows for member in members) != whole.rows:
            raise part.at("members").refused("fragments with the rows of the whole")
        return replace(whole, members=tuple(members))


#: The fields of every fragment's document, and those of one with changes, or of a table of several schemas or folder levels.
FRAGMENT_FIELDS = ("fragment_id", "path", "row_groups", "rows", "size_bytes", "digests")
OPTIONAL_FIELDS = ("overlays", "deletions", "deleted_rows", "types", "levels", "digest_types")
#: Arrow counts the rows of many columns in 32 bits.
MOST_ROWS = 2**31 - 1
_MOST_ROW_GROUPS = 2**31 - 1


def fragment_fields(part: Part) -> dict[str, Any]:
    """A fragment's fields by name, from an object with :data:`FRAGMENT_FIELDS` and optional :data:`OPTIONAL_FIELDS`."""
    rows = part.at("rows").integer(0, MOST_ROWS)
    overlays = [Overlay.from_document(one) for one in part.at("overlays").items()] if part.has("overlays") else []
    columns = [overlay.column for overlay in overlays]
    if len(set(columns)) != len(columns):
        raise part.at("overlays").refused("a list that names each column once", value=", ".join(columns)[:80])
    has_deletions = part.has("deletions") and part.at("deletions").value is not None
    if not has_deletions and part.has("deleted_rows") and part.at("deleted_rows").value != 0:
        raise part.at("deleted_rows").refused("absent where there are no deletions")
    return {
        "fragment_id": part.at("fragment_id").digest(),
        "path": part.at("path").outside_path(),
        "row_groups": _row_groups(part.at("row_groups")),
        "rows": rows,
        "size_bytes": part.at("size_bytes").integer(),
        "digests": part.at("digests").digests(),
        "overlays": tuple(overlays),
        "deletions": Overlay.from_document(part.at("deletions")) if has_deletions else None,
        "deleted_rows": part.at("deleted_rows").integer(0, rows) if part.has("deleted_rows") else 0,
        "types": _types(part, "types"),
        "levels": {name: value.text() for name, value in part.at("levels").entries()} if part.has("levels") else {},
        "digest_types": _types(part, "digest_types"),
    }


def _types(part: Part, field_name: str) -> dict[str, str]:
    """Types by column, in text form."""
    if not part.has(field_name):
        return {}
    from warehouse.tables.stored_types import parse_stored_type  # loads Arrow, which few documents need

    found = {name: stated.name() for name, stated in part.at(field_name).entries()}
    for name, spelled in found.items():
        if parse_stored_type(spelled) is None:
            raise Part(spelled, part.at(field_name), name).refused("the text form of an Arrow type")
    return found


def _row_groups(part: Part) -> tuple[int, ...]:
    groups = tuple(group.integer(0, _MOST_ROW_GROUPS) for group in part.items())
    if any(first >= second for first, second in pairwise(groups)):
        raise part.refused("a list of row groups in ascending order")
    return groups


def content_of(fragment: Fragment, columns: Iterable[str]) -> str:
    """The identity of the content of these columns, 64 hexadecimal digits.

    It is ``fragment_id`` unless one of them is overlaid; overlays of other columns do not change it.
    """
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
        name: digest({"merged": [member.digests[name] for member in members]})
        for name in columns if name not in absent
    }  # fmt: skip
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
