"""``headrace tasks``: list, show, retry and drop failed tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import component_names, model_names, table_names
from headrace.cli.options.conditions import refuse_empty
from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import Screen, emit
from headrace.terminal.user import user_name
from transforms.errors import InputError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from warehouse.quarantine.query import TaskQuery
    from warehouse.scheduling.task_states import TaskState

app = typer.Typer(help="List and show failed tasks; retry or drop them.", no_args_is_help=True, rich_markup_mode=None)

Ids = Annotated[
    list[int] | None, typer.Argument(min=1, help="Numbers of tasks, instead of conditions.", show_default=False)
]
State = Annotated[
    list[str] | None,
    typer.Option(
        help="In this state: failed (quarantined), queued (to be tried again), leased, dropped; may be repeated. "
        "Default: all but dropped.",
        show_default=False,
    ),
]
ClientName = Annotated[str | None, typer.Option("--client", help="Of a model of this client.")]
ModelName = Annotated[str | None, typer.Option("--model", autocompletion=model_names, help="Of this model.")]
TableName = Annotated[str | None, typer.Option("--table", autocompletion=table_names, help="Over this table.")]
Partition = Annotated[str | None, typer.Option(help="Over this partition, such as date=2026-03-02/hour=07.")]
Component = Annotated[
    str | None, typer.Option(autocompletion=component_names, help="Of a component whose fingerprint has this prefix.")
]
Operator = Annotated[str | None, typer.Option(help="Failed in this operator.")]
Kind = Annotated[
    str | None,
    typer.Option(help="With a failure of this kind: raised, memory, stalled, lost, data, unreadable, release, defect."),
]
ExceptionName = Annotated[str | None, typer.Option("--exception", help="Failed with an exception of this type.")]
All = Annotated[bool, typer.Option("--all", help="All tasks that `headrace tasks list` shows.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would be done.")]


@app.command("list")
@listing()
def list_(
    state: State = None,
    client: ClientName = None,
    model: ModelName = None,
    table: TableName = None,
    partition: Partition = None,
    component: Component = None,
    operator: Operator = None,
    kind: Kind = None,
    exception: ExceptionName = None,
    each: Annotated[bool, typer.Option("--each", help="Print one line per task, not one per equal failure.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most this many lines.")] = 50,
    offset: Annotated[int, typer.Option(min=0, help="Number of lines to skip.")] = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """List failed tasks, one line per equal failure. All conditions must hold."""
    from headrace.views import tasks

    query = _query(None, state, client, model, table, partition, component, operator, kind, exception)
    with open_warehouse(home) as warehouse:
        screen: Screen = (tasks.page if each else tasks.groups)(warehouse, query, limit=limit, offset=offset)
    emit(screen, as_json=as_json)


@app.command("show")
def show(
    task: Annotated[str, typer.Argument(help="A task's number, or the first digits of its component's fingerprint.")],
    partition: Annotated[str | None, typer.Option(help="The partition of the component's task.")] = None,
    sample: Annotated[
        str, typer.Option(metavar="FILE", help="Also write the events on which it fails to this Parquet file.")
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show one task: the exception, the operator, the expression, and the smallest sample of events that fails."""
    from headrace.views import tasks

    refuse_empty(task=task, partition=partition)
    with open_warehouse(home) as warehouse:
        screen = tasks.shown(warehouse, task.strip(), partition=partition, sample_file=sample)
        if sample:
            _write_sample(tasks.sample(warehouse, str(screen.id)), sample)
    emit(screen, as_json=as_json)


def _write_sample(rows: pa.Table, file: str) -> None:
    import pyarrow.parquet as pq

    try:
        pq.write_table(rows, file)
    except OSError as error:
        raise StorageError("the sample cannot be written", where="--sample", value=str(error),
                           next_step="name a file in a folder that exists")  from error  # fmt: skip


@app.command("retry")
def retry(
    ids: Ids = None,
    state: State = None,
    client: ClientName = None,
    model: ModelName = None,
    table: TableName = None,
    partition: Partition = None,
    component: Component = None,
    operator: Operator = None,
    kind: Kind = None,
    exception: ExceptionName = None,
    everything: All = False,
    yes: Yes = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Queue tasks again, without delay and with all attempts. A dry run without --yes."""
    from headrace.views import tasks

    query = _query(ids, state, client, model, table, partition, component, operator, kind, exception)
    _check_chosen(query, everything=everything)
    with open_warehouse(home) as warehouse:
        screen = tasks.retried(warehouse, query, dry_run=not yes)
    emit(screen, as_json=as_json)


@app.command("drop")
def drop(
    ids: Ids = None,
    state: State = None,
    client: ClientName = None,
    model: ModelName = None,
    table: TableName = None,
    partition: Partition = None,
    component: Component = None,
    operator: Operator = None,
    kind: Kind = None,
    exception: ExceptionName = None,
    everything: All = False,
    why: Annotated[
        str, typer.Option(help="The reason, shown by explain with the date and your name.")
    ] = "dropped by hand",
    yes: Yes = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Remove tasks from the queue until they are retried; readers compute the columns. A dry run without --yes."""
    from headrace.views import tasks

    refuse_empty(why=why)
    query = _query(ids, state, client, model, table, partition, component, operator, kind, exception)
    _check_chosen(query, everything=everything)
    with open_warehouse(home) as warehouse:
        screen = tasks.dropped(warehouse, query, why=why, who=user_name(), dry_run=not yes)
    emit(screen, as_json=as_json)


def _query(
    ids: list[int] | None,
    states: list[str] | None,
    client: str | None,
    model: str | None,
    table: str | None,
    partition: str | None,
    component: str | None,
    operator: str | None,
    kind: str | None,
    exception: str | None,
) -> TaskQuery:
    from warehouse.quarantine.query import TaskQuery

    refuse_empty(client=client, model=model, table=table, partition=partition, component=component, operator=operator,
                 kind=kind, exception=exception)  # fmt: skip
    return TaskQuery(tuple(sorted(set(ids or ()))), tuple(map(_state, states or ())), client, model, table, partition, component, operator, kind, exception)  # fmt: skip


def _state(text: str) -> TaskState:
    from warehouse.quarantine.query import OPEN_STATES
    from warehouse.scheduling.task_states import TaskState

    allowed = (*OPEN_STATES, TaskState.DROPPED)
    try:
        return allowed[[state.lower() for state in allowed].index(text.strip().lower())]
    except ValueError:
        raise InputError("--state must be a state of failed tasks", where="--state", value=text,
                         allowed=", ".join(state.lower() for state in allowed)) from None  # fmt: skip


def _check_chosen(query: TaskQuery, *, everything: bool) -> None:
    """Raise unless tasks were chosen: a command without a condition is usually a mistake."""
    chosen = query != type(query)()
    if everything and chosen:
        raise InputError(
            "--all must not be combined with conditions", where="--all", value=query.text, next_step="leave out one"
        )
    if not (everything or chosen):
        raise InputError(
            "tasks must be chosen, got none", where="tasks", next_step="give numbers, conditions, or --all"
        )
