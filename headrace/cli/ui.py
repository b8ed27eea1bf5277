"""``headrace ui``: the pages of a warehouse in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.jobs import job_place
from headrace.cli.options.session import Home, home_location, home_text, open_warehouse
from headrace.terminal.output import say
from headrace.web.config import DEFAULT_PORT, READ_SECS, WebConfig
from transforms.errors import InputError, NotFound


def ui(
    host: Annotated[
        str,
        typer.Option(help="Address to listen at. One that other machines reach needs --token-file or --user-header."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0: a free one.")] = DEFAULT_PORT,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes", help="Let pages evict and restore memos and release jobs; without this they only show."
        ),
    ] = False,
    token_file: Annotated[
        str,
        typer.Option(metavar="FILE", help="File with the token that browsers present. Default: a random one, printed."),
    ] = "",
    user_header: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Header in which an identity proxy names the user; requests without it are refused."
        ),
    ] = "",
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name by which browsers reach the pages; repeatable."),
    ] = None,
    home: Home = "",
) -> None:
    """Serve pages that show the warehouse and its trainings, search its graphs, do and undo evictions, and release held jobs."""
    place = home_location(home)
    config = WebConfig(home=home_text(home), folder="" if "://" in place else place, host=host, port=port, allow_changes=allow_changes, token=_token(token_file), user_header=user_header,
                       allowed_hosts=tuple(allowed_host or ()), find_job_place=job_place)  # fmt: skip
    try:
        from headrace.web.server import serve
    except ModuleNotFoundError as error:
        raise NotFound("the pages need packages that are not installed", where="headrace ui", value=error.name,
                       next_step="pip install 'headrace[ui]'") from error  # fmt: skip
    with open_warehouse(home, read_secs=READ_SECS) as warehouse, open_warehouse(home) as patient:
        serve(
            warehouse,
            config,
            lambda address: say(f"pages of {config.home}: {address}\nCtrl-C ends them"),
            patient=patient,
        )


def _token(file: str) -> str:
    if not file:
        return ""
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InputError("the token must be a readable file of text", where="--token-file", value=str(error)) from error
    if not token:
        raise InputError("the token must not be empty", where="--token-file", value=file)
    return token
