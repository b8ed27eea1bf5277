"""The options that choose components, for searches and evictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import component_names, model_names, table_names
from headrace.terminal.quantities import bytes_of
from transforms.errors import InputError

if TYPE_CHECKING:
    from warehouse.search.query import ComponentQuery

Column = Annotated[str | None, typer.Option(help="Reads this raw column.")]
Operator = Annotated[str | None, typer.Option(help="Applies this operator; name@2 for one version of it.")]
Subgraph = Annotated[
    str | None,
    typer.Option(autocompletion=component_names, help="Is, or contains, the subgraph with this fingerprint prefix."),
]
PatternText = Annotated[
    str | None, typer.Option("--pattern", help="Contains a match of this pattern, such as 'unigrams(lower(_))'.")
]
ModelName = Annotated[str | None, typer.Option("--model", autocompletion=model_names, help="Is read by this model.")]
ClientName = Annotated[str | None, typer.Option("--client", help="Is read by a model of this client.")]
TableName = Annotated[
    str | None, typer.Option("--table", autocompletion=table_names, help="Is read by a model over this table.")
]
MinSize = Annotated[str | None, typer.Option(help="Takes at least this, such as 20MB.")]
MaxSize = Annotated[str | None, typer.Option(help="Takes at most this.")]
MinHits = Annotated[
    int | None, typer.Option(min=0, help="Its models were submitted, or read for training, at least this often.")
]
MinSaved = Annotated[float | None, typer.Option(min=0, help="Saves at least this many seconds of computing.")]
State = Annotated[
    str | None, typer.Option(help="Has a memo in this state: ready, pending, running, failed, dropped, evicted.")
]
AGE_HELP = "a number of days (30), hours (12h), or a time (2026-03-02)."


def query_of(
    *,
    column: str | None = None,
    operator: str | None = None,
    subgraph: str | None = None,
    pattern: str | None = None,
    fingerprint: str | None = None,
    model: str | None = None,
    client: str | None = None,
    table: str | None = None,
    min_size: str | None = None,
    max_size: str | None = None,
    min_hits: int | None = None,
    min_saved: float | None = None,
    state: str | None = None,
    created_before: float | None = None,
    created_after: float | None = None,
) -> ComponentQuery:
    """The query of the options. Raises :class:`InputError` for an invalid value.

    An empty option is refused: an unset variable of a script would otherwise widen a search or an eviction.
    """
    from transforms.comparison.pattern import Pattern
    from warehouse.search.query import ComponentQuery, state_of

    refuse_empty(column=column, operator=operator, subgraph=subgraph, pattern=pattern, fingerprint=fingerprint,
                 model=model, client=client, table=table, min_size=min_size, max_size=max_size, state=state)  # fmt: skip
    return ComponentQuery(
        column=column,
        operator=operator,
        subgraph=subgraph and subgraph.lower(),
        pattern=Pattern.parse(pattern) if pattern else None,
        fingerprint=fingerprint and fingerprint.lower(),
        model=model,
        client=client,
        table=table,
        created_before=created_before,
        created_after=created_after,
        min_size_bytes=bytes_of("--min-size", min_size or ""),
        max_size_bytes=bytes_of("--max-size", max_size or ""),
        min_hits=min_hits,
        min_saved_secs=min_saved,
        state=None if state is None else state_of(state, where="--state"),
    )


def refuse_empty(**options: str | None) -> None:
    """Raise :class:`InputError` for an option with an empty text."""
    for name, text in options.items():
        if text is not None and not text.strip():
            raise InputError("a condition must have a value", where=f"--{name.replace('_', '-')}", value=text,
                             next_step="give a value, or leave the option out")  # fmt: skip
