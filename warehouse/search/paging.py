"""The place of a page in an ordered search: the key of the last component before it. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from transforms.errors import InputError

_FORM = re.compile(r"(?:(-?[0-9]{1,19})|(-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,3})?))~([0-9a-f]{1,64})")


@dataclass(frozen=True, slots=True)
class PageKey:
    """A component's place in an order: the value that it is ordered by, and its fingerprint, which orders equal values.

    A page after a key holds what comes after this place now, whether or not the component is still there.
    """

    value: float
    fingerprint: str

    @property
    def text(self) -> str:
        """The key as text, such as ``44000000~0a1b…``; :meth:`parse` gives an equal key."""
        return f"{self.value!r}~{self.fingerprint}"

    @staticmethod
    def parse(text: str, *, where: str = "after") -> PageKey:
        """The key of a text. Raises :class:`~transforms.errors.InputError`; ``where``: what gave the text."""
        form = _FORM.fullmatch(text)
        value = math.nan if form is None else int(form[1]) if form[1] else float(form[2])
        if form is None or not -(2**63) <= value < 2**63:  # what a database takes for a number of bytes
            raise InputError(f"{where} must be the key of a page", where=where, value=text,
                             allowed="a number, ~ and a fingerprint, as the page before gives it",
                             next_step="begin with the first page")  # fmt: skip
        return PageKey(value, form[3])
