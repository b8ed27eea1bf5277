"""Reject files: rows that could not be parsed, one JSON line each with place, reason and raw text."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import TooManyRejects
from pipelines.outputs.publication import make_folder, write_atomic
from pipelines.parsing.sources import LogSource
from pipelines.parsing.text import escape_bytes
from warehouse.storage.errors import translated_os_errors

_SPOOL_BYTES = 1 << 20
_RAW_CHARACTERS = 4000
_SHOWN_CHARACTERS = 80
#: Bytes that hold at least the first 4000 characters of a line.
RAW_BYTES = 4 * _RAW_CHARACTERS


@dataclass(frozen=True, slots=True)
class Reject:
    """One rejected row.

    Attributes:
        line: its first line, from 1.
        what: the reason.
        raw: its first 16,000 bytes.
        column: the bad column; empty if the whole row is bad.
        value: the bad value.
        expected: what the value must be.
        last_line: its last line if that differs from ``line``; else 0.
    """

    line: int
    what: str
    raw: bytes
    column: str = ""
    value: str | None = None
    expected: str = ""
    last_line: int = 0

    def __post_init__(self) -> None:
        if not self.last_line and b"\n" in self.raw:
            object.__setattr__(self, "last_line", self.line + self.raw.count(b"\n"))
        object.__setattr__(self, "raw", self.raw[:RAW_BYTES])

    def sentence(self, file: str, place: str = "line") -> str:
        """The reject in one line, for an error; ``place``: what its number counts."""
        column = f", column {self.column}" if self.column else ""
        got = "" if self.value is None else f", got {self.value[:_SHOWN_CHARACTERS]!r}"
        expected = f", expected {self.expected}" if self.expected else ""
        return f"{file}, {place} {self.line}{column}: {self.what}{got}{expected}"

    def to_json(self, file: str, place: str = "line") -> str:
        """The line of the reject file. Bytes that are not UTF-8 appear as ``\\xNN``; long rows are cut."""
        reason = {"what": self.what, "column": self.column, "value": self.value, "expected": self.expected}
        raw = printable(self.raw)
        lines = {place: self.line} | ({"last_line": self.last_line} if self.last_line else {})
        return json.dumps({"file": file, **lines, "reason": reason, "raw": raw}, ensure_ascii=False)


def printable(raw: bytes) -> str:
    """``raw`` as text of at most 4000 characters; bytes that are not UTF-8 are escaped."""
    return escape_bytes(raw[:RAW_BYTES]).decode("utf-8", "backslashreplace")[:_RAW_CHARACTERS]


class RejectFile:
    """The rejected rows of one log file, spooled as they are found and written at the end."""

    def __init__(self, path: str, log: str) -> None:
        self._path, self._log = path, log
        self._spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 - closed by finish
        self.reasons: Counter[str] = Counter()
        self.example = ""

    def add(self, rejects: Sequence[Reject]) -> None:
        """Add rejects of later lines."""
        with translated_os_errors(self._path, "write"):
            self._spool.write(rejects_document(rejects, self._log))
        self.reasons.update(count_reasons(rejects))
        if rejects and not self.example:
            self.example = rejects[0].sentence(os.path.basename(self._log))

    def finish(self) -> None:
        """Write the file if any row was rejected. Raises :class:`~transforms.errors.StorageError`."""
        with self._spool:
            if self.reasons:
                self._spool.seek(0)
                write_atomic(Path(self._path), lambda file: shutil.copyfileobj(self._spool, file))


def rejects_document(rejects: Iterable[Reject], file: str, place: str = "line") -> bytes:
    """The content of a reject file, in line order; ``place``: what the rejects' numbers count."""
    ordered = sorted(rejects, key=lambda reject: (reject.line, reject.column))
    return "".join(reject.to_json(file, place) + "\n" for reject in ordered).encode("utf-8", "backslashreplace")


def count_reasons(rejects: Iterable[Reject]) -> dict[str, int]:
    """The number of rejected rows by column and reason."""
    return dict(Counter(f"{reject.column}: {reject.what}".removeprefix(": ") for reject in rejects))


def check_share(rows: int, reasons: Mapping[str, int], max_share: float, where: str, example: str = "") -> None:
    """Raise :class:`TooManyRejects`, with the most frequent reasons, if more than ``max_share`` were rejected.

    ``example``: one reject as a sentence.
    """
    rejected = sum(reasons.values())
    share = rejected / max(rows + rejected, 1)
    if share <= max_share:
        return
    common = "; ".join(f"{count} x {reason}" for reason, count in Counter(reasons).most_common(3))
    example = f"\n  example: {example}" if example else ""
    raise TooManyRejects(
        f"the share of rejected rows must be at most {max_share}, got {rejected} of {rows + rejected} rows, "
        f"most often: {common}{example}",
        where=where,
        value=round(share, 4),
        allowed=f"a share of at most {max_share}",
        next_step="read the reject files there; correct the schema or the logs, or raise --max-reject-share",
    )


def reject_file_paths(sources: Sequence[LogSource], folder: Path) -> list[str]:
    """The path of each log's reject file: ``<file>.jsonl``, with a part of the hash where files share a name."""
    make_folder(folder)
    names = Counter(source.name for source in sources)
    paths = []
    for source in sources:
        path = folder / f"{source.name}.jsonl"
        if names[source.name] > 1 or _belongs_to_another(path, source):
            path = folder / f"{source.name}.{source.sha256[:8]}.jsonl"
        if os.fspath(path) in paths:  # two files of equal bytes
            path = folder / f"{source.name}.{hashlib.sha256(source.path.encode()).hexdigest()[:16]}.jsonl"
        paths.append(os.fspath(path))
    return paths


def _belongs_to_another(path: Path, source: LogSource) -> bool:
    if not path.exists():
        return False
    with translated_os_errors(str(path), "read"), path.open("rb") as file:
        first = file.readline()
    try:
        return bool(json.loads(first)["file"] != source.path) if first else False
    except (ValueError, TypeError, KeyError):  # not a reject file: it is kept
        return True
