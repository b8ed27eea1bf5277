"""The training option ``hashed``: for each table of an unbounded vocabulary, how many rows it may have and how long they stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from trainer.options.checks import check_known, refuse_option

#: The most places of a table, and the most steps of an age.
MOST_PLACES, MOST_STEPS = (1 << 31) - 16, (1 << 32) - 2
#: The most updates that admission can ask for, and the steps after which a candidate's count may be forgotten.
MOST_COUNT, MOST_CANDIDATE_STEPS = 255, (1 << 24) - 1


@dataclass(frozen=True, slots=True)
class HashedOptions:
    """The options of one hashed table, as they are given. A value of 0 is that of an option that is left out.

    Attributes:
        capacity: the most rows, on all servers or hosts together.
        budget_mib: in place of it the memory of the rows, in MiB, with everything that is kept of them.
        admit_after: an id gets a row at its n-th update.
        expire_after_steps: a row that is not updated in so many steps loses its place; 0: never.
        candidates: how many ids may be counted that have no row yet; 0: a quarter of the capacity.
        candidate_steps: the count of an id is forgotten after so many steps without an update of it.
    """

    capacity: int = 0
    budget_mib: int = 0
    admit_after: int = 1
    expire_after_steps: int = 0
    candidates: int = 0
    candidate_steps: int = 1 << 16

    @classmethod
    def read(cls, table: str, document: object) -> HashedOptions:
        """The options of an object by name, or options that were read. Raises :class:`ConfigError`."""
        where = f"hashed[{table!r}]"
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping):
            _refuse(where, document, "an object of options")
        check_known(document, _RANGES, where=where, of="a hashed table")
        for name, value in document.items():
            least, most = _RANGES[name]
            if type(value) is not int or not least <= value <= most:
                _refuse(f"{where}.{name}", value, f"an integer in [{least:,}, {most:,}]")
        if ("capacity" in document) == ("budget_mib" in document):
            given = "both" if "capacity" in document else "neither"
            _refuse(where, given, "an object with capacity, in rows, or budget_mib, one of them")
        found = cls(**document)
        if found.candidates and found.admit_after == 1:
            _refuse(f"{where}.candidates", found.candidates, "absent unless admit_after is above 1")
        return found

    def to_document(self) -> dict[str, int]:
        """The options that differ from those of an empty object."""
        neutral = HashedOptions()
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(neutral, name)}


_RANGES = {
    "capacity": (1, MOST_PLACES),
    "budget_mib": (1, 1 << 30),
    "admit_after": (1, MOST_COUNT),
    "expire_after_steps": (0, MOST_STEPS),
    "candidates": (0, MOST_PLACES),
    "candidate_steps": (1, MOST_CANDIDATE_STEPS),
}


def read_hashed(option: object) -> dict[str, HashedOptions]:
    """The options of all hashed tables, by the name of an input or table. Raises :class:`ConfigError`."""
    if not isinstance(option, Mapping):
        _refuse("hashed", option, "an object by name of an input or table")
    return {name: HashedOptions.read(name, option[name]) for name in sorted(option)}


def _refuse(where: str, value: Any, allowed: str) -> NoReturn:
    refuse_option(where, value, allowed, "docs/parameter-servers.md")
