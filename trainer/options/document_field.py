"""Typed access to the JSON documents of a checkpoint; errors name the place of a bad value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Self

from trainer.errors import TornCheckpoint
from transforms.derived_documents import Derivation
from transforms.documents import MOST, Part, shortened
from transforms.errors import HeadraceError

STRICT: Final = Derivation()
#: Of documents whose further members are passed over, so that a release reads those of later ones.
OPEN: Final = Derivation(with_others=True)


class DocumentField(Part):
    """One value of a JSON document, of any length. Each method raises :class:`TornCheckpoint` for a value of another kind.

    Args:
        value: the result of :func:`json.loads`.
        within: its place, such as ``state.json``.
    """

    __slots__ = ()

    @property
    def place(self) -> str:
        """The place in the document, after that of the document."""
        return self._within if isinstance(self._within, str) else super().place

    def refused(self, rule: str, *, value: object = None) -> TornCheckpoint:
        """The error that this value must be ``rule``."""
        found = shortened(self.value if value is None else value)
        return TornCheckpoint(f"{self.place} must be {rule}, got {found}", where=self.place, value=found, allowed=rule)

    def refused_by(self, error: HeadraceError) -> TornCheckpoint:
        """The error that this value is not what ``error``, of the value in it, says that it must be."""
        return TornCheckpoint(
            error.what, where=self.place, value=error.value, allowed=error.allowed, next_step=error.next_step
        )

    def at(self, name: str) -> Self:
        """The member ``name`` of an object."""
        if not self.has(name):
            _ = self.members()
            raise TornCheckpoint(f"a document must hold {name!r}, got none", where=self.place)
        return super().at(name)

    def members(self) -> dict[str, Self]:
        """The members of an object, in its order."""
        if not isinstance(self.value, Mapping):
            raise self.refused("an object")
        return {name: self._part(item, name) for name, item in self.value.items()}

    def members_as_they_are(self) -> dict[str, object]:
        """The members of an object as JSON values."""
        return {name: member.value for name, member in self.members().items()}

    def items(self, *, most: int = MOST, least: int = 0) -> list[Self]:
        """The items of a list."""
        return list(super().items(most=most, least=least))

    def text(self, *, least: int = 0, most: int = MOST, any_character: bool = True) -> str:
        """A text."""
        return super().text(least=least, most=most, any_character=any_character)

    def texts(self) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(item.text() for item in self.items())

    def count(self, *, most: int = MOST) -> int:
        """An integer in [0, ``most``]."""
        return self.integer(0, most)

    def number(self, least: float = -math.inf) -> float:
        """A finite number from ``least`` on."""
        return super().number(least)
