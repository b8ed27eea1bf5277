"""``headrace ps scale``: choose how many parameter servers of a running job have the tables."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options.runs import Run, RunVersion, job_folder, run_folder
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit


def scale(
    run: Run,
    servers: Annotated[
        int, typer.Option("--servers", help="How many servers shall have the tables, in the range of the job.")
    ],
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Choose how many servers of a job with --servers N..M have the tables; the job goes on choosing by itself later.

    The servers that are needed are started, the epoch ends early and is committed, and the tables are loaded from the commit.
    """
    from headrace.screens.scaled_servers import ScaledScreen
    from trainer.job.control.controller_client import ControllerClient
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.job_spec import JobSpec

    folder = run_folder(run, version, home)
    files = JobFiles(job_folder(folder, home))
    client = ControllerClient.of_run(files, job=JobSpec.read(files).job)
    try:
        before = client.status()
        client.servers(servers)
    finally:
        client.close()
    emit(
        ScaledScreen(folder, before.used_servers, before.wanted_servers, servers, before.most_servers), as_json=as_json
    )
