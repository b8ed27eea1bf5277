"""The options ``--output`` and ``--watch`` of commands that list or show a state."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headrace.terminal.display import Display, repeat, show_as
from transforms.errors import InputError

_TABLE, _JSON, _CSV = "table", "json", "csv"
#: Shorter waits would ask a catalog without a pause.
_LEAST_WATCH_SECS = 0.1
_MOST_WATCH_SECS = 86_400

Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="table|json|csv",
        show_default=False,
        help="Print a table, one JSON document as --json does, or CSV whose columns are the fields of a row in JSON.",
    ),
]
WatchSecs = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="SECS",
        show_default=False,
        help="Show it again every SECS seconds until Ctrl-C: in place on a terminal, else below; with --json a document a line.",
    ),
]
_OUTPUT = inspect.Parameter("output", inspect.Parameter.KEYWORD_ONLY, default="", annotation=Output)
_WATCH = inspect.Parameter("watch_secs", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=WatchSecs)


def listing(*, csv: bool = True, watch: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, which emits one screen, further options.

    Args:
        csv: its screen is a :class:`~headrace.screens.listing.Listing`: ``--output``.
        watch: its screen changes while others work: ``--watch``.
    """
    added = [*([_OUTPUT] if csv else []), *([_WATCH] if watch else [])]

    def with_options(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in inspect.signature(function, eval_str=True).parameters.values()
        ]

        @functools.wraps(function)
        def command(*, output: str = "", watch_secs: float | None = None, **values: Any) -> None:
            form = chosen_form(output, as_json=values["as_json"], watch_secs=watch_secs)
            show = functools.partial(function, **{**values, "as_json": form == _JSON})
            if watch_secs is None:
                show_as(Display(as_csv=form == _CSV), show)
            else:
                repeat(show, watch_secs)

        command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
        return command

    return with_options


def chosen_form(output: str, *, as_json: bool, watch_secs: float | None) -> str:
    """The form of the output. Raises :class:`InputError` for options that contradict each other."""
    form = output.strip().lower() or (_JSON if as_json else _TABLE)
    if form not in (_TABLE, _JSON, _CSV):
        raise InputError("--output must be a known form", where="--output", value=output,
                         allowed=f"{_TABLE}, {_JSON}, {_CSV}")  # fmt: skip
    if as_json and form != _JSON:
        raise InputError("--json must be without another --output", where="--output", value=output, next_step="leave one of them out")  # fmt: skip
    if watch_secs is None:
        return form
    if not _LEAST_WATCH_SECS <= watch_secs <= _MOST_WATCH_SECS or math.isnan(watch_secs):
        raise InputError(f"--watch must be {_LEAST_WATCH_SECS} to {_MOST_WATCH_SECS} seconds", where="--watch", value=watch_secs)  # fmt: skip
    if form == _CSV:
        raise InputError("--watch must be without --output csv: a CSV file has one header", where="--watch", value=watch_secs,
                         next_step="give --json, which prints a document a line")  # fmt: skip
    return form
