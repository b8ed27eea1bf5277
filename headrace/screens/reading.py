"""The screen of ``headrace model read``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import facts
from headrace.terminal.units import bytes_text, count_text, many

#: Names of columns on the screen; ``--json`` has all.
_COLUMNS_SHOWN = 40


def _listed(columns: Sequence[str]) -> str:
    more = len(columns) - _COLUMNS_SHOWN
    return ", ".join(columns[:_COLUMNS_SHOWN]) + (f", and {count_text(more)} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, repr=False)
class ReadScreen(Shown):
    """The written file. ``columns_read``: (input, fragment) pairs by the way they were obtained."""

    model: str
    version: int
    table: str
    table_version: int
    output: str
    format: str
    rows: int
    partitions: int
    first_partition: str
    last_partition: str
    columns: tuple[str, ...]
    columns_read: dict[str, int]
    size_bytes: int

    def render(self) -> RenderableType:
        """Facts."""
        several = f" to {self.last_partition}" if self.partitions > 1 else ""
        read = ", ".join(f"{count_text(count)} {_WORDS[how]}" for how, count in self.columns_read.items() if count)
        return facts((
            ("model", f"{self.model} version {self.version}"),
            ("table", f"{self.table} version {self.table_version}"),
            ("partitions", f"{count_text(self.partitions)}: {self.first_partition}{several}"),
            ("columns", _listed(self.columns)),
            ("inputs × fragments", read),
            ("written", f"{self.output}, {many(self.rows, 'row')}, {bytes_text(self.size_bytes)}"),
        ))  # fmt: skip


_WORDS = {"load": "loaded from memos", "compute": "computed", "raw": "raw"}
