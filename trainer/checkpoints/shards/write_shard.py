"""Write a server's shard of a checkpoint: durable, and whole or absent.

A shard is a folder with npy files and ``manifest.json``, which is written last. It counts only through a checkpoint that names it with the
digest of its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.checkpoints.array_files import NewFiles, write_arrays
from trainer.checkpoints.manifest import MANIFEST
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.checkpoints.shard_manifest import SHARD_FORMAT, ServerShard, ShardManifest
from trainer.checkpoints.shard_name import ShardName, shard_folder
from trainer.errors import TornCheckpoint
from transforms.arrays import Array


def write_shard(
    run_dir: str, shard: ServerShard, parted: Sequence[PartedArrays], arrays: Mapping[str, Array]
) -> ShardName:
    """Write a shard durably and return its name; ``parted``: the rows of its tables, which come in parts.

    Raises :class:`CheckpointNotWritten` if the disk is full or refuses; nothing is left then.
    """
    files = open_run(run_dir)

    def write(folder: NewFiles) -> ShardName:
        manifest = ShardManifest(shard, write_arrays(folder, 0, arrays, parted, SHARD_FORMAT))
        folder.write(MANIFEST, lambda file: file.write(manifest.to_bytes()))
        return manifest.name

    with translated_write_errors(files.place(shard.folder), "the shard of a checkpoint"):
        return files.write_folder(shard.folder, write)


def find_shard(run_dir: str, attempt: int, server: int) -> ShardManifest | None:
    """The manifest of a shard that is whole; None if there is none."""
    files, path = open_run(run_dir), f"{shard_folder(attempt, server)}/{MANIFEST}"
    try:
        return ShardManifest.from_bytes(files.read(path), files.place(path))
    except TornCheckpoint:
        return None
