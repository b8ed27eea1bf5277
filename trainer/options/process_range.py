"""How many processes of a kind a job has: a fixed number, or a range in which what the job measures decides."""

from __future__ import annotations

import re
from dataclasses import dataclass

from transforms.errors import InputError

_RANGE = re.compile(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ProcessRange:
    """The least and the most processes of a job, such as its readers or its parameter servers.

    Attributes:
        least: with which it begins, at least 1.
        most: that may run at once.
    """

    least: int
    most: int

    @classmethod
    def parse(cls, text: str, option: str) -> ProcessRange:
        """The range in ``2..8``, or the fixed number in ``4``. Raises :class:`InputError`."""
        found = _RANGE.match(text)
        least, most = (0, 0) if found is None else (int(found[1]), int(found[2] or found[1]))
        if not 1 <= least <= most:
            raise InputError(f"{option} must be a number, or a range with a least and a most number", where=option, value=text[:100],
                             allowed="a number from 1 on, such as 4, or a range, such as 2..8")  # fmt: skip
        return cls(least, most)

    @property
    def is_fixed(self) -> bool:
        """Whether the number never changes."""
        return self.least == self.most

    def __str__(self) -> str:
        return str(self.most) if self.is_fixed else f"{self.least}..{self.most}"
