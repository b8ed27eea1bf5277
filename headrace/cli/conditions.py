"""The options that say which components are meant, the same for searching and for evicting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.quantities import bytes_of
from transforms.errors import InputError

if TYPE_CHECKING:
    from warehouse.search_query import ComponentQuery
    from warehouse.task_states import MemoState

Column = Annotated[str, typer.Option(help="Reads this raw column.")]
Operator = Annotated[str, typer.Option(help="Applies this operator; name@2 for one version of it.")]
Subgraph = Annotated[str, typer.Option(help="Is, or contains, the subgraph whose fingerprint starts so.")]
PatternText = Annotated[str, typer.Option("--pattern", help="Contains a match, such as 'unigrams(lower(_))'.")]
ModelName = Annotated[str, typer.Option("--model", help="Is read by this model.")]
ClientName = Annotated[str, typer.Option("--client", help="Is read by a model of this client.")]
TableName = Annotated[str, typer.Option("--table", help="Is read by a model over this table.")]
MinSize = Annotated[str, typer.Option(help="Takes at least this, such as 20MB.")]
MaxSize = Annotated[str, typer.Option(help="Takes at most this.")]
MinHits = Annotated[int | None, typer.Option(min=0, help="Its models were submitted, or read for training, so often.")]
MinSaved = Annotated[float | None, typer.Option(min=0, help="Saves at least so many seconds of computing.")]
State = Annotated[str, typer.Option(help="Has a memo in this state: ready, pending, running, failed, evicted.")]
AGE_HELP = "a number of days (30), hours (12h), or a time (2026-03-02)."


def query_of(
    *,
    column: str = "",
    operator: str = "",
    subgraph: str = "",
    pattern: str = "",
    fingerprint: str = "",
    model: str = "",
    client: str = "",
    table: str = "",
    min_size: str = "",
    max_size: str = "",
    min_hits: int | None = None,
    min_saved: float | None = None,
    state: str = "",
    created_before: float | None = None,
    created_after: float | None = None,
) -> ComponentQuery:
    """The query that the options write. Raises :class:`InputError` for what cannot be read."""
    from transforms.pattern import Pattern
    from warehouse.search_query import ComponentQuery

    return ComponentQuery(
        column=column or None,
        operator=operator or None,
        subgraph=subgraph.lower() or None,
        pattern=Pattern.parse(pattern) if pattern else None,
        fingerprint=fingerprint.lower() or None,
        model=model or None,
        client=client or None,
        table=table or None,
        created_before=created_before,
        created_after=created_after,
        min_size_bytes=bytes_of("--min-size", min_size),
        max_size_bytes=bytes_of("--max-size", max_size),
        min_hits=min_hits,
        min_saved_secs=min_saved,
        state=_state(state),
    )


def _state(text: str) -> MemoState | None:
    from warehouse.task_states import MemoState

    if not text:
        return None
    try:
        return MemoState(text.upper())
    except ValueError:
        raise InputError("not a state of a memo", where="--state", value=text,
                         allowed=", ".join(state.lower() for state in MemoState)) from None  # fmt: skip
