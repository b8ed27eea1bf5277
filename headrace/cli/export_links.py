"""``headrace export``: links of the served weights of a run, what they are applied to, and links of states of joined columns."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.exports import chain_place, local_folder
from headrace.cli.options.runs import Run, RunVersion, run_folder
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit, emit_line
from headrace.terminal.progress import progress_bar
from headrace.terminal.stopping import ended_by_signals
from transforms.errors import DataError, InputError

if TYPE_CHECKING:
    from trainer.checkpoints.run_files import RunFiles
    from trainer.serving.deltas.export_links import Hold
    from trainer.serving.deltas.verify_chain import LinkCheck

app = typer.Typer(
    help="Export weights of a run and states of joined columns for serving: full snapshots, deltas, and their application.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Output = Annotated[
    str, typer.Option("--output", metavar="FOLDER", help="The folder of the chain of links, or gs://bucket/path.")
]
Chain = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The folder of a chain, or of one of its links; or gs://bucket/path.")
]
_QUANTIZE_HELP = "How the weights of tables are stored: none, fp16 or int8 with a scale per row."


@app.command("full")
def full(
    run: Run,
    output: Output,
    epoch: Annotated[
        int | None,
        typer.Option(help="The number of epochs of the checkpoint. Default: the newest.", show_default=False),
    ] = None,
    quantize: Annotated[str, typer.Option(help=_QUANTIZE_HELP)] = "none",
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Write all weights of a checkpoint as a full snapshot.

    It is the first link of a chain, or one more from which the chain can be replayed.
    """
    from headrace.screens.links import LinkScreen
    from trainer.serving.deltas.export_links import export_full

    chain, (folder, files) = chain_place(output, "--output"), _opened(run, version, home)
    with progress_bar("writing the link", "bytes") as report:
        link = export_full(files, chain, epochs=epoch, quantize=quantize, on_bytes=report, hold=_hold_of(folder))
    emit(LinkScreen(folder, output, link), as_json=as_json)


