"""The manifest of a checkpoint: its arrays, with a digest of itself. Pure.

The file is the canonical JSON text of one object. Its member ``sha256`` is the SHA-256 of the canonical JSON text without
that member, in every format version, so an unknown version differs from damage. Array k of the list is the file
``array-<k>.npy``. The digest of a file covers its purpose and then its bytes, including the npy header.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.checkpoints.shard_name import NO_SHARDS, ShardName, WrittenShards
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from transforms.derived_documents import document_of
from transforms.graphs.encoding import encode

FORMAT = "headrace.checkpoint/3"
#: The format of a checkpoint whose tables are in shards that servers have written.
SHARDED_FORMAT = "headrace.checkpoint/4"
#: Formats that are read. Since 3 a checkpoint holds its task and each fragment's content, and counts every stored event.
READABLE = (SHARDED_FORMAT, FORMAT, "headrace.checkpoint/2")
#: The format whose manifest had no digest of itself.
_UNVERIFIED_FORMAT = "headrace.checkpoint/1"

MANIFEST = "manifest.json"
STATE = "state.json"


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """The size of a file and the digest of its purpose and bytes (:func:`purpose_digest`)."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a checkpoint after ``epochs_done`` epochs.

    Attributes:
        epochs_done: the number of epochs, also in the folder's name.
        state: the JSON document, ``state.json``.
        arrays: names with their files, in the order of the files' numbers.
        format: the checkpoint's format, one of :data:`READABLE`.
        shards: those of its tables that servers have written; of :data:`SHARDED_FORMAT`.
    """

    epochs_done: int
    state: CheckpointFile
    arrays: tuple[tuple[str, CheckpointFile], ...]
    format: str = FORMAT
    shards: WrittenShards = NO_SHARDS

    def to_bytes(self) -> bytes:
        """The text of ``manifest.json``: equal manifests give equal bytes."""
        body = {
            "format": self.format,
            "epochs_done": self.epochs_done,
            "state": document_of(self.state),
            "arrays": [{"name": name, **document_of(file)} for name, file in self.arrays],
            **(_shards_document(self.shards) if self.format == SHARDED_FORMAT else {}),
        }
        return signed_text(body)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """The inverse of :meth:`to_bytes`; ``where`` names the file in errors.

        Raises :class:`TornCheckpoint` for changed bytes, :class:`OtherFormat` for another version.
        """
        return cls.read(verified_document(data, where))

    @classmethod
    def read(cls, document: DocumentField) -> Manifest:
        """The manifest of a verified document."""
        where = document.place
        form = document.at("format").text()
        if form not in READABLE:
            raise other_format(form, READABLE, where)
        arrays = tuple(
            (item.at("name").text(), OPEN.read(CheckpointFile, item)) for item in document.at("arrays").items()
        )
        if len(dict(arrays)) != len(arrays):
            raise TornCheckpoint("the arrays of a manifest must have distinct names", where=where)
        shards = _read_shards(document) if form == SHARDED_FORMAT else NO_SHARDS
        if form == SHARDED_FORMAT and not shards:
            raise TornCheckpoint("a checkpoint of this format must name its shards, got none", where=where, value=form)
        return cls(
            document.at("epochs_done").count(), OPEN.read(CheckpointFile, document.at("state")), arrays, form, shards
        )


def _shards_document(shards: WrittenShards) -> dict[str, Any]:
    bases = {"bases": list(map(str, shards.bases))} if shards.bases else {}
    return {"shards": list(map(str, shards.names)), **bases}


def _read_shards(document: DocumentField) -> WrittenShards:
    names, bases = (
        tuple(ShardName.parse(item.text(), item.place) for item in document.at(one).items())
        if document.has(one)
        else ()
        for one in ("shards", "bases")
    )
    return WrittenShards(names, bases)


def array_file(position: int) -> str:
    """The file name of a manifest's array number ``position``."""
    return f"array-{position:04d}.npy"


def purpose_digest(purpose: str, name: str = "", form: str = FORMAT) -> hashlib._Hash:
    """SHA-256 of a file's purpose, to be continued with its bytes. ``purpose`` is "state" or "array"."""
    return hashlib.sha256(encode([form, purpose, name]))


def signed_text(body: Mapping[str, Any]) -> bytes:
    """The canonical JSON text of an object with its own digest as the member ``sha256``."""
    return canonical_json({**body, "sha256": _body_digest(body)})


def verified_document(data: bytes, where: str) -> DocumentField:
    """The inverse of :func:`signed_text`. Raises :class:`TornCheckpoint` for changed bytes."""
    document = DocumentField(parse_json(data, where), where)
    body = {name: field.value for name, field in document.members().items()}
    recorded = body.pop("sha256", None)
    if recorded is None and body.get("format") == _UNVERIFIED_FORMAT:
        raise other_format(_UNVERIFIED_FORMAT, READABLE, where)
    if recorded != _body_digest(body) or data != canonical_json(document.value):
        raise TornCheckpoint("a manifest must match the digest it records, got other bytes", where=where)
    return document


def canonical_json(document: object) -> bytes:
    """UTF-8 text with sorted members, one per line. Raises :class:`ValueError` for NaN and infinities."""
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode("utf-8")


def parse_json(data: bytes, where: str) -> object:
    """The document of a UTF-8 text. Raises :class:`TornCheckpoint` for anything else, NaN and infinities included."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise TornCheckpoint("a file must be JSON text, got other bytes", where=where, value=str(error)) from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _body_digest(body: object) -> str:
    try:
        return hashlib.sha256(canonical_json(body)).hexdigest()
    except (ValueError, RecursionError):  # 1e999 is valid JSON, but parses as infinity
        return ""


def other_format(found: str, readable: Sequence[str], where: str) -> OtherFormat:
    """The error for an intact file of a format that this release does not read."""
    allowed = " or ".join(readable)
    return OtherFormat(
        f"a checkpoint must have the format {allowed}, got {found}",
        where=where,
        value=found,
        allowed=allowed,
        next_step="continue with the release of Headrace that wrote it, or train from the beginning in another run directory",
    )
