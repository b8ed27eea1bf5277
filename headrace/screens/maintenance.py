"""Screens of ``headrace pins``, ``gc``, ``compact`` and ``verify``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rich.console import Group, RenderableType

from headrace.screens.grid import grid
from headrace.screens.units import bytes_text, count_text, many, secs_text, time_text

#: Places and memos that a person is shown; the JSON has all.
_MOST_PLACES, _MOST_MEMOS = 40, 6

_AGAIN = "nothing was changed; next: the same command with --yes"


@dataclass(frozen=True, slots=True)
class PinRow:
    """One running job, and what it reads: partitions from ``start`` to ``end``, None where its range is open."""

    holder: str
    model: str
    version: int
    table: str
    start: datetime | None
    end: datetime | None
    components: int
    since: datetime
    expires_in_secs: float


@dataclass(frozen=True, slots=True)
class PinsScreen:
    """The pins that hold now."""

    pins: tuple[PinRow, ...]

    def render(self) -> RenderableType:
        """A line a pin."""
        if not self.pins:
            return "no running job has pinned anything"
        rows = (
            (pin.holder, f"{pin.model} v{pin.version}", pin.table, time_text(pin.start), time_text(pin.end),
             count_text(pin.components), time_text(pin.since), secs_text(pin.expires_in_secs))
            for pin in self.pins
        )  # fmt: skip
        columns = ("job", "model", "table", "from", "to", "components>", "since", "expires in>")
        return grid(columns, rows)


@dataclass(frozen=True, slots=True)
class GarbageRow:
    """Files of one kind that nothing names."""

    kind: str
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GarbageScreen:
    """What a collection deleted, or would delete, and what stays for running jobs.

    ``expired_leases``: of workers that were lost with tasks that no live model waits for. ``foreign``: paths under
    Headrace's folders that are not of its making; they stay.
    """

    dry_run: bool
    garbage: tuple[GarbageRow, ...]
    files: int
    size_bytes: int
    pinned_files: int
    pinned_bytes: int
    named_meanwhile: int
    expired_leases: int
    foreign: tuple[str, ...]

    def render(self) -> RenderableType:
        """A line a kind, the sum, and the next step."""
        parts: list[RenderableType] = []
        if self.garbage:
            rows = ((row.kind, count_text(row.files), bytes_text(row.size_bytes)) for row in self.garbage)
            parts += [grid(("kind", "files>", "size>"), rows), ""]
            verb = "would delete" if self.dry_run else "deleted"
            parts.append(f"{verb} {many(self.files, 'file')}, {bytes_text(self.size_bytes)}")
        else:
            parts.append("there is nothing to delete" if self.dry_run else "nothing was deleted")
        if self.pinned_files:
            parts.append(f"{count_text(self.pinned_files)} more, {bytes_text(self.pinned_bytes)}, kept while jobs may "
                         "read them: headrace pins lists these")  # fmt: skip
        if self.named_meanwhile:
            parts.append(f"named or deleted by another process meanwhile: {many(self.named_meanwhile, 'file')}")
        if self.expired_leases:
            verb = "would end" if self.dry_run else "ended"
            parts.append(
                f"{verb} {many(self.expired_leases, 'lease')} of lost workers, with tasks that no worker takes up"
            )
        if self.foreign:
            parts.append(f"not made by Headrace, and left: {many(len(self.foreign), 'path')}")
            parts += [f"  {path}" for path in self.foreign[:_MOST_PLACES]]
            if len(self.foreign) > _MOST_PLACES:
                parts.append(f"  and {count_text(len(self.foreign) - _MOST_PLACES)} more: --json lists them all")
        if self.dry_run and (self.garbage or self.expired_leases):
            parts.append(_AGAIN)
        return Group(*parts)


@dataclass(frozen=True, slots=True)
class CompactedScreen:
    """What a compaction did, or would do."""

    dry_run: bool
    old_files: int
    new_files: int
    written_bytes: int
    freed_bytes: int
    memos: int
    left: int
    damaged: tuple[str, ...]

    def render(self) -> RenderableType:
        """One sentence, what was in the way, and the next step."""
        if not self.new_files and not self.damaged:
            return "no file is worth rewriting" if self.dry_run else "nothing was rewritten"
        verb, about = ("would rewrite", "about ") if self.dry_run else ("rewrote", "")
        parts: list[RenderableType] = [
            f"{verb} {many(self.old_files, 'file')} as {count_text(self.new_files)} of {about}{bytes_text(self.written_bytes)}"
            f": {about}{bytes_text(self.freed_bytes)} {'can be freed' if self.dry_run else 'less'}"
        ]
        if self.left:
            parts.append(f"evicted or moved meanwhile, and left where they were: {many(self.left, 'memo')}")
        if self.damaged:
            parts.append(f"damaged, and computed again where a model reads them: {many(len(self.damaged), 'memo')}")
            parts += [f"  {one}" for one in self.damaged]
        parts.append(_AGAIN if self.dry_run else "next: headrace gc deletes the old files once no job reads them")
        return Group(*parts)


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One thing that is wrong. ``component``: the fingerprint of the memo's, where a memo is wrong."""

    kind: str
    where: str
    what: str
    next_step: str
    component: str
    repaired: bool


@dataclass(frozen=True, slots=True)
class VerifiedScreen:
    """What was verified, and what was found wrong. ``wrong``: findings that are not repaired."""

    files: int
    read_files: int
    memos: int
    read_bytes: int
    overlays: int
    artifacts: int
    recomputed: int
    wrong: int
    findings: tuple[FindingRow, ...]

    def render(self) -> RenderableType:
        """What was looked at, then every finding with its next step."""
        looked = (
            f"{many(self.files, 'memo file')} compared with the catalog, {count_text(self.read_files)} of them read: "
            f"{many(self.memos, 'memo')}, {bytes_text(self.read_bytes)}"
        )
        others = [
            f"{many(count, noun)} {done}"
            for count, noun, done in (
                (self.overlays, "overlay file", "read"),
                (self.artifacts, "artifact", "read"),
                (self.recomputed, "memo", "computed again and compared"),
            )
            if count
        ]
        parts: list[RenderableType] = [looked, *([", ".join(others)] if others else [])]
        if not self.findings:
            return Group(*parts, "all is well")
        places = _together(self.findings)
        for one, components in places[:_MOST_PLACES]:
            parts += ["", f"{'repaired: ' if one.repaired else ''}{one.kind}: {one.what}", f"  where:   {one.where}"]
            parts += [f"  memos:   {_listed(components)}"] if components else []
            parts += [] if one.repaired else [f"  next:    {one.next_step}"]
        if len(places) > _MOST_PLACES:
            parts += ["", f"and {many(len(places) - _MOST_PLACES, 'place')} more: --json lists them all"]
        repaired = len(self.findings) - self.wrong
        parts += ["", f"{count_text(self.wrong)} wrong, {count_text(repaired)} repaired"]
        return Group(*parts)


def _together(findings: tuple[FindingRow, ...]) -> list[tuple[FindingRow, list[str]]]:
    """Findings that differ in the component only, once, with the components; in their order."""
    places: dict[FindingRow, list[str]] = {}
    for one in findings:
        places.setdefault(replace(one, component=""), []).extend([one.component] if one.component else [])
    return list(places.items())


def _listed(components: list[str]) -> str:
    shown = ", ".join(fingerprint[:12] for fingerprint in components[:_MOST_MEMOS])
    more = len(components) - _MOST_MEMOS
    return f"{count_text(len(components))}: {shown}" + (f" and {count_text(more)} more" if more > 0 else "")
