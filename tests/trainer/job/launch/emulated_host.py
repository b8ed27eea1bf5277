"""``python -m tests.trainer.job.launch.emulated_host FOLDER --name h0 --tpu A,B``: the host process of a job whose TPUs are emulated.

``--tpu``: the addresses of TensorFlow servers, which have the devices; without it they are in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.support.emulated_slice import EmulatedSlice
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.host_process import run_host
from trainer.job.launch.role_options import RoleOptions
from trainer.job.launch.role_signals import on_termination
from trainer.tables.tpu.slice_servers import slice_servers
from trainer.wire.flight.addresses import Address


def main(folder: str, *, name: str = "h0", tpu: str = "") -> None:
    options = RoleOptions(JobFiles(Path(folder)), name, Address.parse("127.0.0.1:0"), None, None, "")
    run_host(options, on_signals=on_termination, connect=partial(EmulatedSlice, servers=slice_servers(tpu)))


def value_of(option: str, words: Sequence[str]) -> str:
    return words[words.index(option) + 1] if option in words else ""


if __name__ == "__main__":
    main(sys.argv[1], name=value_of("--name", sys.argv), tpu=value_of("--tpu", sys.argv))