@app.command("delta")
def delta(
    run: Run,
    output: Output,
    since: Annotated[
        int | None,
        typer.Option(
            help="Begin a chain without a full snapshot: the number of epochs of the checkpoint that is served.",
            show_default=False,
        ),
    ] = None,
    quantize: Annotated[
        str, typer.Option(help=f"{_QUANTIZE_HELP} Default: as the link before.", show_default=False)
    ] = "",
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Write the rows that changed since the newest link of a chain.

    Rows are those of the newest checkpoint whose weights differ bit for bit; rows that are gone are written as tombstones.
    """
    from headrace.screens.links import LinkScreen, NothingNewScreen
    from trainer.serving.deltas.chain_files import read_chain
    from trainer.serving.deltas.export_links import export_delta

    chain, (folder, files) = chain_place(output, "--output"), _opened(run, version, home)
    with progress_bar("writing the link", "bytes") as report:
        link = export_delta(files, chain, since=since, quantize=quantize, on_bytes=report, hold=_hold_of(folder))
    if link is None:
        emit(NothingNewScreen(folder, output, read_chain(chain)[-1]), as_json=as_json)
    else:
        emit(LinkScreen(folder, output, link), as_json=as_json)


@app.command("states")
def states(
    model: Annotated[
        str,
        typer.Argument(
            autocompletion=model_names, help="Name of a submitted model with joined columns, or NAME@VERSION."
        ),
    ],
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="The folder of the links. Default: states/MODEL.", show_default=False)
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Answers are for events from this time on (ISO 8601, UTC). Default: from the newest row of the tables on.",
            show_default=False,
        ),
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="Write all rows again, in place of a delta.")] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Write the rows that online answers of a model's joined columns need, as a link of a chain.

    The first link has all rows, later ones the difference. hr.online(FOLDER) reads them: docs/online-states.md.
    """
    from headrace.cli.options.session import open_warehouse
    from headrace.terminal.quantities import moment_of
    from headrace.views.states import exported_states

    folder = local_folder(out or f"states/{model.partition('@')[0]}", "--out")
    with open_warehouse(home) as warehouse:
        screen = exported_states(warehouse, model, folder, since=moment_of("--since", since), full=full)
    emit(screen, as_json=as_json)


@app.command("apply")
def apply(
    chain: Chain,
    to: Annotated[
        str,
        typer.Option(
            metavar="TARGET",
            help="What is served: the folder of a version of a SavedModel that model export --trained wrote, or a folder of rows.",
        ),
    ],
    until: Annotated[
        int | None, typer.Option(help="The number of the last link to apply. Default: all.", show_default=False)
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="Write the changed SavedModel to this new folder, such as the next version."
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with links as they are added, a line for each time, until stopped.")
    ] = False,
    poll_secs: Annotated[float, typer.Option(help="Seconds between looks for links, with --follow.")] = 0.5,
    as_json: AsJson = False,
) -> None:
    """Apply the links of a chain that a target does not have yet.

    A target changes at once or not at all. A new folder becomes a folder of rows.
    """
    from headrace.screens.links import AppliedScreen
    from headrace.terminal.quiet import import_quietly
    from trainer.serving.apply_chain import apply_chain, follow_chain
    from trainer.serving.saved_model_document import is_saved_model

    target = local_folder(to, "--to")
    if follow:
        _check_follow(until, output, poll_secs)
    if is_saved_model(target):
        import_quietly("trainer.serving.saved_model_weights")
    links, new = chain_place(chain, "the chain"), local_folder(output, "--output") if output else None
    if follow:
        with ended_by_signals():
            for one in follow_chain(links, target, wait=partial(time.sleep, poll_secs)):
                emit_line(AppliedScreen(chain, one), as_json=as_json)
        return
    with progress_bar("applying links", "rows") as report:
        applied = apply_chain(links, target, until=until, output=new, on_rows=report)
    emit(AppliedScreen(chain, applied), as_json=as_json)


@app.command("verify")
def verify(chain: Chain, as_json: AsJson = False) -> None:
    """Read every byte of a chain and compare it with the recorded hashes.

    Exit status 3 if a file is damaged, or a link does not follow the one before it.
    """
    from headrace.screens.links import VerifiedChainScreen
    from trainer.serving.deltas.verify_chain import verify_chain

    checks: list[LinkCheck] = []
    with progress_bar("reading links", "files") as report:
        for check in verify_chain(chain_place(chain, "the chain")):
            checks.append(check)
            report(len(checks), len(checks), check.link)
    screen = VerifiedChainScreen(chain, tuple(checks))
    emit(screen, as_json=as_json)
    if screen.damaged:
        raise typer.Exit(DataError.exit_status)


def _check_follow(until: int | None, output: str, poll_secs: float) -> None:
    """Raise :class:`InputError` for options that do not go with --follow."""
    for option, value in (("--until", until), ("--output", output or None)):
        if value is not None:
            raise InputError(
                "--follow must go without an end", where=option, value=value, next_step=f"leave {option} out"
            )
    if not 0.01 <= poll_secs <= 3600:
        raise InputError(
            "poll_secs must be a number of seconds", where="--poll-secs", value=poll_secs, allowed="0.01 to 3600"
        )


def _hold_of(folder: str) -> Hold:
    """Keeps a commit of a local run from removal while it is read."""
    from trainer.checkpoints.held_commits import hold_commit
    from warehouse.storage.locations import is_uri

    return lambda epochs: nullcontext() if is_uri(folder) else hold_commit(Path(folder), epochs)


def _opened(run: str, version: int, home: str) -> tuple[str, RunFiles]:
    """The folder of a run and its files."""
    from trainer.checkpoints.open_run import open_run

    folder = run_folder(run, version, home)
    return folder, open_run(folder)
