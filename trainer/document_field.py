"""Typed access to the JSON documents of a checkpoint; errors name the place of a bad value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from trainer.errors import TornCheckpoint

_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DocumentField:
    """One value of a JSON document. Each method raises :class:`TornCheckpoint` for a value of another kind.

    Attributes:
        value: the result of :func:`json.loads`.
        place: its place, such as ``state.json: history[2].scores``.
    """

    value: object
    place: str

    def at(self, name: str) -> DocumentField:
        """The member ``name`` of an object."""
        members = self.members()
        if name not in members:
            raise TornCheckpoint(f"a document must hold {name!r}, got none", where=self.place)
        return members[name]

    def members(self) -> dict[str, DocumentField]:
        """The members of an object, in its order."""
        if not isinstance(self.value, Mapping):
            raise self._misfit("an object")
        return {name: DocumentField(item, f"{self.place}.{name}") for name, item in self.value.items()}

    def items(self) -> list[DocumentField]:
        """The items of a list."""
        if not isinstance(self.value, list):
            raise self._misfit("a list")
        return [DocumentField(item, f"{self.place}[{k}]") for k, item in enumerate(self.value)]

    def text(self) -> str:
        """A text."""
        if not isinstance(self.value, str):
            raise self._misfit("a text")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(item.text() for item in self.items())

    def count(self, *, most: int = _MOST) -> int:
        """An integer in [0, ``most``]."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not 0 <= self.value <= most:
            raise self._misfit(f"an integer in [0, {most}]")
        return self.value

    def truth(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self._misfit("true or false")
        return self.value

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, (int, float)) and not isinstance(self.value, bool):
            with suppress(OverflowError):  # an integer above all floats
                found = float(self.value)
                if math.isfinite(found):
                    return found
        raise self._misfit("a finite number")

    def _misfit(self, rule: str) -> TornCheckpoint:
        return TornCheckpoint(f"a document's value must be {rule}, got {type(self.value).__name__}", where=self.place,
                              value=repr(self.value)[:80], allowed=rule)  # fmt: skip
