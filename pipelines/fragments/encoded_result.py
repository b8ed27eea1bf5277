"""A fragment's result as the line of JSON that travels from the process that computes it to the one that commits it.

The child encodes the line, whatever passes it on leaves it as it is, and the committer decodes it. What is counted on the way
travels beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from pipelines.fragments.work import FragmentResult
from pipelines.runners.error_documents import error_document, error_from_document, read_object
from transforms.errors import StorageError


class ResultCounts(NamedTuple):
    """What a runner's counters add up over results."""

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
    def of(cls, result: FragmentResult) -> EncodedResult:
        """The result encoded."""
        failed = sum(outcome.failure is not None for outcome in result.outcomes)
        counts = ResultCounts(result.rows, result.raw_bytes_read, len(result.outcomes) - failed, failed)
        return cls(json.dumps({"result": result.to_document()}, sort_keys=True).encode("utf-8"), counts)


def encode_error(error: StorageError) -> bytes:
    """The line that stands for a result where a memo file could not be written."""
    return json.dumps({"error": error_document(error)}, sort_keys=True).encode("utf-8")


def decode_line(line: bytes, where: str) -> FragmentResult:
    """The result in a line that was found at ``where``.

    Raises the error that :func:`encode_error` wrote, and :class:`~transforms.errors.DataError` for a line that neither wrote.
    """
    document = read_object(line, where)
    if "error" in document:
        raise error_from_document(document["error"])
    return FragmentResult.from_document(document.get("result"))
