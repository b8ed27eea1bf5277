"""The answer of a child process: two lines, a JSON document and an encoded result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The number of lines of an answer.
LINES = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """``document`` is for the parent; ``line`` is an encoded result without a newline, empty if none was requested."""

    document: Mapping[str, Any] = field(default_factory=dict)
    line: bytes = b""

    def to_bytes(self) -> bytes:
        """Encode the two lines."""
        return json.dumps(self.document).encode("utf-8") + b"\n" + self.line + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes) -> Answer:
        """The inverse of :meth:`to_bytes`."""
        document, line, _ = content.split(b"\n")
        return cls(json.loads(document), line)
