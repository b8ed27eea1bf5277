"""``headrace table compact``: merge small fragments."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from headrace.cli.options.completions import table_names
from headrace.cli.options.conditions import AGE_HELP
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.progress import progress_bar
from headrace.terminal.quantities import age_of


def compact_table_command(
    name: Annotated[str, typer.Argument(autocompletion=table_names, help="Name of the table.")],
    rows: Annotated[int, typer.Option(help="The most events of a merged fragment.", min=2)] = 1_000_000,
    older_than: Annotated[
        str, typer.Option(help=f"Only fragments of partitions that ended at least this long ago: {AGE_HELP}")
    ] = "1",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be merged, and change nothing.")] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Merge small fragments, so that their memos are computed and stored together. Files and versions do not change."""
    from headrace.screens.compact_table import CompactedTableScreen
    from warehouse.maintenance.compact_table import compact_table
    from warehouse.maintenance.progress import quiet
    from warehouse.maintenance.small_fragments import MergePolicy

    policy = MergePolicy(most_rows=rows)
    with open_warehouse(home) as warehouse:
        before = age_of("--older-than", older_than, warehouse.clock())
        with nullcontext(quiet) if dry_run else progress_bar(f"merging fragments of {name}", "groups") as report:
            done = compact_table(warehouse, name, policy, ended_before=before, dry_run=dry_run, progress=report)
    emit(CompactedTableScreen(done), as_json=as_json)
