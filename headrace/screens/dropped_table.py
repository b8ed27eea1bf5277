"""The screen of ``headrace table drop``: what goes, what stays, and what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.grid import facts
from headrace.screens.units import bytes_text, count_text, many

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class DroppedTableScreen:
    """What dropping a table does or, once ``done``, did. ``deleted_files`` are those of an imported table."""

    table: str
    version: int
    root: str
    partitions: int
    rows: int
    size_bytes: int
    memos: int
    memo_bytes: int
    shared_memos: int
    models: tuple[str, ...]
    running_tasks: int
    queued_tasks: int
    readers: tuple[str, ...]
    imported: bool
    deleted_files: int
    deleted_bytes: int
    refused: bool
    done: bool

    def render(self) -> RenderableType:
        """One sentence, the consequences, and the next step."""
        said = f"{'dropped' if self.done else 'would drop'} table {self.table}, {many(self.version, 'version')}"
        pairs = [
            (
                "its data",
                f"{many(self.rows, 'row')} in {many(self.partitions, 'partition')}, {bytes_text(self.size_bytes)}",
            ),
            ("its files", self._files()),
            ("its memos", self._memos()),
            ("its models", self._models()),
        ]
        if self.running_tasks or self.queued_tasks:
            pairs.append(("its tasks", f"running: {count_text(self.running_tasks)}; queued, and computed no more: "
                          f"{count_text(self.queued_tasks)}"))  # fmt: skip
        if self.readers:
            pairs.append(("read by", ", ".join(self.readers)))
        return Group(said, facts(pairs), self._next())

    def _files(self) -> str:
        if self.deleted_files:
            verb = "were deleted" if self.done else "go"
            return f"{many(self.deleted_files, 'file')} under {self.root}, {bytes_text(self.deleted_bytes)}, {verb}"
        if self.imported and not self.done:
            return f"stay in {self.root}; --delete-files deletes them"
        return f"stay in {self.root}"

    def _memos(self) -> str:
        shared = (
            f"; {count_text(self.shared_memos)} more stay, since another table holds equal data"
            if self.shared_memos
            else ""
        )
        verb = "were evicted" if self.done else "are evicted"
        return f"{many(self.memos, 'memo')} {verb}{shared}" if self.memos or self.shared_memos else "none is ready"

    def _models(self) -> str:
        if not self.models:
            return "no live model reads it"
        more = f", and {len(self.models) - _NAMES_SHOWN} more" if len(self.models) > _NAMES_SHOWN else ""
        return f"{', '.join(self.models[:_NAMES_SHOWN])}{more} {'were' if self.done else 'are'} retired"

    def _next(self) -> str:
        if self.done:
            return "next: headrace gc deletes the files of its memos and overlays"
        if self.refused:
            return ("nothing was changed: models, tasks or jobs need it; next: retire the models, or the same command with "
                    "--yes --force")  # fmt: skip
        return "nothing was changed; next: the same command with --yes"


@dataclass(frozen=True, slots=True)
class RemovedFilesScreen:
    """The files of a table that is not registered (any more), and whether they were deleted."""

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
