"""What a child process answers: two lines, a JSON document for its parent and one that the parent passes on as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: How many lines an answer has.
LINES = 2


@dataclass(frozen=True, slots=True)
class Answered:
    """``document``: what the child says. ``line``: an encoded result, without a newline; empty if none was asked for."""

    document: Mapping[str, Any] = field(default_factory=dict)
    line: bytes = b""

    def to_bytes(self) -> bytes:
        """The two lines."""
        return json.dumps(self.document).encode("utf-8") + b"\n" + self.line + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes) -> Answered:
        """The inverse of :meth:`to_bytes`."""
        document, line, _ = content.split(b"\n")
        return cls(json.loads(document), line)
