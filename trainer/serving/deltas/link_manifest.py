"""The manifest of a link: a full snapshot or a delta of served weights, with a digest of itself. Pure.

The text is canonical JSON as in :mod:`trainer.checkpoints.manifest`. Files have fixed names by the position of their table, and hold
little-endian numbers without a header: their sizes follow from the counts in the manifest. A link's hash is the SHA-256 of its manifest,
which names the digests of all its files and the hash of the link before it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_KINDS
from trainer.checkpoints.manifest import signed_text, verified_document
from trainer.document_field import DocumentField
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.serving.deltas.row_values import ENCODINGS, EXACT, arrays_of

FORMAT = "headrace.link/1"
MANIFEST = "manifest.json"
FULL, DELTA = "full", "delta"
KINDS = (FULL, DELTA)

_SHA256 = re.compile("[0-9a-f]{64}")
_DTYPE = re.compile("[<|][biuf][1248]")
_MOST_NUMBER = 999_999_999
_MOST_ROWS = 2**48
_MOST_COLUMNS = 1 << 20
_MOST_AXES = 8
_MOST_DENSE = 2**40


@dataclass(frozen=True, slots=True)
class ServedCommit:
    """A commit of a run: the epochs in its name, its optimizer step, and the SHA-256 of its manifest."""

    epochs: int
    step: int
    sha256: str

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {"epochs": self.epochs, "step": self.step, "sha256": self.sha256}

    @classmethod
    def read(cls, field: DocumentField) -> ServedCommit:
        """The commit at ``field``."""
        members = exact_members(field, {"epochs", "step", "sha256"})
        return cls(members["epochs"].count(), members["step"].count(), read_sha256(members["sha256"]))


@dataclass(frozen=True, slots=True)
class LinkTable:
    """A table of a link.

    Attributes:
        kind: "embedding" or "linear".
        columns: the weights of a row.
        encoding: of the values: see :mod:`trainer.serving.deltas.row_values`.
        rows: rows that are set.
        removed: rows that are removed, as tombstones; 0 in a full snapshot.
        rows_after: the rows of the table after the link.
        largest_error: the largest difference between a weight and its stored value.
        files: the SHA-256 of each of :meth:`arrays`, by its suffix.
    """

    kind: str
    table: str
    columns: int
    encoding: str
    rows: int
    removed: int
    rows_after: int
    largest_error: float
    files: Mapping[str, str]

    def arrays(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The type and shape of the file of each suffix."""
        values = {name: (dtype, (self.rows, *rest)) for name, (dtype, rest) in arrays_of(self.encoding, self.columns).items()}  # fmt: skip
        return {"ids": (np.dtype("<i8"), (self.rows,)), **values, "removed": (np.dtype("<i8"), (self.removed,))}

    @property
    def place(self) -> str:
        """The table as errors and screens name it."""
        return f"{self.kind} table {self.table}"

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {
            "kind": self.kind,
            "table": self.table,
            "columns": self.columns,
            "encoding": self.encoding,
            "rows": self.rows,
            "removed": self.removed,
            "rows_after": self.rows_after,
            "largest_error": self.largest_error,
            "files": dict(self.files),
        }

    @classmethod
    def read(cls, field: DocumentField) -> LinkTable:
        """The table at ``field``."""
        names = {"kind", "table", "columns", "encoding", "rows", "removed", "rows_after", "largest_error", "files"}
        members = exact_members(field, names)
        error = members["largest_error"].number()
        columns = members["columns"].count(most=_MOST_COLUMNS)
        encoding = _one_of(members["encoding"], ENCODINGS)
        if error < 0 or columns < 1 or (encoding == EXACT and error):
            raise TornCheckpoint("a table of a link must have columns, and no error where its values are exact", where=field.place,
                                 value=f"{columns} columns, error {error}")  # fmt: skip
        rows, removed, rows_after = (members[name].count(most=_MOST_ROWS) for name in ("rows", "removed", "rows_after"))
        files = {name: read_sha256(one) for name, one in members["files"].members().items()}
        kind, table = _one_of(members["kind"], TABLE_KINDS), _name(members["table"])
        found = cls(kind, table, columns, encoding, rows, removed, rows_after, error, files)
        if found.files.keys() != found.arrays().keys():
            raise TornCheckpoint("a table of a link must have the files of its encoding, got others", where=members["files"].place,
                                 value=", ".join(found.files)[:200], allowed=", ".join(found.arrays()))  # fmt: skip
        return found


