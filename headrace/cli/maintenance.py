"""``headrace pins``, ``gc``, ``compact`` and ``verify``: maintenance of stored data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.progress import progress_bar
from transforms.errors import DataError, InputError

if TYPE_CHECKING:
    from warehouse.maintenance.progress import Progress

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would be done.")]


@listing()
def pins(home: Home = "", as_json: AsJson = False) -> None:
    """List the pins of running jobs. What a job reads is not evicted until the job ends."""
    from headrace.views import maintenance

    with open_warehouse(home) as warehouse:
        screen = maintenance.pins(warehouse)
    emit(screen, as_json=as_json)


def gc(
    yes: Yes = False,
    leftover_hours: Annotated[
        float,
        typer.Option(help="The age from which files of unknown writers are deleted.", min=0.0),
    ] = 24.0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Delete unreferenced files: of evictions, compactions and killed processes. A dry run without --yes."""
    from headrace.views.maintenance import garbage

    with open_warehouse(home) as warehouse:
        screen = garbage(warehouse, dry_run=not yes, leftover_secs=leftover_hours * 3600)
    emit(screen, as_json=as_json)


def compact(
    threshold: Annotated[float, typer.Option(help="Rewrite files with less than this share of live bytes.")] = 0.5,
    least_gain_bytes: Annotated[int, typer.Option(help="Rewrite a file only if that frees this many bytes.")] = 4096,
    yes: Yes = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Rewrite memo files that are mostly evicted, and merge small ones. A dry run without --yes."""
    from headrace.screens.maintenance import CompactedScreen
    from warehouse.maintenance.compact import compact_memos
    from warehouse.maintenance.compaction import CompactionPolicy

    policy = CompactionPolicy(threshold=threshold, least_gain_bytes=least_gain_bytes)
    with open_warehouse(home) as warehouse, _progress("compacting", "files", shown=yes) as report:
        done = compact_memos(warehouse, policy, dry_run=not yes, progress=report)
    emit(CompactedScreen(done), as_json=as_json)


def verify(
    sample: Annotated[float, typer.Option(help="Read this share of all files: 1 is all, 0 none.")] = 1.0,
    recompute: Annotated[
        int, typer.Option(min=0, help="Compute this many memos again from raw data and compare the bits.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="The seed that chooses files and memos.")] = 0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Queue damaged memos again, and rebuild coverage and counts.")
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Compare stored files with the catalog. Exit status 3 if anything is wrong and not repaired."""
    from headrace.screens.maintenance import VerifiedScreen
    from warehouse.maintenance.verify import verify_warehouse

    if not 0 <= sample <= 1:
        raise InputError("a sample must be a share of the files", where="--sample", value=sample, allowed="0 to 1")
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
