"""The manifest of a link of states: a full one, or a delta from the link before it, with a digest of itself. Pure.

The text is canonical JSON. Its member ``sha256`` is the SHA-256 of the text without that member. A link's hash is the SHA-256 of its manifest, which names the
digests of its files and the hash of the link before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from transforms.derived_documents import Digest, Name, document_of, one_of, read_value, whole
from transforms.documents import Part, parse_document
from transforms.errors import DataError, InputError
from transforms.joins.definition import JoinDefinition
from transforms.online.joined_table import JoinedTable
from warehouse.errors import StatesDamaged

FORMAT = "headrace.states/1"
MANIFEST = "manifest.json"
FULL, DELTA = "full", "delta"
#: The most bytes of a manifest.
MOST_MANIFEST_BYTES = 16 << 20

_Count = Annotated[int, whole()]
_Moment = Annotated[int, whole(-(1 << 62), 1 << 62)]


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The size of a file, and the SHA-256 of its bytes."""

    size_bytes: _Count
    sha256: Digest


@dataclass(frozen=True, slots=True)
class LinkTable:
    """Another table in a link.

    Attributes:
        name: of the table.
        version: the version of the table whose rows are there after the link.
        time_column: the column of the times of its rows.
        added: how many rows the link adds.
        removed: how many rows of the link before are gone, as tombstones: their positions.
        rows_after: how many rows are there after it.
        rows_file: the added rows, an Arrow file.
        removed_file: ascending positions among the rows of the link before it: little-endian int64.
    """

    name: Name
    version: _Count
    time_column: Name
    added: _Count
    removed: _Count
    rows_after: _Count
    rows_file: FileDigest
    removed_file: FileDigest

    @property
    def size_bytes(self) -> int:
        """The bytes of its files."""
        return self.rows_file.size_bytes + self.removed_file.size_bytes

    def check_read(self, part: Part) -> None:
        """Raises :class:`~transforms.errors.DataError` for counts that contradict each other."""
        if self.added > self.rows_after:
            raise part.refused("the rows after a link must be at least those that it adds")


@dataclass(frozen=True, slots=True)
class StatesLink:
    """A link of the states of a model.

    Attributes:
        number: one more than that of the link before it.
        kind: :data:`FULL` or :data:`DELTA`.
        previous: the hash of the link before it; "" of the first one.
        model: the name of the model.
        model_version: its version.
        since_micros: answers are for moments from this one on, in microseconds since 1970.
        definitions: of the joined columns.
        tables: the other tables, by name.
    """

    number: Annotated[int, whole(most=999_999)]
    kind: Annotated[str, one_of(FULL, DELTA)]
    previous: Annotated[str, lambda part: part.digest() if part.value != "" else ""]
    model: Name
    model_version: _Count
    since_micros: _Moment
    definitions: tuple[JoinDefinition, ...]
    tables: tuple[LinkTable, ...]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.number:06d}-{self.kind}"

    def joined_tables(self) -> tuple[JoinedTable, ...]:
        """The other tables with the columns that are joined from them."""
        times = {one.name: one.time_column for one in self.tables}
        return joined_tables(self.definitions, times)

    def to_bytes(self) -> bytes:
        """The text of ``manifest.json``: equal links have equal bytes."""
        body = {"format": FORMAT, **document_of(self)}
        return _text({**body, "sha256": hashlib.sha256(_text(body)).hexdigest()})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> StatesLink:
        """The inverse of :meth:`to_bytes`. Raises :class:`StatesDamaged` for anything else."""
        try:
            return cls._read(data, where)
        except StatesDamaged:
            raise
        except (DataError, InputError) as error:
            raise StatesDamaged(
                error.what, where=where, value=error.value, allowed=error.allowed, next_step=AGAIN
            ) from None

    @classmethod
    def _read(cls, data: bytes, where: str) -> StatesLink:
        whole = parse_document(data, f"manifest of states {where}", most_bytes=MOST_MANIFEST_BYTES)
        document = whole.value
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            found = document.get("format") if isinstance(document, dict) else document
            raise StatesDamaged("states must have a format that this release reads", where=where, value=str(found)[:80], allowed=FORMAT,
                                next_step="use the release of Headrace that wrote them, or export them again")  # fmt: skip
        body = {name: value for name, value in document.items() if name != "sha256"}
        if data != _text({**body, "sha256": hashlib.sha256(_text(body)).hexdigest()}):
            raise StatesDamaged("a manifest must have the digest that it states", where=where, next_step=AGAIN)
        link = read_value(cls, whole, extra=("format", "sha256"))
        _check(link, where)
        for table in link.joined_tables():
            table.schema.names  # noqa: B018 — the expressions of each definition are read
        return link


#: What helps against damage.
AGAIN = "headrace export states MODEL --full writes them again"


def link_hash(data: bytes) -> str:
    """The hash of a link: of the bytes of its manifest."""
    return hashlib.sha256(data).hexdigest()


def rows_file(position: int) -> str:
    """The file of the added rows of a table, by its position in the manifest."""
    return f"table-{position:04d}.arrow"


def removed_file(position: int) -> str:
    """The file of the tombstones of a table."""
    return f"table-{position:04d}.removed"


def joined_tables(definitions: tuple[JoinDefinition, ...], time_columns: Mapping[str, str]) -> tuple[JoinedTable, ...]:
    """The tables of definitions, by name, with their columns."""
    found: dict[str, dict[str, JoinDefinition]] = {}
    for one in definitions:
        found.setdefault(one.table, {})[one.column] = one
    return tuple(JoinedTable(name, time_columns[name], found[name]) for name in sorted(found))


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")  # fmt: skip


def _check(link: StatesLink, where: str) -> None:
    rule = ""
    names = [one.name for one in link.tables]
    if not link.definitions:
        rule = "states must have a joined column"
    elif len({one.column for one in link.definitions}) != len(link.definitions):
        rule = "the joined columns of states must have distinct names"
    elif names != sorted({one.table for one in link.definitions}):
        rule = "the tables of states must be those of their joined columns, by name"
    elif link.kind == DELTA and not link.previous:
        rule = "a delta must name the link before it"
    elif link.kind == FULL and any(one.removed or one.added != one.rows_after for one in link.tables):
        rule = "a full link must add all rows and remove none"
    if rule:
        raise StatesDamaged(rule, where=where, value=link.name, next_step=AGAIN)
