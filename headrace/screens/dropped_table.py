"""The screens of ``headrace table drop``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts
from headrace.terminal.units import bytes_text, count_text, many

if TYPE_CHECKING:
    from warehouse.changes.drop_table import DroppedTable

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, repr=False)
class DroppedTableScreen(Shown):
    """A dropped table, or what dropping it would do. ``deleted_files`` are those of an imported table."""

    dropped: DroppedTable
    imported: bool
    deleted_files: int
    deleted_bytes: int
    refused: bool

    def json_fields(self) -> dict[str, Any]:
        """The fields of the dropped table without its fragments; ``done`` is last."""
        own = fields_of(self, "dropped")
        return {**fields_of(self.dropped, "fragments", "done"), **own, "done": self.dropped.done}

    def render(self) -> RenderableType:
        """One sentence, the consequences, and the next step."""
        said = f"{'dropped' if self.dropped.done else 'would drop'} table {self.dropped.table}, {many(self.dropped.version, 'version')}"
        pairs = [
            (
                "its data",
                f"{many(self.dropped.rows, 'row')} in {many(self.dropped.partitions, 'partition')}, {bytes_text(self.dropped.size_bytes)}",
            ),
            ("its files", self._files()),
            ("its memos", self._memos()),
            ("its models", self._models()),
        ]
        if self.dropped.running_tasks or self.dropped.queued_tasks:
            pairs.append(("its tasks", f"running: {count_text(self.dropped.running_tasks)}; queued, not computed any more: "
                          f"{count_text(self.dropped.queued_tasks)}"))  # fmt: skip
        if self.dropped.readers:
            pairs.append(("read by", ", ".join(self.dropped.readers)))
        return Group(said, facts(pairs), self._next())

    def _files(self) -> str:
        if self.deleted_files:
            verb = "were deleted" if self.dropped.done else "are deleted"
            return f"{many(self.deleted_files, 'file')} under {self.dropped.root}, {bytes_text(self.deleted_bytes)}, {verb}"
        if self.imported and not self.dropped.done:
            return f"stay in {self.dropped.root}; --delete-files deletes them"
        return f"stay in {self.dropped.root}"

    def _memos(self) -> str:
        shared = (
            f"; {count_text(self.dropped.shared_memos)} more stay: another table holds equal data"
            if self.dropped.shared_memos
            else ""
        )
        verb = "were evicted" if self.dropped.done else "are evicted"
        return (
            f"{many(self.dropped.memos, 'memo')} {verb}{shared}"
            if self.dropped.memos or self.dropped.shared_memos
            else "none"
        )

    def _models(self) -> str:
        if not self.dropped.models:
            return "none"
        more = (
            f", and {len(self.dropped.models) - _NAMES_SHOWN} more" if len(self.dropped.models) > _NAMES_SHOWN else ""
        )
        return f"{', '.join(self.dropped.models[:_NAMES_SHOWN])}{more} {'were' if self.dropped.done else 'are'} retired"

    def _next(self) -> str:
        if self.dropped.done:
            return "next: headrace gc deletes the files of its memos and overlays"
        if self.refused:
            return (
                "nothing was changed: models, tasks or jobs read it; next: retire the models, or the same command with "
                "--yes --force"
            )
        return "nothing was changed; next: the same command with --yes"


@dataclass(frozen=True, slots=True, repr=False)
class RemovedFilesScreen(Shown):
    """The files of a table that is not registered, and whether they were deleted."""

    table: str
    folders: tuple[str, ...]
    files: int
    size_bytes: int
    done: bool

    def render(self) -> RenderableType:
        """One sentence, the folders, and the next step."""
        verb = "deleted" if self.done else "would delete"
        text = f"table {self.table} is not registered; {verb} {many(self.files, 'file')} of it, {bytes_text(self.size_bytes)}"
        return Group(
            text, *self.folders, *([] if self.done else ["nothing was changed; next: the same command with --yes"])
        )
