"""What a host asks of a reader: a piece of a work unit, which is events of one fragment, by a read solution that both have."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields

from transforms.errors import DataError

#: The longest request.
MOST_REQUEST_BYTES = 1 << 14
_MOST_NUMBER = 2**62
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """Events ``first_row`` to ``first_row + rows`` of the fragment at ``fragment`` (its key), deleted ones included in the count.

    Attributes:
        number: the place of its first event in the order of training.
        attempt: the attempt of the epoch; answers to an earlier one are discarded.
        solution: the digest of the read solution.
    """

    number: int
    attempt: int
    solution: str
    fragment: str
    first_row: int
    rows: int

    def __post_init__(self) -> None:
        for name in ("number", "attempt", "first_row", "rows"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= _MOST_NUMBER:
                raise DataError(f"{name} of a unit must be an integer from 0 on", value=value)
        if not isinstance(self.solution, str) or not _DIGEST.fullmatch(self.solution):
            raise DataError("solution of a unit must be a SHA-256 in hexadecimal", value=self.solution)
        if not isinstance(self.fragment, str) or not self.fragment:
            raise DataError("fragment of a unit must be a string", value=self.fragment)

    def to_bytes(self) -> bytes:
        """The request as a Flight ticket, the inverse of :meth:`from_bytes`."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> UnitRequest:
        """The request in a ticket. Raises :class:`DataError`."""
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
        return cls(**document)


def _names(document: object) -> str:
    return ", ".join(sorted(map(str, document)))[:200] if isinstance(document, dict) else type(document).__name__
