"""``python -m tests.trainer.job.launch.segment_host FOLDER --name h0``: the host of a job that updates its segment of small dense weights, too.

It leaves a file ``in-segments`` in the folder.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from trainer.job.control.job_files import JobFiles
from trainer.job.host import host_weights
from trainer.job.host.dense.sharded_updates import pays
from trainer.job.launch.host_process import run_host
from trainer.job.launch.role_options import RoleOptions
from trainer.job.launch.role_signals import on_termination
from trainer.wire.flight.addresses import Address


def _note(folder, optimizer, dense, hosts, sharded_bytes):
    found = pays(optimizer, dense, hosts, sharded_bytes=0)
    if found:
        (folder / "in-segments").touch()
    return found


def main(folder: str, name: str) -> None:
    host_weights.pays = partial(_note, Path(folder))
    options = RoleOptions(JobFiles(Path(folder)), name, Address.parse("127.0.0.1:0"), None, None, "")
    run_host(options, on_signals=on_termination)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[sys.argv.index("--name") + 1])
