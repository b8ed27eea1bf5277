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
from typing import Annotated, Any

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_KINDS
from trainer.checkpoints.manifest import signed_text, verified_document
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.options.document_field import STRICT, DocumentField
from trainer.serving.deltas.row_values import ENCODINGS, EXACT, arrays_of
from transforms.derived_documents import Digest, Name, document_of, number, one_of, whole
from transforms.documents import Part

FORMAT = "headrace.link/1"
MANIFEST = "manifest.json"
FULL, DELTA = "full", "delta"
KINDS = (FULL, DELTA)

_DTYPE = re.compile("[<|][biuf][1248]")
_MOST_AXES = 8
_MOST_DENSE = 2**40


def _read_dtype(part: Part) -> str:
    found = part.text()
    if not _DTYPE.fullmatch(found) or not _is_number(found):
        raise part.refused("the type of numbers")
    return found


def _is_number(dtype: str) -> bool:
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True


#: Members of several documents of served weights.
TableKind = Annotated[str, one_of(*TABLE_KINDS)]
Columns = Annotated[int, whole(1, 1 << 20)]
RowCount = Annotated[int, whole(most=2**48)]


@dataclass(frozen=True, slots=True)
class ServedCommit:
    """A commit of a run: the epochs in its name, its optimizer step, and the SHA-256 of its manifest."""

    epochs: int
    step: int
    sha256: Digest


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

    kind: TableKind
    table: Name
    columns: Columns
    encoding: Annotated[str, one_of(*ENCODINGS)]
    rows: RowCount
    removed: RowCount
    rows_after: RowCount
    largest_error: Annotated[float, number(0.0)]
    files: Annotated[Mapping[str, str], Part.digests]

    def arrays(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The type and shape of the file of each suffix."""
        values = {
            name: (dtype, (self.rows, *rest)) for name, (dtype, rest) in arrays_of(self.encoding, self.columns).items()
        }
        return {"ids": (np.dtype("<i8"), (self.rows,)), **values, "removed": (np.dtype("<i8"), (self.removed,))}

    @property
    def place(self) -> str:
        """The table as errors and screens name it."""
        return f"{self.kind} table {self.table}"

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for parts that contradict each other."""
        if self.encoding == EXACT and self.largest_error:
            raise TornCheckpoint("a table of a link must have no error where its values are exact", where=part.place,
                                 value=self.largest_error)  # fmt: skip
        if self.files.keys() != self.arrays().keys():
            raise TornCheckpoint("a table of a link must have the files of its encoding, got others", where=part.at("files").place,
                                 value=", ".join(self.files)[:200], allowed=", ".join(self.arrays()))  # fmt: skip


@dataclass(frozen=True, slots=True)
class DenseArray:
    """A dense array, whole in every link: its name, dtype, shape and the SHA-256 of its bytes."""

    name: Name
    dtype: Annotated[str, _read_dtype]
    shape: tuple[RowCount, ...]
    sha256: Digest

    @property
    def size_bytes(self) -> int:
        """The bytes of its file."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for an array that no model has."""
        if len(self.shape) > _MOST_AXES or math.prod(max(axis, 1) for axis in self.shape) > _MOST_DENSE:
            raise part.at("shape").refused(f"that of at most {_MOST_DENSE:,} numbers in at most {_MOST_AXES} axes")


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

    number: Annotated[int, whole(most=999_999_999)]
    kind: Annotated[str, one_of(*KINDS)]
    previous: Annotated[str, lambda part: part.digest() if part.value != "" else ""]
    model: Digest
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
                **document_of(self),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> LinkManifest:
        """The inverse of :meth:`to_bytes`. Raises :class:`TornCheckpoint`, or :class:`OtherFormat` for another version."""
        document = verified_document(data, where)
        check_format(document, FORMAT)
        found = STRICT.read(cls, document, extra=("format", "sha256"))
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


def check_format(document: DocumentField, form: str) -> None:
    """Raises :class:`OtherFormat` for a verified document of another format."""
    if (found := document.at("format").text()) != form:
        raise OtherFormat("a file must have a format that this release reads", where=document.place, value=found[:80], allowed=form,
                          next_step="use the release of Headrace that wrote it, or export a full snapshot again")  # fmt: skip


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
