"""``python -m tests.trainer.job.launch.emulated_host FOLDER --name h0``: the host process of a job whose TPUs are emulated."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.emulated_slice import EmulatedSlice
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.host_process import run_host
from trainer.job.launch.role_options import RoleOptions
from trainer.job.launch.role_signals import on_termination
from trainer.wire.flight.addresses import Address


def main(folder: str, name: str) -> None:
    options = RoleOptions(JobFiles(Path(folder)), name, Address.parse("127.0.0.1:0"), None, None, "")
    run_host(options, on_signals=on_termination, connect=EmulatedSlice)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[sys.argv.index("--name") + 1])
