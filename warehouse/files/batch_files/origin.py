"""What the batches of a file were made from: the head of the file, which says whether they are stale without reading them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import IO, Annotated

import xxhash

from transforms.derived_documents import Digest, Name, document_of, read_value, whole
from transforms.documents import document_part
from transforms.errors import DataError

_MAGIC = b"HRBATCH\x01"
#: The magic number, the length of the document, and its checksum.
_HEAD = struct.Struct("<8sQQ")
#: The longest document: a million fragments.
MOST_ORIGIN_BYTES = 1 << 27


@dataclass(frozen=True)
class BatchOrigin:
    """What batches were made from.

    Attributes:
        model: the model of their inputs.
        model_version: its version.
        table: the table of their events.
        columns: the raw columns that inputs and labels read.
        contents: the content of these columns in each fragment, see :func:`warehouse.tables.content.content_digest`.
    """

    model: Name
    model_version: Annotated[int, whole(1)]
    table: Name
    columns: tuple[str, ...]
    contents: tuple[Digest, ...]

    def to_bytes(self) -> bytes:
        """The head of a file; its length is a multiple of 8."""
        text = json.dumps(document_of(self), separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return _HEAD.pack(_MAGIC, len(text), xxhash.xxh3_64_intdigest(text)) + text


def read_origin(file: IO[bytes]) -> tuple[BatchOrigin, int]:
    """The origin at the beginning of an open file, and the length of the head.

    Raises :class:`DataError` for a file without one; memory is taken for no more than the file has.
    """
    fixed = file.read(_HEAD.size)
    if len(fixed) < _HEAD.size:
        raise _damaged("its length", len(fixed))
    magic, size, checksum = _HEAD.unpack(fixed)
    if magic != _MAGIC or size > MOST_ORIGIN_BYTES or size % 8:
        raise _damaged("its format", fixed.hex())
    text = file.read(size)
    if len(text) != size or xxhash.xxh3_64_intdigest(text) != checksum:
        raise _damaged("its checksum", len(text))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged("its document", str(error)[:200]) from None
    return read_value(BatchOrigin, document_part(document, "file of batches")), _HEAD.size + size


def _damaged(what: str, value: object) -> DataError:
    return DataError(f"a file of batches must have a head as it was written, got another in {what}", value=value)
