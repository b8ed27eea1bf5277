"""``headrace ps move``: move the tables of a running training to other parameter servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.files import read_file
from headrace.cli.options.runs import Run, RunVersion, job_folder, run_folder
from headrace.cli.options.servers import servers_of
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit, say
from transforms.errors import InputError, NotFound

if TYPE_CHECKING:
    from trainer.planning.plan import PartitionPlan
    from trainer.servers.moves.engine_move import MoveFigures
    from trainer.servers.moves.job_moves import MoveDocuments

#: Between sentences about the progress.
_SAY_SECS = 5.0


def move(
    run: Run,
    servers: Annotated[
        str,
        typer.Option(
            "--servers",
            metavar="N|HOST:PORT,...",
            help="The other servers: those at the addresses, or N processes of the machine that trains in one process.",
        ),
    ],
    plan: Annotated[
        str,
        typer.Option("--plan", metavar="FILE", help="Partition tables over them by this plan.", show_default=False),
    ] = "",
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Move the tables of a running training to other servers; no step is lost.

    Training in one process waits for the last rows only, a job between two of its commits for all rows. The token and the certificates are those
    that training was started with. Training goes on with the earlier servers where a move fails.
    """
    from headrace.screens.moved_servers import MovedScreen
    from trainer.servers.moves.move_checks import check_other_servers
    from trainer.servers.moves.move_documents import MoveRequest, new_id
    from trainer.servers.moves.move_requests import wait_for_move

    training = _training(run, version, home)
    files, before = training.documents, training.documents.read_state()
    request = MoveRequest(new_id(), before.training, servers_of(servers), _plan(plan))
    if not isinstance(request.servers, int):
        check_other_servers(request.servers, before.servers)
    if before.plan is not None and request.plan is None:
        raise InputError("moving the tables of a training with --plan needs a plan for the new servers", where="--plan", value="none",
                         next_step=f"headrace plan make MODEL --topology ps:{request.count} --output FILE")  # fmt: skip
    files.ask(request)
    say("training takes the request between two steps, a job after a commit")
    try:
        after = wait_for_move(files, request, training.is_training, _Progress().tell, look_secs=training.look_secs)
    except KeyboardInterrupt:
        is_withdrawn = files.withdraw(request)
        say("the request is withdrawn" if is_withdrawn else "the move goes on; headrace train says when it has ended")
        raise
    assert after.move is not None
    emit(MovedScreen.of(training.folder, before, after, after.move.figures), as_json=as_json)


class _Progress:
    """Says now and then how far a move is."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def tell(self, figures: MoveFigures) -> None:
        if figures.copied_rows and time.monotonic() - self._said >= _SAY_SECS:
            self._said = time.monotonic()
            say(f"{figures.copied_rows:,} rows copied in {figures.secs:.0f} s")


def _plan(file: str) -> PartitionPlan | None:
    from trainer.planning.plan_document import read_plan

    return read_plan(read_file(file, "--plan"), file) if file else None


@dataclass(frozen=True, slots=True)
class _Training:
    """A training that runs.

    Attributes:
        folder: of its run.
        documents: of its moves.
        is_training: whether it still runs.
        look_secs: between looks at the documents.
    """

    folder: str
    documents: MoveDocuments
    is_training: Callable[[], bool]
    look_secs: float


def _training(run: str, version: int, home: str) -> _Training:
    """The training of a run. Raises :class:`NotFound` if none runs, in a bucket :class:`~trainer.wire.flight.client.Unreachable`."""
    from trainer.job.control.job_files import JobFiles
    from trainer.job.control.job_presence import JobPresence, job_status
    from trainer.job.launch.job_spec import JobSpec
    from trainer.run.progress.lock import is_locked
    from trainer.servers.moves.job_moves import documents_of_run
    from trainer.servers.moves.move_documents import MoveFiles
    from trainer.servers.moves.move_requests import LOOK_IN_BUCKET_SECS, LOOK_SECS
    from warehouse.storage.locations import is_gcs

    folder = run_folder(run, version, home)
    job = JobFiles(job_folder(folder, home))
    spec = JobSpec.read(job) if is_gcs(folder) or job.spec.exists() else None
    if spec is not None and spec.bucket_run:  # a job folder names its run, too
        presence = JobPresence(partial(job_status, job, spec.job))
        if not presence.is_training():
            raise NotFound("ps move needs a running training with --servers", where=spec.bucket_run,
                           next_step="start it with the servers that it is to have: it goes on from its newest commit")  # fmt: skip
        return _Training(spec.bucket_run, documents_of_run(spec.bucket_run), presence.still_trains, LOOK_IN_BUCKET_SECS)
    files = MoveFiles.of_run(folder)
    if not is_locked(files.folder):
        raise NotFound("ps move needs a running training with --servers", where=folder,
                       next_step="start it with the servers that it is to have: it goes on from its newest checkpoint")  # fmt: skip
    return _Training(folder, files, partial(is_locked, files.folder), LOOK_SECS)
