"""What a host asks of a reader: events of one fragment, by a read solution that both have; all of a range of rows, or some of it."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from dataclasses import asdict, dataclass, fields

import numpy as np

from transforms.arrays import Array
from transforms.errors import DataError

#: The longest request.
MOST_REQUEST_BYTES = 1 << 14
#: The longest range of rows of which some are asked for: its bits fit in a request, whatever they are.
MOST_CHOSEN_RANGE = 1 << 16
#: Rows of a fragment that one reader serves to all hosts: a reader reads whole fragments, so a few readers read a large one.
_PLACE_ROWS = 1 << 18
_MOST_NUMBER = 2**62
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """Events ``first_row`` to ``first_row + rows`` of the fragment at ``fragment`` (its key), deleted ones included in the count.

    Attributes:
        number: the place of its first event in the order of training.
        attempt: the attempt of the epoch; answers to an earlier one are discarded.
        solution: the digest of the read solution.
        row_bits: of each row of the range, whether it is asked for, as bits from the lowest on; empty: all are.
    """

    number: int
    attempt: int
    solution: str
    fragment: str
    first_row: int
    rows: int
    row_bits: bytes = b""

    def __post_init__(self) -> None:
        for name in ("number", "attempt", "first_row", "rows"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= _MOST_NUMBER:
                raise DataError(f"{name} of a unit must be an integer from 0 on", value=value)
        if not isinstance(self.solution, str) or not _DIGEST.fullmatch(self.solution):
            raise DataError("solution of a unit must be a SHA-256 in hexadecimal", value=self.solution)
        if not isinstance(self.fragment, str) or not self.fragment:
            raise DataError("fragment of a unit must be a string", value=self.fragment)
        if self.row_bits and not _are_bits_of(self.row_bits, self.rows):
            raise DataError("row_bits of a unit must have a bit for each row of its range, at least one of them set",
                            value=f"{len(self.row_bits)} bytes", allowed=f"1 to {MOST_CHOSEN_RANGE:,} rows")  # fmt: skip

    @property
    def chosen(self) -> Array | None:
        """Whether each row of the range is asked for, bool [rows]; None for all."""
        if not self.row_bits:
            return None
        return np.unpackbits(np.frombuffer(self.row_bits, np.uint8), count=self.rows, bitorder="little").view(bool)

    @property
    def home(self) -> int:
        """A number that hosts have in common when they ask for rows of one place; large fragments have several places."""
        return zlib.crc32(self.fragment.encode()) + self.first_row // _PLACE_ROWS

    @property
    def most_events(self) -> int:
        """The rows that are asked for."""
        return int.from_bytes(self.row_bits, "little").bit_count() if self.row_bits else self.rows

    def to_bytes(self) -> bytes:
        """The request as the body of a frame, the inverse of :meth:`from_bytes`."""
        bits = base64.b64encode(zlib.compress(self.row_bits, 1)).decode("ascii") if self.row_bits else ""
        return json.dumps({**asdict(self), "row_bits": bits}, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> UnitRequest:
        """The request in the body of a frame. Raises :class:`DataError`."""
        try:
            if len(content) > MOST_REQUEST_BYTES:
                raise ValueError(f"{len(content)} bytes, at most {MOST_REQUEST_BYTES}")
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError("a unit must be requested by a JSON object", value=str(error)[:200]) from None
        names = {field.name for field in fields(cls)}
        if not isinstance(document, dict) or document.keys() != names:
            raise DataError("a unit must be requested by a JSON object with its members", value=_names(document),
                            allowed=", ".join(sorted(names)))  # fmt: skip
        return cls(**{**document, "row_bits": _read_bits(document["row_bits"])})


def bits_of(chosen: Array) -> bytes:
    """The ``row_bits`` of a request that asks for the rows in ``chosen``, bool [rows]; empty if all are."""
    return b"" if chosen.all() else np.packbits(chosen, bitorder="little").tobytes()


def _are_bits_of(bits: bytes, rows: int) -> bool:
    if not isinstance(bits, bytes) or not 0 < rows <= MOST_CHOSEN_RANGE or len(bits) != (rows + 7) // 8:
        return False
    return 0 < int.from_bytes(bits, "little") < 1 << rows


def _read_bits(value: object) -> bytes:
    """The bits in a document. Raises :class:`DataError`."""
    most = MOST_CHOSEN_RANGE // 8
    try:
        if not isinstance(value, str):
            raise ValueError(type(value).__name__)
        content = zlib.decompressobj().decompress(base64.b64decode(value, validate=True), most + 1) if value else b""
        if bool(content) != bool(value) or len(content) > most:
            raise ValueError(f"{len(content)} bytes")
    except (ValueError, binascii.Error, zlib.error) as error:
        raise DataError("row_bits of a unit must be compressed bits as base64", value=str(error)[:200]) from None
    return content


def _names(document: object) -> str:
    return ", ".join(sorted(map(str, document)))[:200] if isinstance(document, dict) else type(document).__name__
