"""``headrace graphs``: search, show, evict and restore components."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.evict import evict
from headrace.cli.options.completions import component_names
from headrace.cli.options.conditions import (
    AGE_HELP,
    ClientName,
    Column,
    MaxSize,
    MinHits,
    MinSaved,
    MinSize,
    ModelName,
    Operator,
    PatternText,
    State,
    Subgraph,
    TableName,
    query_of,
    refuse_empty,
)
from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit, write_output
from headrace.terminal.quantities import age_of
from headrace.terminal.user import user_name
from transforms.errors import InputError

app = typer.Typer(
    help="List, show, search, evict and restore memoized components.", no_args_is_help=True, rich_markup_mode=None
)

Limit = Annotated[int, typer.Option(min=1, help="At most this many lines.")]
Offset = Annotated[int, typer.Option(min=0, help="Number of lines to skip.")]
After = Annotated[str, typer.Option(help="Begin after this key, the next_after that --json gives of the page before.")]
Count = Annotated[bool, typer.Option("--count", help="Also count all that match.")]


@app.command("ls")
@listing(watch=False)
def list_(
    limit: Limit = 50,
    offset: Offset = 0,
    after: After = "",
    count: Count = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """List the known components, largest first."""
    from headrace.views.graphs import page

    with open_warehouse(home) as warehouse:
        screen = page(warehouse, sort="size", limit=limit, offset=offset, after=after, count=count)
    emit(screen, as_json=as_json)


@app.command("search")
@listing(watch=False)
def search(
    column: Column = None,
    operator: Operator = None,
    subgraph: Subgraph = None,
    pattern: PatternText = None,
    fingerprint: Annotated[str | None, typer.Option(help="Has a fingerprint with this prefix.")] = None,
    model: ModelName = None,
    client: ClientName = None,
    table: TableName = None,
    older_than: Annotated[
        str | None, typer.Option(help=f"Was first requested longer ago than this: {AGE_HELP}")
    ] = None,
    newer_than: Annotated[
        str | None, typer.Option(help=f"Was first requested more recently than this: {AGE_HELP}")
    ] = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    min_hits: MinHits = None,
    min_saved: MinSaved = None,
    state: State = None,
    sort: Annotated[str, typer.Option(help="newest, oldest, size, hits, saved or secs.")] = "newest",
    limit: Limit = 50,
    offset: Offset = 0,
    after: After = "",
    count: Count = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Search components; all conditions must hold."""
    from headrace.views.graphs import page
    from warehouse.search.query import SORTS

    refuse_empty(older_than=older_than, newer_than=newer_than)
    if sort not in SORTS:
        raise InputError("--sort must be a known order", where="--sort", value=sort, allowed=", ".join(SORTS))
    with open_warehouse(home) as warehouse:
        now = warehouse.clock()
        query = query_of(
            column=column,
            operator=operator,
            subgraph=subgraph,
            pattern=pattern,
            fingerprint=fingerprint,
            model=model,
            client=client,
            table=table,
            min_size=min_size,
            max_size=max_size,
            min_hits=min_hits,
            min_saved=min_saved,
            state=state,
            created_before=age_of("--older-than", older_than or "", now),
            created_after=age_of("--newer-than", newer_than or "", now),
        )
        screen = page(warehouse, query, sort=sort, limit=limit, offset=offset, after=after, count=count)
    emit(screen, as_json=as_json)


@app.command("show")
def show(
    fingerprint: Annotated[
        str, typer.Argument(autocompletion=component_names, help="A fingerprint, or its first digits.")
    ],
    svg: Annotated[
        str, typer.Option(metavar="FILE", help="Also write a drawing of the component to this SVG file.")
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show one component: its tree, the models that read it, and its memos."""
    from headrace.views.graphs import component, drawing

    with open_warehouse(home) as warehouse:
        screen = component(warehouse, fingerprint)
        if svg:
            write_output(svg, drawing(warehouse, screen.fingerprint) + "\n", option="--svg")
    emit(screen, as_json=as_json)


@app.command("memos")
@listing(watch=False)
def memos(
    fingerprint: Annotated[
        str, typer.Argument(autocompletion=component_names, help="A fingerprint, or its first digits.")
    ],
    newest: Annotated[int, typer.Option(min=1, max=10_000, help="Only the newest partitions with memos.")] = 48,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """List the memos of a component by partition."""
    from headrace.views.graphs import memos as listed

    with open_warehouse(home) as warehouse:
        screen = listed(warehouse, fingerprint, newest)
    emit(screen, as_json=as_json)


@app.command("values")
def values(
    fingerprint: Annotated[
        str, typer.Argument(autocompletion=component_names, help="A fingerprint, or its first digits.")
    ],
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show the values of a component in its newest memo: empty ones, lengths, numbers, and how often each occurs."""
    from headrace.views.graphs import values as shown

    with open_warehouse(home) as warehouse:
        screen = shown(warehouse, fingerprint)
    emit(screen, as_json=as_json)


app.command("evict")(evict)


@app.command("evictions")
@listing(watch=False)
def evictions(
    limit: Limit = 50,
    before: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Only evictions with smaller numbers.", show_default=False),
    ] = None,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """List the evictions that were done, newest first, and what of each can be restored."""
    from headrace.views.evictions import past

    with open_warehouse(home) as warehouse:
        screen = past(warehouse, limit=limit, before=before)
    emit(screen, as_json=as_json)


@app.command("restore")
def restore(
    number: Annotated[int, typer.Argument(min=1, help="The number of an eviction: headrace graphs evictions.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Restore its memos; without this, only show what would be restored.")
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Undo an eviction: its memos are ready again, as far as headrace gc has not deleted their files."""
    from headrace.views.evictions import restored

    with open_warehouse(home) as warehouse:
        screen = restored(warehouse, number, dry_run=not yes, who=user_name())
    emit(screen, as_json=as_json)
