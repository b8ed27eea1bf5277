"""Values that a table has already: equal ones in a file of other types keep their digests, and so their memos.

A digest covers the type of a column (:mod:`warehouse.files.digests`). A backfill that writes an ``int32`` column as ``int64``
therefore gives other digests for the values that components have read already. Where a table holds a column in several types,
a new column is digested in each of them; if one of these digests is known, the column keeps it, and its fragment notes the type.

Nulls alone are equal in every type. An untyped column of them is an absent one, and so is a typed one that is known as absent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from warehouse.files.digests import column_digest, logical_type
from warehouse.tables.stored_types import parse_stored_type
from warehouse.tables.table import NULL, ColumnSchema, Fragment, absent_digest, fragment_identity
from warehouse.tables.widening import cast_exactly


@dataclass(frozen=True, slots=True)
class StoredValues:
    """The identity of rows, the digest of each column that is not absent, and the types that columns are digested in."""

    identity: str
    digests: Mapping[str, str]
    digest_types: Mapping[str, str]


#: The digest of a column that is absent.
_ABSENT = ""
#: Digests that stand for equal values of a column, the own one first, with the type of each; "" for the column's own.
_Equals = dict[str, str]


@dataclass(frozen=True)
class KnownValues:
    """The values of a table.

    Attributes:
        columns: its columns, with those of new files, by name.
        fragments: its fragments.
        file_digests: the digests of the columns in the files of fragments with overlays, by ``fragment_id``.
    """

    columns: Mapping[str, ColumnSchema] = field(default_factory=dict)
    fragments: Sequence[Fragment] = ()
    file_digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _known: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        columns: Iterable[ColumnSchema],
        fragments: Iterable[Fragment],
        file_digests: Mapping[str, Mapping[str, str]],
    ) -> KnownValues:
        """The values of these fragments, in a table with these columns."""
        return cls({column.name: column for column in columns}, tuple(fragments), file_digests)

    def stored(self, rows: pa.Table, digests: Mapping[str, str]) -> StoredValues:
        """The values of some rows, of which ``digests`` are those of every column in its own type.

        If a fragment of the table has equal values in all of its columns, its digests are kept, and so is what depends on them.
        """
        identity = fragment_identity(digests, rows.num_rows)
        if identity in self._identities:
            return StoredValues(identity, digests, {})
        equals = {name: self._equals(name, rows.column(name), own) for name, own in digests.items()}
        same = self._equal_fragment(equals, rows.num_rows)
        kept: dict[str, str] = {}
        types: dict[str, str] = {}
        for name, found in equals.items():
            digest = self._chosen(name, rows.num_rows, found, same)
            if digest != _ABSENT:
                kept[name] = digest
                types.update({name: found[digest]} if found[digest] else {})
        return StoredValues(fragment_identity(kept, rows.num_rows), kept, types)

    def _equals(self, name: str, column: pa.ChunkedArray, own: str) -> _Equals:
        """The digests of equal values that the table may have."""
        schema = self.columns.get(name)
        has_values, is_typed = column.null_count < len(column), not pa.types.is_null(column.type)
        found = {own: ""} if is_typed else {_ABSENT: ""}
        if schema is None or not self.fragments or (is_typed and has_values and not schema.stored_types):
            return found
        if not has_values:
            found[_ABSENT] = ""
        for spelled in (*schema.stored_types, schema.arrow_type):
            digest = _digest_in(column, spelled)
            if digest is not None:
                found.setdefault(digest, spelled)
        return found

    def _equal_fragment(self, equals: Mapping[str, _Equals], rows: int) -> Mapping[str, str] | None:
        """The digests in the file of the fragment whose values these are, with further columns or without."""
        if all(len(found) == 1 and _ABSENT not in found for found in equals.values()):
            return None  # the identity says as much
        sole = next(((name, *found) for name, found in equals.items() if len(found) == 1), None)
        held = (self.file_digests.get(one.fragment_id, one.digests) for one in self._by_rows.get(rows, ()))
        alike = (one for one in held if sole is None or one.get(sole[0], _ABSENT) == sole[1])
        fitting = [one for one in alike if one and all(digest in equals.get(name, ()) for name, digest in one.items())]
        return max(fitting, key=len, default=None)

    def _chosen(self, name: str, rows: int, found: _Equals, same: Mapping[str, str] | None) -> str:
        if len(found) == 1:
            return next(iter(found))
        if same is not None and same.get(name, _ABSENT) in found:
            return same.get(name, _ABSENT)
        own = next(iter(found))
        if _ABSENT in found and own != _ABSENT and not self._is_absent(name, rows):
            return own  # nearly all columns of nulls
        known = self._digests_of(self.columns[name])
        return next((digest for digest in found if (digest or self._absent_digest(name, rows)) in known), own)

    def _is_absent(self, name: str, rows: int) -> bool:
        """Whether a fragment of so many rows has no values of a column."""
        # Fragments have the columns that the table had: one of new files is in none of them.
        is_new = bool(self.fragments) and name not in self.fragments[0].digests
        return (name, rows) in self._absent or (is_new and rows in self._by_rows)

    @cached_property
    def _identities(self) -> frozenset[str]:
        return frozenset(fragment.fragment_id for fragment in self.fragments)

    @cached_property
    def _by_rows(self) -> Mapping[int, Sequence[Fragment]]:
        """The fragments by their number of rows."""
        found: defaultdict[int, list[Fragment]] = defaultdict(list)
        for fragment in self.fragments:
            found[fragment.rows].append(fragment)
        return dict(found)

    @cached_property
    def _absent(self) -> frozenset[tuple[str, int]]:
        """The columns that fragments have no values of, with the rows of the fragment."""
        return frozenset(
            (overlay.column, one.rows) for one in self.fragments for overlay in one.overlays if overlay.is_absent
        )

    def _absent_digest(self, name: str, rows: int) -> str:
        return absent_digest(self.columns[name].first_type, rows)

    def _digests_of(self, column: ColumnSchema) -> frozenset[str]:
        """The digests of a column in all fragments, absent ones too."""
        name = column.name
        if name not in self._known:
            held = {one.digests.get(name) or self._absent_digest(name, one.rows) for one in self.fragments}
            self._known[name] = frozenset(held.union(one[name] for one in self.file_digests.values() if name in one))
        return self._known[name]


def _digest_in(column: pa.Array | pa.ChunkedArray, spelled: str) -> str | None:
    """The digest of a column in another type; None for its own type, and for values that are not equal there."""
    kind = None if spelled == NULL else parse_stored_type(spelled)
    if kind is None or logical_type(kind) == logical_type(column.type):
        return None
    narrow = cast_exactly(column, kind)
    return None if narrow is None else column_digest(narrow)


def known_digest(column: pa.Array, types: Iterable[str], known: Collection[str]) -> str | None:
    """The digest of equal values in one of ``types`` that is among the ``known`` ones."""
    return next((digest for one in types if (digest := _digest_in(column, one)) in known), None)


#: A table without values.
NOTHING_KNOWN = KnownValues()
