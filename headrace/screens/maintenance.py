"""Screens of ``headrace pins``, ``gc``, ``compact`` and ``verify``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import bytes_text, count_text, many, moment, secs_text, time_text

if TYPE_CHECKING:
    from warehouse.maintenance.compact import Compacted
    from warehouse.maintenance.findings import Finding
    from warehouse.maintenance.verify import Verified
    from warehouse.reading.pins import Pin

#: The most places and memos in the text; the JSON has all.
_MOST_PLACES, _MOST_MEMOS = 40, 6

_AGAIN = "nothing was changed; next: the same command with --yes"


@dataclass(frozen=True, slots=True, repr=False)
class PinsScreen(Listing):
    """The pins of running jobs at ``now``, in epoch seconds."""

    rows_field: ClassVar[str] = "pins"
    columns: ClassVar[tuple[str, ...]] = (
        "holder",
        "model",
        "version",
        "table",
        "start",
        "end",
        "components",
        "since",
        "expires_in_secs",
    )

    pins: tuple[Pin, ...]
    now: float

    def json_fields(self) -> dict[str, Any]:
        """The pins; ``start`` and ``end`` are null for an open range."""
        return {"pins": [self._pin_fields(pin) for pin in self.pins]}

    def _pin_fields(self, pin: Pin) -> dict[str, Any]:
        return {
            "holder": pin.holder,
            "model": pin.model,
            "version": pin.model_version,
            "table": pin.table,
            "start": pin.start,
            "end": pin.end,
            "components": len(pin.fingerprints),
            "since": moment(pin.created_at),
            "expires_in_secs": self._expires_in_secs(pin),
        }

    def _expires_in_secs(self, pin: Pin) -> float:
        return round(pin.expires_in_secs(self.now), 1)

    def render(self) -> RenderableType:
        """One line per pin."""
        if not self.pins:
            return "no running job has a pin"
        rows = (
            (pin.holder, f"{pin.model} v{pin.model_version}", pin.table, time_text(pin.start), time_text(pin.end),
             count_text(len(pin.fingerprints)), time_text(moment(pin.created_at)), secs_text(self._expires_in_secs(pin)))
            for pin in self.pins
        )  # fmt: skip
        columns = ("job", "model", "table", "from", "to", "components>", "since", "expires in>")
        return grid(columns, rows)


@dataclass(frozen=True, slots=True)
class GarbageRow:
    """Unreferenced files of one kind."""

    kind: str
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class GarbageScreen(Shown):
    """The files that a collection deleted or would delete.

    Attributes:
        pinned_files: unreferenced files that stay while jobs may read them.
        named_meanwhile: files that another process referenced or deleted during the collection.
        expired_leases: leases of lost workers on tasks that no live model reads.
        foreign: paths in Headrace's folders that Headrace did not create; they stay.
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
        """One line per kind, the sum, and the next step."""
        parts: list[RenderableType] = []
        if self.garbage:
            rows = ((row.kind, count_text(row.files), bytes_text(row.size_bytes)) for row in self.garbage)
            parts += [grid(("kind", "files>", "size>"), rows), ""]
            verb = "would delete" if self.dry_run else "deleted"
            parts.append(f"{verb} {many(self.files, 'file')}, {bytes_text(self.size_bytes)}")
        else:
            parts.append("nothing to delete" if self.dry_run else "nothing was deleted")
        if self.pinned_files:
            parts.append(
                f"{count_text(self.pinned_files)} more, {bytes_text(self.pinned_bytes)}, stay while jobs may "
                "read them: headrace pins"
            )
        if self.named_meanwhile:
            parts.append(
                f"referenced or deleted by another process during this run: {many(self.named_meanwhile, 'file')}"
            )
        if self.expired_leases:
            verb = "would end" if self.dry_run else "ended"
            parts.append(
                f"{verb} {many(self.expired_leases, 'lease')} of lost workers on tasks that no live model reads"
            )
        if self.foreign:
            parts.append(f"not created by Headrace, not deleted: {many(len(self.foreign), 'path')}")
            parts += [f"  {path}" for path in self.foreign[:_MOST_PLACES]]
            if len(self.foreign) > _MOST_PLACES:
                parts.append(f"  and {count_text(len(self.foreign) - _MOST_PLACES)} more: --json lists them all")
        if self.dry_run and (self.garbage or self.expired_leases):
            parts.append(_AGAIN)
        return Group(*parts)


