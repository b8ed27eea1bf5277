"""Recognize files that are no text logs, and say how to import them."""

from __future__ import annotations

import re

from pipelines.errors import UnknownFormat

_UNPACK = "unpack it"
#: The first bytes that tell every kind.
START_BYTES = 512
#: The first bytes of kinds of files, the name of the kind, and the next step.
_KINDS: tuple[tuple[re.Pattern[bytes], str, str], ...] = tuple(
    (re.compile(start, re.DOTALL), kind, step)
    for start, kind, step in (
        (rb"PK\x03\x04", "a zip archive", f"{_UNPACK}; save a workbook as CSV"),
        (rb"PK\x05\x06", "an empty zip archive", "check the program that writes it"),
        (rb".{257}ustar", "a tar archive", _UNPACK),
        (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
        (rb"Rar!\x1a\x07", "a rar archive", _UNPACK),
        (rb"\x1f\x9d", "a file of compress (.Z)", _UNPACK),
        (rb"\xff\x06\x00\x00sNaPpY", "a Snappy stream", _UNPACK),
        (rb"\x89LZO\x00", "an LZO file", _UNPACK),
        (rb"Obj\x01", "an Avro file", "convert it to JSON lines or Parquet"),
        (rb"ORC(?=.{0,200}[\x00\x02-\x08\x0e-\x1f])", "an ORC file", "convert it to Parquet"),
        (rb"ARROW1\x00\x00", "an Arrow file", "convert it to Parquet"),
        (rb"FEA1", "a Feather file", "convert it to Parquet"),
        (rb"\x89HDF\r\n", "an HDF5 file", "convert it to Parquet"),
        (rb"SQLite format 3\x00", "an SQLite database", "export its table as CSV"),
        (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook", "save it as CSV"),
    )
)  # fmt: skip


def refuse_other_kinds(start: bytes, path: str) -> None:
    """Raise :class:`UnknownFormat` if ``start``, the decompressed first bytes of a file, are those of another kind."""
    if start.startswith(b"PAR1"):
        raise UnknownFormat("a log must be text, got a Parquet file", where=path,
                            next_step="import it by its time column: headrace table import NAME FILE --time-column COLUMN; "
                            "or add its rows to a table: headrace table append NAME FILE")  # fmt: skip
    for form, kind, step in _KINDS:
        if form.match(start):
            raise UnknownFormat("a log must be text, or text compressed by gzip, bzip2, xz, zstd or LZ4", where=path, value=kind,
                                allowed="TSV, CSV or JSON lines", next_step=step)  # fmt: skip
