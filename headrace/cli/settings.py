"""``headrace config``: the settings of a warehouse."""

from __future__ import annotations

import typer

from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, warehouse_settings
from headrace.terminal.output import emit

app = typer.Typer(help="Show the settings of a warehouse.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Keep the group: it has one command."""


@app.command("show")
@listing(watch=False)
def show(home: Home = "", as_json: AsJson = False) -> None:
    """Show each setting of a warehouse, its value, and where the value comes from: the environment, headrace.toml in the home, or the default."""
    from headrace.views.settings import shown

    emit(shown(warehouse_settings(home)), as_json=as_json)
