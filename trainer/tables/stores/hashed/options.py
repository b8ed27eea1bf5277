"""The options of a table of an unbounded vocabulary, and the counts of what it has done."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.options.hashed import MOST_CANDIDATE_STEPS, MOST_COUNT, MOST_PLACES, MOST_STEPS
from trainer.tables.optimizers import slot_width
from trainer.tables.spec import TableSpec

#: The bytes of a row beside its weights and slots: its record, its share of the hash table, and its state.
ROW_OVERHEAD_BYTES = 26
#: The bytes of a candidate for admission, and the candidates in one cache line.
CANDIDATE_BYTES, WAYS = 8, 8


@dataclass(frozen=True, slots=True)
class HashedTable:
    """A table whose ids are any int64 in [0, spec.vocabulary_size), of which ``capacity`` have rows.

    Attributes:
        spec: the table; its vocabulary size limits ids only, and may be 2**63 - 1.
        capacity: the most rows.
        admit_after: an id gets a row at its n-th update; 1: at its first.
        expire_after_steps: a row that is not updated in so many steps loses its place; 0: never. Every update of the store is a step.
        candidates: how many ids may be counted that have no row yet; 0: a quarter of the capacity. Only with ``admit_after`` > 1.
        candidate_steps: a candidate's count is forgotten after so many steps without an update.

    Raises :class:`ConfigError` for options that are out of range.
    """

    spec: TableSpec
    capacity: int
    admit_after: int = 1
    expire_after_steps: int = 0
    candidates: int = 0
    candidate_steps: int = 1 << 16

    def __post_init__(self) -> None:
        where = f"table {self.spec.name}"
        if not 1 <= self.capacity <= MOST_PLACES:
            raise ConfigError("a hashed table must have space for some rows", where=where, value=self.capacity,
                              allowed=f"[1, {MOST_PLACES:,}] rows of {bytes_per_row(self)} bytes")  # fmt: skip
        for name, value, least, most in (
            ("admit_after", self.admit_after, 1, MOST_COUNT),
            ("expire_after_steps", self.expire_after_steps, 0, MOST_STEPS),
            ("candidates", self.candidates, 0, MOST_PLACES),
            ("candidate_steps", self.candidate_steps, 1, MOST_CANDIDATE_STEPS),
        ):
            if not least <= value <= most:
                raise ConfigError(f"{name} must be in range", where=where, value=value, allowed=f"[{least}, {most:,}]")

    @property
    def places(self) -> int:
        """The most rows."""
        return self.capacity

    @property
    def candidate_lines(self) -> int:
        """The cache lines of candidates, of 8 each."""
        if self.admit_after == 1:
            return 0
        return max((self.candidates or self.places // 4) // WAYS, 1)

    @property
    def candidate_places(self) -> int:
        """The ids that may wait for admission at once."""
        return WAYS * self.candidate_lines


def bytes_per_row(table: HashedTable) -> int:
    """The bytes of a row with everything that the table keeps of it; candidates by default are two bytes per row more."""
    spec = table.spec
    candidates = CANDIDATE_BYTES // 4 if table.admit_after > 1 else 0
    return 4 * (spec.dim + slot_width(spec.optimizer, spec.dim)) + ROW_OVERHEAD_BYTES + candidates
