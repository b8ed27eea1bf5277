"""``headrace preempt``: give a running job, or one of its processes, a preemption notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.runs import Run, RunVersion, job_folder, run_folder
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit
from headrace.terminal.quantities import check_grace
from transforms.errors import InputError, NotFound

if TYPE_CHECKING:
    from trainer.job.control.messages import JobStatus
    from trainer.scheduling.events import Role


def preempt(
    run: Run,
    role: Annotated[
        str, typer.Option(help="One process: host:h0, reader:r0, server:s0 or worker:w0. Default: the whole job.")
    ] = "",
    grace: Annotated[float, typer.Option(help="The seconds until it ends.")] = 30.0,
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Give a running job a preemption notice: it commits, and leaves. The same headrace train goes on.

    A process with a notice leaves and comes back; the job waits for it.
    """
    from headrace.screens.preempt import NoticeScreen
    from trainer.job.control.controller_client import ControllerClient
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.job_spec import JobSpec

    check_grace("--grace", grace)
    folder = run_folder(run, version, home)
    files = JobFiles(job_folder(folder, home))
    if role.startswith("server:") and not files.address.exists():
        _ask_training(folder, role)
        return emit(NoticeScreen(folder, role, grace, "training in one process"), as_json=as_json)
    client = ControllerClient.of_run(files, job=JobSpec.read(files).job)
    try:
        status = client.status()
        chosen = _role(role, status) if role else None
        client.notice(grace, chosen)
    finally:
        client.close()
    return emit(NoticeScreen(folder, role, grace, str(status.state)), as_json=as_json)


def _ask_training(folder: str, role: str) -> None:
    """Give a server of training in one process a notice. Raises :class:`NotFound` without such a training or server."""
    from trainer.run.progress.lock import is_locked
    from trainer.servers.moves.move_documents import MoveFiles

    files = MoveFiles.of_run(folder)
    state = files.read_state()
    if not is_locked(files.folder):
        raise NotFound(
            "the training is not running", where=folder, next_step="start it: headrace train MODEL --servers …"
        )
    known, name = [f"s{k}" for k in range(len(state.servers))], role.removeprefix("server:")
    if name not in known:
        raise NotFound(
            "the training has no such server",
            where="--role",
            value=role,
            allowed=", ".join(f"server:{one}" for one in known),
        )
    files.ask_to_leave(name, state.training)


def _role(text: str, status: JobStatus) -> Role:
    """A process of the job. Raises :class:`InputError`, and :class:`NotFound` for one that is not there."""
    from trainer.scheduling.events import Role, RoleKind

    kind, _, name = text.partition(":")
    if kind not in tuple(RoleKind) or not name:
        raise InputError("a process must be named by its kind and its name", where="--role", value=text,
                         allowed="host:h0, reader:r0, server:s0, worker:w0")  # fmt: skip
    known = {f"{one.role.kind}:{one.role.name}" for one in status.members if not one.is_leaving}
    if text not in known:
        raise NotFound("the job has no such process", where="--role", value=text,
                       allowed=", ".join(sorted(known)) or "(none runs now)")  # fmt: skip
    return Role(RoleKind(kind), name)
