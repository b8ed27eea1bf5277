"""The counts of an import: every row of every file is in one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The counts of one import; a second import of the same files has 0 ``rows`` and counts ``skipped_files``.

    Attributes:
        rows: rows written.
        rejected: rows in the reject files.
        partitions: paths of the partitions written to, in time order.
        late_rows: written rows of partitions that already had files.
        counts: counts of one format by name, such as negatives drawn.
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
