"""Write an array of a part, some rows at a time, while it is hashed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoints.manifest import CheckpointFile, purpose_digest
from trainer.checkpoints.part_manifest import PART_FORMAT
from trainer.checkpoints.parted_arrays import ArrayKind
from transforms.arrays import Array

#: Bytes after which the system is asked to begin to write them: else the disk rests until the end.
_BEGIN_BYTES = 16 << 20


class NewArray:
    """A new npy file with the bytes that ``np.save`` writes. It is durable after :meth:`finish`."""

    def __init__(self, path: Path, kind: ArrayKind) -> None:
        self.kind = kind
        self._sha256 = purpose_digest("array", kind.name, PART_FORMAT)
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._size_bytes = self._begun_bytes = 0
        self._rows_left = kind.shape[0]
        header = {"descr": np.dtype(kind.dtype).str, "fortran_order": False, "shape": kind.shape}
        np.lib.format.write_array_header_1_0(self, header)

    def write(self, data: Any, /) -> int:
        """Write bytes, all of them."""
        left = memoryview(data).cast("B")
        self._sha256.update(left)
        self._size_bytes += len(left)
        while left:
            left = left[self._file.write(left) :]
        if self._size_bytes - self._begun_bytes >= _BEGIN_BYTES and hasattr(os, "posix_fadvise"):  # Linux
            os.posix_fadvise(self._file.fileno(), self._begun_bytes, 0, os.POSIX_FADV_DONTNEED)
            self._begun_bytes = self._size_bytes
        return self._size_bytes

    def append(self, rows: Array) -> None:
        """Write the next rows."""
        self._rows_left -= len(rows)
        if rows.size:  # slots of no columns have no bytes
            self.write(np.ascontiguousarray(rows).data)

    def finish(self) -> tuple[str, CheckpointFile]:
        """Make the file durable, and return its name with its size and digest."""
        if self._rows_left:
            raise ValueError(f"an array must have {self.kind.shape[0]} rows, got {self._rows_left} less")
        os.fsync(self._file.fileno())
        return self.kind.name, CheckpointFile(self._size_bytes, self._sha256.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
