"""What an import did, in numbers that add up: every row of every file is in one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class ImportReport:
    """``rows`` were written, ``rejected`` are in the side files, ``late_rows`` of the written ones came to partitions
    that already had files. ``partitions`` are the ones written to, by path, in time order.

    ``counts`` holds what only one format knows, by name: negatives drawn, rows outside its range of hours, ...
    A second import of the same files writes nothing: ``skipped_files`` says so and ``rows`` is 0.
    """

    output: str
    rows: int
    rejected: int
    partitions: tuple[str, ...]
    late_rows: int
    files: int
    skipped_files: int
    written_files: int
    written_bytes: int
    rejects: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def to_document(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)
