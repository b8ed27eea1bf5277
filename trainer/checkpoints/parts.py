"""Write a host's part of a commit: durable, and whole or absent.

A part is a folder with npy files and ``manifest.json``, which is written last. Other processes use it only through a commit that
names it with the digest of its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer.checkpoints.array_files import NewFiles, write_arrays
from trainer.checkpoints.commit_manifest import digest_of
from trainer.checkpoints.host_part import LABELS, LEDGER, HostPart, PartName
from trainer.checkpoints.manifest import MANIFEST
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.part_manifest import PART_FORMAT, PartArray, PartManifest, check_moments
from trainer.checkpoints.taken_arrays import TakenArrays


def write_part(
    run_dir: str | Path, part: HostPart, taken: Sequence[TakenArrays], others: Mapping[str, bytes] | None = None
) -> str:
    """Write a part durably and return its name, the text of ``PartWritten.part``.

    Each array is written with the moment at which it was taken; ``parted`` arrays are never in memory whole. Equal parts have
    equal names. ``others``: further files by name, which the manifest does not have. Raises :class:`TornCheckpoint` for arrays of another moment than the part's, :class:`CheckpointNotWritten` if the
    disk is full or refuses; nothing is left then.
    """
    files = open_run(run_dir)
    place = files.place(part.folder)
    for each in taken:
        names = (*each.arrays, *(kind.name for together in each.parted for kind in together.kinds))
        check_moments(part, ((name, each.moment) for name in names), place)
    if (part.ledger is None) == any(LEDGER in each.arrays for each in taken):
        raise ValueError("a part must hold the array of its ledger if and only if it has one")
    if (part.labels is None) == any(LABELS in each.arrays for each in taken):
        raise ValueError("a part must hold the array of its label record if and only if it has one")

    def write(folder: NewFiles) -> bytes:
        arrays: tuple[PartArray, ...] = ()
        for each in taken:
            written = write_arrays(folder, len(arrays), each.arrays, each.parted, PART_FORMAT)
            arrays += tuple(PartArray(name, file, each.moment) for name, file in written)
        for name, data in (others or {}).items():
            folder.write(name, lambda file, data=data: file.write(data))  # type: ignore[misc]
        manifest = PartManifest(part, arrays).to_bytes()
        folder.write(MANIFEST, lambda file: file.write(manifest))
        return manifest

    with translated_write_errors(place, "the part of a commit"):
        manifest = files.write_folder(part.folder, write)
    return str(PartName(part.attempt, part.rank, digest_of(manifest)))
