"""``headrace evaluate``: the figures of a trained model on partitions, also by the values of raw columns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.held_out_scoring import OwnScores, score, score_pass
from headrace.cli.options.runs import (
    ModelOrRun,
    RunDir,
    ScoredFrom,
    ScoredUntil,
    ScoredVersion,
    named_run,
    run_folder_of,
)
from headrace.cli.options.scoring_hosts import (
    HeldOut,
    Hosts,
    HostsToken,
    Meeting,
    Rank,
    ScoringHosts,
    Supervisor,
    TableVersion,
    scoring_command,
    scoring_hosts,
)
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.solutions import pinned
from headrace.terminal.output import emit, say
from headrace.terminal.quantities import moment_of
from headrace.terminal.units import many
from trainer.job.launch.role_signals import end_with_supervisor
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.serving.segmented import Evaluation


def evaluate(
    model: ModelOrRun,
    run_dir: RunDir = "",
    version: ScoredVersion = 0,
    start: ScoredFrom = "",
    end: ScoredUntil = "",
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Also show the figures by the values of a raw column; may be repeated."),
    ] = None,
    most: Annotated[int, typer.Option(help="The values of a column that are shown, those of most events.")] = 20,
    hosts: Hosts = "",
    rank: Rank = -1,
    token_file: HostsToken = "",
    home: Home = "",
    as_json: AsJson = False,
    meeting: Meeting = "",
    supervisor: Supervisor = 0,
    held_out: HeldOut = 0,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Score each new checkpoint of the run while it is trained, until Ctrl-C; figures go to evaluations.json of the run.",
        ),
    ] = False,
    table_version: TableVersion = 0,
) -> None:
    """Score labelled events with the newest checkpoint of a trained model, and show how good the predictions are."""
    began = time.monotonic()
    if supervisor:
        end_with_supervisor(supervisor)
    together = scoring_hosts(hosts, rank, token_file, meeting)
    if follow:
        _check_follow(columns=by or (), together=together, start=start)
        if supervisor:
            from headrace.cli.following_evaluation import lower_priority

            lower_priority()
    from headrace.screens.evaluation import evaluation_screen
    from warehouse.reading.reader import read_labels
    from warehouse.tables.manifests import get_table

    if not 1 <= most <= 100_000:
        raise InputError("an option must be in its range", where="--most", value=most, allowed="1 to 100000")
    first, last = moment_of("--start", start), moment_of("--end", end)
    named, columns = named_run(model, version, run_dir), tuple(dict.fromkeys(by or ()))
    with (
        open_warehouse(home) as warehouse,
        pinned(warehouse, named.model, named.version, first, last, "evaluate", table_version) as solution,
    ):
        with warehouse.catalog.read() as connection:
            table = get_table(connection, solution.table)
        for name in columns:
            table.column(name)  # raises for an unknown one, before anything is scored
        folder = run_folder_of(named.run_dir, named.model, solution.model_version, home)
        command = partial(
            scoring_command, named.model, solution.model_version, folder, start, end, home, 1 if together is None else together.hosts,
            by=columns, most=most, table_version=solution.table_version,
        )  # fmt: skip
        if follow:
            from headrace.cli.following_evaluation import closed_input, follow_run

            is_over = closed_input() if supervisor else lambda: False
            return follow_run(warehouse, solution, folder, start, end, together, command, is_over)
        if held_out and together is not None:
            scored = score_pass(warehouse, solution, folder, held_out, together)[1]
            return _tell_scored(together, scored)
        read_columns = partial(read_labels, warehouse.storage, solution, columns=list(columns))

        def compute(own: OwnScores) -> tuple[Evaluation, OwnScores]:
            from trainer.serving.segmented import evaluate_by

            return evaluate_by(own.events, own.fragments, columns, read_columns, most=most, exchange=own.exchange), own

        found, own = score(warehouse, solution, folder, f"scoring {named.model}", compute, together, command)
    if together is not None and together.rank:
        return _tell_scored(together, len(own.events.labels))
    screen = evaluation_screen(solution, found, own.checkpoint, own.progress, time.monotonic() - began)
    emit(screen, as_json=as_json)


def _check_follow(columns: Sequence[str], together: ScoringHosts | None, start: str) -> None:
    """Raise :class:`InputError` for options that do not go with --follow."""
    if columns:
        raise InputError("--follow must go without --by", where="--by", value=", ".join(columns), next_step="headrace evaluate --by after the training")  # fmt: skip
    if together is not None and together.addresses:
        raise InputError("--follow must go with processes of this machine", where="--hosts", value=",".join(together.addresses)[:200], allowed="a number")  # fmt: skip
    if not start:
        raise InputError("--follow must have a fixed range of events", where="--start", value="not given", next_step="give --start, and --end")  # fmt: skip


def _tell_scored(together: ScoringHosts, events: int) -> None:
    """Say what a host has done whose figures another one shows."""
    say(f"host {together.rank} has scored {many(events, 'event')}: host 0 shows the figures")
