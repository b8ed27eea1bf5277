"""``headrace pins``, ``gc``, ``compact`` and ``verify``: keeping what is stored tidy and true."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.progress import progress_bar
from transforms.errors import DataError, InputError

if TYPE_CHECKING:
    from warehouse.maintenance.progress import Progress

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would be done.")]


def pins(home: Home = "", as_json: AsJson = False) -> None:
    """List what running jobs read: it cannot be evicted until they end."""
    from headrace.screens.maintenance import PinsScreen
    from warehouse.reading.pins import live_pins

    with open_warehouse(home) as warehouse:
        found, now = live_pins(warehouse), warehouse.clock()
    emit(PinsScreen(found, now), as_json=as_json)


def gc(
    yes: Yes = False,
    leftover_hours: Annotated[
        float,
        typer.Option(help="Files of writers without a lease count as left over when they are that old.", min=0.0),
    ] = 24.0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Delete files that nothing names any more: after evictions, compactions and processes that were killed."""
    from headrace.screens.maintenance import GarbageRow, GarbageScreen
    from headrace.terminal.printable import printable
    from warehouse.maintenance.gc import collect_garbage

    with open_warehouse(home) as warehouse:
        found = collect_garbage(warehouse, dry_run=not yes, leftover_secs=leftover_hours * 3600)
    kinds = found.by_kind().items()
    screen = GarbageScreen(
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
    emit(screen, as_json=as_json)


def compact(
    threshold: Annotated[float, typer.Option(help="Rewrite files of which less than this share is live.")] = 0.5,
    least_gain_bytes: Annotated[int, typer.Option(help="Rewrite a file only if that frees so many bytes.")] = 4096,
    yes: Yes = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Rewrite memo files that are mostly evicted, and merge many small ones."""
    from headrace.screens.maintenance import CompactedScreen
    from warehouse.maintenance.compact import compact_memos
    from warehouse.maintenance.compaction import CompactionPolicy

    policy = CompactionPolicy(threshold=threshold, least_gain_bytes=least_gain_bytes)
    with open_warehouse(home) as warehouse, _progress("compacting", "files", shown=yes) as report:
        done = compact_memos(warehouse, policy, dry_run=not yes, progress=report)
    emit(CompactedScreen(done), as_json=as_json)


def verify(
    sample: Annotated[float, typer.Option(help="Read this share of all files: 1 is everything, 0 none.")] = 1.0,
    recompute: Annotated[
        int, typer.Option(min=0, help="Compute so many memos again from raw data and compare bit for bit.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Which ones are chosen depends on this number.")] = 0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Queue again what is damaged, and make coverage and counts anew.")
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Check that what is stored is what the catalog promises. Exit status 3 when something is wrong and not repaired."""
    from headrace.screens.maintenance import VerifiedScreen
    from warehouse.maintenance.verify import verify_warehouse

    if not 0 <= sample <= 1:
        raise InputError("a sample is a share of the files", where="--sample", value=sample, allowed="0 to 1")
    with open_warehouse(home) as warehouse, _progress("verifying", "files", shown=True) as report:
        found = verify_warehouse(
            warehouse, sample=sample, recompute=recompute, seed=seed, repair=repair, progress=report
        )
    emit(VerifiedScreen(found), as_json=as_json)
    if found.wrong:
        raise typer.Exit(DataError.exit_status)


@contextmanager
def _progress(what: str, unit: str, *, shown: bool) -> Iterator[Progress]:
    from warehouse.maintenance.progress import quiet

    if not shown:
        yield quiet
        return
    with progress_bar(what, unit) as report:
        yield report
