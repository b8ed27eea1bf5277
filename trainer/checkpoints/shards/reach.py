"""Find out whether servers reach the folder of a run, which may be a local folder of another machine.

The trainer writes a small file of a random name into the folder of checkpoints. A server that reads it answers with another one, which the
trainer looks for: a folder of the same name on another machine has neither, and one that may not be written has no answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer.checkpoints.local_run import TEMPORARY, LocalRun
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.shards.shard_orders import Reach, ReachOrder
from trainer.errors import TornCheckpoint
from transforms.errors import StorageError

_SECRET_BYTES = 16


def find_reach(
    run_dir: str, servers: int, ask: Callable[[Sequence[ReachOrder]], Sequence[Reach]], is_cut: bool = False
) -> str:
    """Why a server does not reach the run directory; empty if all of them do.

    Args:
        run_dir: an absolute path, or ``gs://bucket/path``.
        servers: their number.
        ask: sends each server its order and returns the answers.
        is_cut: see :class:`~trainer.checkpoints.shards.shard_orders.ReachOrder`.

    Raises :class:`CheckpointNotWritten` if this process cannot write to the run directory.
    """
    files, probe = open_run(run_dir), secrets.token_hex(_SECRET_BYTES)
    try:
        with translated_write_errors(files.place(""), "a file for the servers"):
            _put(files, probe_name(probe), probe)
        found = ask([ReachOrder(run_dir, probe, server, is_cut) for server in range(servers)])
        for server, one in enumerate(found):
            if not one.reaches:
                return f"server s{server}: {one.reason}"
            if not _has(files, answer_name(probe, server), probe):
                return f"server s{server} writes to another folder of this name"
        return ""
    finally:
        with translated_write_errors(files.place(""), "the removal of a file for the servers"):
            for name in (probe_name(probe), *(answer_name(probe, server) for server in range(servers))):
                files.remove(name)


def answer_probe(order: ReachOrder) -> Reach:
    """What a server answers that may write to the run."""
    files = open_run(order.run)
    try:
        if not _has(files, probe_name(order.probe), order.probe):
            return Reach(False, "its folder of this name is another one")
        _put(files, answer_name(order.probe, order.server), order.probe)
    except (OSError, StorageError) as error:
        return Reach(False, f"cannot write to {files.place('')}: {error}"[:400])
    return Reach(True)


def probe_name(probe: str) -> str:
    """The file of the trainer, in the folder of checkpoints."""
    return f"{TEMPORARY}reach-{probe}"


def answer_name(probe: str, server: int) -> str:
    """The file of a server."""
    return f"{probe_name(probe)}-{server}"


def _put(files: RunFiles, name: str, probe: str) -> None:
    if isinstance(files, LocalRun):
        Path(files.root).mkdir(parents=True, exist_ok=True)
    files.put(name, probe.encode())


def _has(files: RunFiles, name: str, probe: str) -> bool:
    try:
        return files.read(name, expected_bytes=len(probe)) == probe.encode()
    except TornCheckpoint:
        return False
