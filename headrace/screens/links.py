"""Screens of ``headrace export``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many

if TYPE_CHECKING:
    from trainer.serving.apply_chain import Applied
    from trainer.serving.deltas.chain import Link, Position
    from trainer.serving.deltas.link_manifest import LinkTable, ServedCommit
    from trainer.serving.deltas.verify_chain import LinkCheck


@dataclass(frozen=True, slots=True, repr=False)
class LinkScreen(Shown):
    """A link that was written.

    Attributes:
        folder: of the run.
        output: the folder of the chain.
    """

    folder: str
    output: str
    link: Link

    def json_fields(self) -> dict[str, Any]:
        """The link, the commits before and after it, and its tables."""
        found = self.link.manifest
        return {
            "run": self.folder,
            "chain": self.output,
            "link": found.name,
            **_link_fields(self.link),
            "since": None if found.since is None else fields_of(found.since),
            "commit": fields_of(found.commit),
            "size_bytes": _size_bytes(self.link),
            "tables": [fields_of(one, "files") for one in found.tables],
            "dense": [one.name for one in found.dense],
        }

    def render(self) -> RenderableType:
        """The link, then a line per table."""
        found = self.link.manifest
        lines = [
            ("run", self.folder),
            ("link", f"{self.output}/{found.name}"),
            ("hash", self.link.hash),
            ("checkpoint", _commit_text(found.commit)),
        ]
        if found.since is not None:
            lines.append(("since", _commit_text(found.since)))
        lines += [
            ("dense", many(len(found.dense), "array")),
            ("size", bytes_text(_size_bytes(self.link))),
        ]
        columns = ("kind", "table", "width>", "rows>", "changed>", "removed>", "stored as", "largest error>")
        return Group(facts(lines), "", grid(columns, [_table_cells(one) for one in found.tables], title="tables"))


def _link_fields(link: Link) -> dict[str, Any]:
    return {"number": link.manifest.number, "kind": link.manifest.kind, "hash": link.hash}


def _size_bytes(link: Link) -> int:
    return sum(size for size, _ in link.manifest.array_files().values())


def _commit_text(commit: ServedCommit) -> str:
    return f"{many(commit.epochs, 'epoch')}, step {count_text(commit.step)}"


def _table_cells(one: LinkTable) -> tuple[str, ...]:
    counts = (one.columns, one.rows_after, one.rows, one.removed)
    return (
        one.kind,
        one.table,
        *map(count_text, counts),
        one.encoding,
        f"{one.largest_error:.3g}" if one.largest_error else "0",
    )


@dataclass(frozen=True, slots=True, repr=False)
class NothingNewScreen(Shown):
    """The newest link of a chain has the newest commit of the run: no link was written."""

    folder: str
    output: str
    newest: Link

    def json_fields(self) -> dict[str, Any]:
        """The run, the chain and its newest link; ``link`` is null."""
        return {"run": self.folder, "chain": self.output, "link": None, "newest": self.newest.manifest.name}

    def render(self) -> RenderableType:
        """One line."""
        found = self.newest.manifest
        return f"nothing new: {self.output}/{found.name} has the newest checkpoint, {_commit_text(found.commit)}"


@dataclass(frozen=True, slots=True, repr=False)
class AppliedScreen(Shown):
    """What the links of a chain changed in a target."""

    chain: str
    applied: Applied

    def json_fields(self) -> dict[str, Any]:
        """The target before and after, and the links."""
        done = self.applied
        return {
            "chain": self.chain,
            "target": str(done.place),
            "kind": done.kind,
            "before": None if done.before is None else fields_of(done.before),
            "after": fields_of(done.after),
            "applied": [_link_fields(one) for one in done.links],
            "rows": self._sum("rows"),
            "removed": self._sum("removed"),
        }

    def line(self) -> str:
        """The links in one line."""
        done = self.applied
        names = [one.manifest.name for one in done.links]
        which = names[0] if len(names) == 1 else f"{many(len(names), 'link')}, {names[0]} to {names[-1]}"
        return f"{which}: {self._rows_text()}; {done.place} is at {_position_text(done.after)}"

    def _rows_text(self) -> str:
        return f"{count_text(self._sum('rows'))} set, {count_text(self._sum('removed'))} removed"

    def _sum(self, counts: str) -> int:
        return sum(getattr(table, counts) for link in self.applied.links for table in link.manifest.tables)

    def render(self) -> RenderableType:
        """The target, and the links."""
        done = self.applied
        if not done.links:
            return f"nothing to apply: {done.place} is at {_position_text(done.after)}"
        return facts(
            (
                ("target", f"{done.place}, {done.kind}"),
                ("before", "new" if done.before is None else _position_text(done.before)),
                ("after", _position_text(done.after)),
                ("links", ", ".join(one.manifest.name for one in done.links)),
                ("rows", self._rows_text()),
            )
        )


def _position_text(at: Position) -> str:
    return f"{many(at.epochs, 'epoch')}{f', link {at.number}' if at.hash else ', as exported'}"


@dataclass(frozen=True, slots=True, repr=False)
class VerifiedChainScreen(Shown):
    """The result of each file of a chain."""

    chain: str
    files: tuple[LinkCheck, ...]

    @property
    def damaged(self) -> tuple[str, ...]:
        """The links with a damaged file."""
        return tuple(dict.fromkeys(one.link for one in self.files if one.problem))

    def json_fields(self) -> dict[str, Any]:
        """Every file, and the damaged links."""
        return {"chain": self.chain, "damaged": list(self.damaged), "files": [fields_of(one) for one in self.files]}

    def render(self) -> RenderableType:
        """One line per file, then the sum."""
        rows = [
            (one.link, one.file, one.holds, bytes_text(one.size_bytes), one.problem or "intact") for one in self.files
        ]
        table = grid(("link", "file", "holds", "size>", "result*"), rows)
        links = len({one.link for one in self.files if not one.link.startswith(".")})
        read = f"{many(len(self.files), 'file')} of {many(links, 'link')}, {bytes_text(sum(one.size_bytes for one in self.files))}"
        if not self.damaged:
            return Group(table, f"all intact: {read}")
        return Group(table, f"damaged: {', '.join(self.damaged)}; {read}",
                     "copy the damaged files again from where they were exported, or export a full snapshot to a new folder")  # fmt: skip
