"""A fragment's result as a line of JSON.

The child that computes the fragment encodes the line, and the process that commits it decodes it. Processes between them pass
it on unchanged, with its counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from pipelines.fragments.work import FragmentResult
from pipelines.runners.error_documents import error_document, error_from_document, read_object
from transforms.errors import StorageError


class ResultCounts(NamedTuple):
    """The numbers of a result that a runner's counters sum."""

    rows: int
    raw_bytes_read: int
    memos: int
    components_failed: int


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result's ``line``, without a newline, and its ``counts``."""

    line: bytes
    counts: ResultCounts

    @classmethod
    def encode(cls, result: FragmentResult) -> EncodedResult:
        """Encode a result."""
        failed = sum(outcome.failure is not None for outcome in result.outcomes)
        counts = ResultCounts(result.rows, result.raw_bytes_read, len(result.outcomes) - failed, failed)
        return cls(json.dumps({"result": result.to_document()}, sort_keys=True).encode("utf-8"), counts)


def encode_error(error: StorageError) -> bytes:
    """Encode the error of a memo file that could not be written, in place of a result."""
    return json.dumps({"error": error_document(error)}, sort_keys=True).encode("utf-8")


def decode_line(line: bytes, where: str) -> FragmentResult:
    """Decode the result in a line found at ``where``.

    Raises the error in a line of :func:`encode_error`, and :class:`~transforms.errors.DataError` for an invalid line.
    """
    document = read_object(line, where)
    if "error" in document:
        raise error_from_document(document["error"])
    return FragmentResult.from_document(document.get("result"))
