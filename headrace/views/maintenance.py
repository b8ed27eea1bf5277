"""Pins of running jobs, and unreferenced files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.maintenance import GarbageScreen, PinsScreen
    from warehouse.warehouse import Warehouse


def pins(warehouse: Warehouse) -> PinsScreen:
    """What running jobs read."""
    from headrace.screens.maintenance import PinsScreen
    from warehouse.reading.pins import live_pins

    return PinsScreen(live_pins(warehouse), warehouse.clock())


def garbage(warehouse: Warehouse, *, dry_run: bool, leftover_secs: float) -> GarbageScreen:
    """Delete unreferenced files, or show them; those of unknown writers from the age of ``leftover_secs`` on."""
    from headrace.screens.maintenance import GarbageRow, GarbageScreen
    from headrace.terminal.printable import printable
    from warehouse.maintenance.gc import collect_garbage

    found = collect_garbage(warehouse, dry_run=dry_run, leftover_secs=leftover_secs)
    kinds = found.by_kind().items()
    return GarbageScreen(
        dry_run=found.dry_run,
        garbage=tuple(GarbageRow(kind, files, size_bytes) for kind, (files, size_bytes) in kinds),
        files=len(found.garbage),
        size_bytes=found.size_bytes,
        pinned_files=found.pinned,
        pinned_bytes=found.pinned_bytes,
        named_meanwhile=found.named_meanwhile,
        expired_leases=found.expired,
        foreign=tuple(printable(path, lines=False) for path in found.foreign),
    )