@dataclass(frozen=True, slots=True, repr=False)
class CompactedScreen(Shown):
    """A compaction, done or planned."""

    compacted: Compacted

    def json_fields(self) -> dict[str, Any]:
        """The fields of the compaction without the bytes that it read."""
        return fields_of(self.compacted, "read_bytes")

    def render(self) -> RenderableType:
        """One sentence, the memos that were skipped, and the next step."""
        done = self.compacted
        if not done.new_files and not done.damaged:
            return "no file needs rewriting" if done.dry_run else "nothing was rewritten"
        verb, about = ("would rewrite", "about ") if done.dry_run else ("rewrote", "")
        parts: list[RenderableType] = [
            f"{verb} {many(done.old_files, 'file')} as {count_text(done.new_files)} of {about}{bytes_text(done.written_bytes)}"
            f": {about}{bytes_text(done.freed_bytes)} {'can be freed' if done.dry_run else 'less'}"
        ]
        if done.left:
            parts.append(
                f"evicted or moved by another process during this run, not rewritten: {many(done.left, 'memo')}"
            )
        if done.damaged:
            parts.append(f"damaged, and queued again if a model reads them: {many(len(done.damaged), 'memo')}")
            parts += [f"  {one}" for one in done.damaged]
        parts.append(_AGAIN if done.dry_run else "next: headrace gc deletes the old files once no job reads them")
        return Group(*parts)


@dataclass(frozen=True, slots=True, repr=False)
class VerifiedScreen(Shown):
    """What was verified, and the findings."""

    verified: Verified

    def json_fields(self) -> dict[str, Any]:
        """The fields of the verification; ``wrong`` counts the unrepaired findings."""
        found = self.verified
        return {**fields_of(found, "findings"), "wrong": found.wrong, "findings": found.findings}

    def render(self) -> RenderableType:
        """What was verified, then every finding with its next step."""
        found = self.verified
        looked = (
            f"{many(found.files, 'memo file')} compared with the catalog, {count_text(found.read_files)} of them read: "
            f"{many(found.memos, 'memo')}, {bytes_text(found.read_bytes)}"
        )
        others = [
            f"{many(count, noun)} {done}"
            for count, noun, done in (
                (found.overlays, "overlay file", "read"),
                (found.artifacts, "artifact", "read"),
                (found.recomputed, "memo", "computed again and compared"),
            )
            if count
        ]
        parts: list[RenderableType] = [looked, *([", ".join(others)] if others else [])]
        if not found.findings:
            return Group(*parts, "no errors found")
        places = _together(found.findings)
        for one, components in places[:_MOST_PLACES]:
            parts += ["", f"{'repaired: ' if one.repaired else ''}{one.kind}: {one.what}", f"  where:   {one.where}"]
            parts += [f"  memos:   {_listed(components)}"] if components else []
            parts += [] if one.repaired else [f"  next:    {one.next_step}"]
        if len(places) > _MOST_PLACES:
            parts += ["", f"and {many(len(places) - _MOST_PLACES, 'place')} more: --json lists them all"]
        repaired = len(found.findings) - found.wrong
        parts += ["", f"{count_text(found.wrong)} wrong, {count_text(repaired)} repaired"]
        return Group(*parts)


def _together(findings: tuple[Finding, ...]) -> list[tuple[Finding, list[str]]]:
    """The findings in order; those that differ only in the component are one, with all components."""
    places: dict[Finding, list[str]] = {}
    for one in findings:
        places.setdefault(replace(one, component=""), []).extend([one.component] if one.component else [])
    return list(places.items())


def _listed(components: list[str]) -> str:
    shown = ", ".join(fingerprint[:12] for fingerprint in components[:_MOST_MEMOS])
    more = len(components) - _MOST_MEMOS
    return f"{count_text(len(components))}: {shown}" + (f" and {count_text(more)} more" if more > 0 else "")
