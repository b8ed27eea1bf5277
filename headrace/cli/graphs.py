"""``headrace graphs``: the memoized graphs, queried."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.output import emit, write_output
from headrace.cli.session import AsJson, Home, open_warehouse

app = typer.Typer(help="List, show, search and evict memoized components.", no_args_is_help=True, rich_markup_mode=None)

Limit = Annotated[int, typer.Option(min=1, help="At most this many lines.")]


@app.command("ls")
def list_(limit: Limit = 50, home: Home = "", as_json: AsJson = False) -> None:
    """List the known components, largest first."""
    _search(home, as_json, limit)


@app.command("search")
def search(
    column: Annotated[str, typer.Option(help="Reads this raw column.")] = "",
    operator: Annotated[str, typer.Option(help="Applies this operator.")] = "",
    model: Annotated[str, typer.Option(help="Feeds this model.")] = "",
    fingerprint: Annotated[str, typer.Option(help="Starts with these digits.")] = "",
    limit: Limit = 50,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Find components by raw column, operator, model or fingerprint; conditions given together must all hold."""
    _search(home, as_json, limit, column=column, operator=operator, model=model, fingerprint_prefix=fingerprint)


def _search(home: str, as_json: bool, limit: int, **conditions: str) -> None:
    from headrace.screens.graphs import GraphRow, GraphsScreen
    from warehouse.search import search_components

    with open_warehouse(home) as warehouse:
        found = search_components(warehouse, **{name: value or None for name, value in conditions.items()})
    rows = (
        GraphRow(
            fingerprint=item.fingerprint,
            type=str(item.type),
            expression=item.expression,
            models=item.models,
            memos=dict(item.memos),
            rows=item.rows,
            size_bytes=item.bytes,
            secs=item.secs,
        )
        for item in sorted(found, key=lambda one: -one.bytes)[:limit]
    )
    emit(GraphsScreen(tuple(rows)), as_json=as_json)


@app.command("show")
def show(
    fingerprint: Annotated[str, typer.Argument(help="A fingerprint, or its first digits.")],
    svg: Annotated[str, typer.Option(metavar="FILE", help="Also draw the component into this SVG file.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show one component: its tree, who reads it, what is kept."""
    from headrace.screens.graphs import GraphScreen
    from transforms.render import graph_svg, tree_text
    from warehouse.search import get_component

    with open_warehouse(home) as warehouse:
        found = get_component(warehouse, fingerprint)
    screen = GraphScreen(
        fingerprint=found.fingerprint,
        type=str(found.type),
        columns=found.columns,
        operators=dict(found.operators),
        models=found.models,
        memos=dict(found.memos),
        rows=found.rows,
        size_bytes=found.bytes,
        secs=found.secs,
        tree=tree_text(found.component),
    )
    if svg:
        write_output(svg, graph_svg(found.component) + "\n", option="--svg")
    emit(screen, as_json=as_json)


@app.command("evict")
def evict(
    fingerprint: Annotated[str, typer.Argument(help="A fingerprint, or its first digits.")],
    why: Annotated[str, typer.Option(help="Kept with the tombstone, and shown by explain.")] = "evicted by hand",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would be deleted.")] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Delete every memo of one component. Says what would go, unless told --yes."""
    from headrace.screens.graphs import EvictedScreen
    from warehouse.evict import evict_component
    from warehouse.search import get_component

    with open_warehouse(home) as warehouse:
        found = get_component(warehouse, fingerprint)
        gone = evict_component(warehouse, found.fingerprint, why=why, dry_run=not yes)
    screen = EvictedScreen(
        fingerprint=found.fingerprint,
        dry_run=not yes,
        memos=gone.memos,
        rows=gone.rows,
        size_bytes=gone.bytes,
        files=len(gone.files),
        models=gone.models,
    )
    emit(screen, as_json=as_json)
