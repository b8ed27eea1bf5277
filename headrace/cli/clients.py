"""``headrace clients``: the weights, shares and deadlines of clients."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.quantities import span_of

app = typer.Typer(
    help="List clients and their shares of the workers; set weights and deadlines.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: The value of --deadline that removes a client's own deadline.
_DEFAULT = "default"


@app.command("list")
@listing()
def list_(home: Home = "", as_json: AsJson = False) -> None:
    """List the clients with their weights, current shares, queues and deadlines."""
    from headrace.views.clients import listed

    with open_warehouse(home) as warehouse:
        screen = listed(warehouse)
    emit(screen, as_json=as_json)


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(help="Name of the client.")],
    weight: Annotated[
        float | None, typer.Option(help="Its weight relative to other clients: twice the weight, twice the workers.")
    ] = None,
    deadline: Annotated[
        str, typer.Option(help=f"How long its tasks may wait, such as 90s, 30m, 2h, 1d; {_DEFAULT} for the default.")
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Set a client's weight or deadline. It takes effect with the next lease."""
    from headrace.views.clients import changed

    default = deadline.strip().lower() == _DEFAULT
    deadline_secs = None if default or not deadline else span_of("--deadline", deadline)
    with open_warehouse(home) as warehouse:
        screen = changed(warehouse, name, weight=weight, deadline_secs=deadline_secs, default_deadline=default)
    emit(screen, as_json=as_json)
