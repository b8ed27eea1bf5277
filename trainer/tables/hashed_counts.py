"""What hashed tables have done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class HashedCounts:
    """What a table has done since its memory began, or a state was loaded.

    Attributes:
        stored: rows at this moment.
        capacity: the most rows.
        admitted: ids that got a row.
        evicted: rows that lost their place to others.
        expired: rows that lost their place by age.
        unadmitted: updates of ids that have no row because admission waits for more of them.
        unplaced: updates of ids that found no place, as their batch had more ids than the table has places.
    """

    stored: int
    capacity: int
    admitted: int
    evicted: int
    expired: int
    unadmitted: int
    unplaced: int

    def plus(self, other: HashedCounts) -> HashedCounts:
        """The counts of both together, such as those of a table on two servers."""
        return HashedCounts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def to_numbers(self, table: str) -> dict[str, float]:
        """The figures of a host's progress, by name."""
        return {f"{_NUMBERS}{name} {table}": float(value) for name, value in asdict(self).items()}

    def summary(self, table: str) -> str:
        """One line for people."""
        line = (
            f"table {table}: {self.stored:,} of {self.capacity:,} rows, {self.admitted:,} ids admitted, {self.evicted:,} evicted, "
            f"{self.expired:,} expired; {self.unadmitted:,} updates of ids that are not admitted yet"
        )
        if self.unplaced:
            line += f"; {self.unplaced:,} updates found no place: a batch has more ids than the table has rows"
        return line


#: Of a table of which a host has no part.
NO_COUNTS = HashedCounts(0, 0, 0, 0, 0, 0, 0)
_NUMBERS = "hashed "


def counts_of_numbers(numbers: Mapping[str, float]) -> dict[str, HashedCounts]:
    """The counts of each table by name, the inverse of :meth:`HashedCounts.to_numbers`; other figures are ignored."""
    found: dict[str, dict[str, int]] = {}
    for key, value in numbers.items():
        name, _, table = key.removeprefix(_NUMBERS).partition(" ")
        if key.startswith(_NUMBERS) and table:
            found.setdefault(table, {})[name] = int(value)
    names = {one.name for one in fields(HashedCounts)}
    return {table: HashedCounts(**counts) for table, counts in found.items() if counts.keys() == names}


def sum_counts(of_servers: Iterable[Mapping[str, HashedCounts]]) -> dict[str, HashedCounts]:
    """The counts of each table over all servers or hosts, by name."""
    found: dict[str, HashedCounts] = {}
    for counts in of_servers:
        for name, own in counts.items():
            found[name] = found[name].plus(own) if name in found else own
    return found