@dataclass(frozen=True, slots=True)
class DenseArray:
    """A dense array, whole in every link: its name, dtype, shape and the SHA-256 of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def size_bytes(self) -> int:
        """The bytes of its file."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape), "sha256": self.sha256}

    @classmethod
    def read(cls, field: DocumentField) -> DenseArray:
        """The array at ``field``."""
        members = exact_members(field, {"name", "dtype", "shape", "sha256"})
        dtype, shape = members["dtype"].text(), members["shape"].items()
        if not _DTYPE.fullmatch(dtype) or not _is_number(dtype) or len(shape) > _MOST_AXES:
            raise TornCheckpoint(f"a dense array must hold numbers in at most {_MOST_AXES} axes", where=field.place,
                                 value=f"{dtype}, {len(shape)} axes"[:200])  # fmt: skip
        found = cls(_name(members["name"]), dtype, tuple(one.count(most=_MOST_ROWS) for one in shape), read_sha256(members["sha256"]))  # fmt: skip
        if math.prod(max(axis, 1) for axis in found.shape) > _MOST_DENSE:
            raise TornCheckpoint(f"a dense array must have at most {_MOST_DENSE:,} numbers", where=field.place,
                                 value=str(found.shape)[:200])  # fmt: skip
        return found


@dataclass(frozen=True, slots=True)
class LinkManifest:
    """A link of a chain.

    Attributes:
        number: one more than that of the link before it.
        kind: :data:`FULL` or :data:`DELTA`.
        previous: the hash of the link before it; "" for the first link of a chain.
        model: the digest of the model that is served: see :mod:`trainer.serving.deltas.model_digest`.
        commit: the commit with the weights after the link.
        since: of a delta, the commit with the weights before the link; None for a full snapshot.
        tables, dense: in the order of their kinds and names, whatever the partition of the commit.
    """

    number: int
    kind: str
    previous: str
    model: str
    commit: ServedCommit
    since: ServedCommit | None
    tables: tuple[LinkTable, ...]
    dense: tuple[DenseArray, ...]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return link_name(self.number, self.kind)

    @property
    def is_exact(self) -> bool:
        """Whether all values are stored bit for bit."""
        return all(one.encoding == EXACT for one in self.tables)

    def to_bytes(self) -> bytes:
        """The text of ``manifest.json``: equal links give equal bytes."""
        return signed_text(
            {
                "format": FORMAT,
                "number": self.number,
                "kind": self.kind,
                "previous": self.previous,
                "model": self.model,
                "commit": self.commit.to_document(),
                "since": None if self.since is None else self.since.to_document(),
                "tables": [one.to_document() for one in self.tables],
                "dense": [one.to_document() for one in self.dense],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> LinkManifest:
        """The inverse of :meth:`to_bytes`. Raises :class:`TornCheckpoint`, or :class:`OtherFormat` for another version."""
        document = verified_document(data, where)
        check_format(document, FORMAT)
        names = {"format", "number", "kind", "previous", "model", "commit", "since", "tables", "dense", "sha256"}
        members = exact_members(document, names)
        kind, since = _one_of(members["kind"], KINDS), members["since"]
        previous = "" if members["previous"].text() == "" else read_sha256(members["previous"])
        found = cls(
            members["number"].count(most=_MOST_NUMBER),
            kind,
            previous,
            read_sha256(members["model"]),
            ServedCommit.read(members["commit"]),
            None if since.value is None else ServedCommit.read(since),
            tuple(map(LinkTable.read, members["tables"].items())),
            tuple(map(DenseArray.read, members["dense"].items())),
        )
        _check(found, where)
        return found

    def array_files(self) -> dict[str, tuple[int, str]]:
        """The size in bytes and the SHA-256 of each file, by its name."""
        found = {}
        for t, table in enumerate(self.tables):
            for suffix, (dtype, shape) in table.arrays().items():
                found[table_file(t, suffix)] = (math.prod(shape) * dtype.itemsize, table.files[suffix])
        return found | {dense_file(k): (one.size_bytes, one.sha256) for k, one in enumerate(self.dense)}


def link_hash(data: bytes) -> str:
    """The hash of a link: of the bytes of its manifest."""
    return hashlib.sha256(data).hexdigest()


def link_name(number: int, kind: str) -> str:
    """The name of a link's folder."""
    return f"{number:06d}-{kind}"


def table_file(position: int, suffix: str) -> str:
    """The file of a table by its position in the manifest."""
    return f"table-{position:04d}.{suffix}"


def dense_file(position: int) -> str:
    """The file of a dense array by its position in the manifest."""
    return f"dense-{position:04d}.values"


def exact_members(field: DocumentField, names: set[str]) -> dict[str, DocumentField]:
    """The members of an object. Raises :class:`TornCheckpoint` unless they have exactly these names."""
    members = field.members()
    if members.keys() != names:
        raise TornCheckpoint("an object must have the members of its format, got others", where=field.place,
                             value=", ".join(sorted(members.keys() ^ names))[:200])  # fmt: skip
    return members


def check_format(document: DocumentField, form: str) -> None:
    """Raises :class:`OtherFormat` for a verified document of another format."""
    if (found := document.at("format").text()) != form:
        raise OtherFormat("a file must be of a format that this release reads", where=document.place, value=found[:80], allowed=form,
                          next_step="use the release of Headrace that wrote it, or export a full snapshot again")  # fmt: skip


def read_sha256(field: DocumentField) -> str:
    """A SHA-256 as 64 hexadecimal digits."""
    if not _SHA256.fullmatch(text := field.text()):
        raise TornCheckpoint("a digest must be 64 hexadecimal digits", where=field.place, value=text[:80])
    return text


def _check(link: LinkManifest, where: str) -> None:
    """Raises :class:`TornCheckpoint` for parts of a link that contradict each other."""
    rule = ""
    if (link.kind == DELTA) != (link.since is not None):
        rule = "a delta, and no full snapshot, must name the commit before it"
    elif link.number == 0 and link.previous:
        rule = "the link with number 0 must be the first of its chain"
    elif link.number and not link.previous:
        rule = "a link with a number above 0 must name the link before it"
    elif link.kind == FULL and any(one.removed or one.rows_after != one.rows for one in link.tables):
        rule = "a full snapshot must set all rows and remove none"
    elif any(one.rows > one.rows_after for one in link.tables):
        rule = "a table must have the rows that a link sets"
    elif len({(one.kind, one.table) for one in link.tables}) != len(link.tables):
        rule = "the tables of a link must have distinct names"
    elif len({one.name for one in link.dense}) != len(link.dense):
        rule = "the dense arrays of a link must have distinct names"
    if rule:
        raise TornCheckpoint(rule, where=where, value=link.name)


def _one_of(field: DocumentField, allowed: tuple[str, ...]) -> str:
    if (text := field.text()) not in allowed:
        raise TornCheckpoint("a document's value must be a known one", where=field.place, value=text[:80],
                             allowed=", ".join(allowed))  # fmt: skip
    return text


def _name(field: DocumentField) -> str:
    if not (text := field.text()):
        raise TornCheckpoint("a table or an array must have a name", where=field.place)
    return text


def _is_number(dtype: str) -> bool:
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True
