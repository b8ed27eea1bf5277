"""Write the arrays of a checkpoint as npy files while they are hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Protocol

import numpy as np

from trainer.checkpoints.manifest import CheckpointFile, array_file, purpose_digest
from trainer.checkpoints.npy_bytes import check_savable
from trainer.checkpoints.parted_arrays import PartedArrays
from transforms.arrays import Array


class NewFiles(Protocol):
    """A folder in which files are created."""

    def write(self, name: str, content: Callable[[IO[bytes]], object]) -> int:
        """Write a file durably and return its size in bytes."""


class HashedFile:
    """A file for ``np.save`` that hashes the written bytes."""

    def __init__(self, file: IO[bytes], sha256: hashlib._Hash) -> None:
        self._file, self._sha256 = file, sha256

    def write(self, data: bytes) -> int:
        """Write bytes."""
        view = memoryview(data).cast("B")
        self._sha256.update(view)
        return self._file.write(view)


def write_hashed(
    folder: NewFiles, name: str, sha256: hashlib._Hash, save: Callable[[HashedFile], object]
) -> CheckpointFile:
    """Write a file; its digest continues ``sha256``."""
    size_bytes = folder.write(name, lambda file: save(HashedFile(file, sha256)))
    return CheckpointFile(size_bytes, sha256.hexdigest())


def write_bytes(folder: NewFiles, name: str, sha256: hashlib._Hash, data: bytes) -> CheckpointFile:
    """Write the bytes of a file."""
    return write_hashed(folder, name, sha256, lambda file: file.write(data))


def write_arrays(
    folder: NewFiles, first: int, arrays: Mapping[str, Array], parted: Sequence[PartedArrays], form: str
) -> tuple[tuple[str, CheckpointFile], ...]:
    """Write arrays as the files from number ``first`` on, for a checkpoint of this format."""
    files = tuple(
        (name, write_hashed(folder, array_file(first + k), purpose_digest("array", name, form), _saver(array)))
        for k, (name, array) in enumerate(arrays.items())
    )
    for together in parted:
        files += _write_parted(folder, first + len(files), together, form)
    return files


def _saver(array: Array) -> Callable[[HashedFile], object]:
    check_savable(array)
    return lambda file: np.save(file, array, allow_pickle=False)


def _write_parted(
    folder: NewFiles, first: int, together: PartedArrays, form: str
) -> tuple[tuple[str, CheckpointFile], ...]:
    """Write arrays that come in parts into files that are open at the same time."""
    digests = [purpose_digest("array", kind.name, form) for kind in together.kinds]
    sizes: list[int] = [0] * len(digests)

    def write(k: int, opened: tuple[HashedFile, ...]) -> None:
        if k == len(digests):
            together.write(opened)
            return
        sizes[k] = folder.write(
            array_file(first + k), lambda file: write(k + 1, (*opened, HashedFile(file, digests[k])))
        )

    write(0, ())
    return tuple(
        (kind.name, CheckpointFile(size, digest.hexdigest()))
        for kind, size, digest in zip(together.kinds, sizes, digests, strict=True)
    )
