"""Where the rows of a part come from: row i of a part's origins is the lake's file and the position of row i of the part.

A row that the lake has no more has no origin. The name of a file ends in the SHA-256 of its bytes: a wrong origin would delete another row.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.arrays import Ints
from warehouse.errors import CorruptFile
from warehouse.storage.layout import LAKES
from warehouse.storage.storage import Storage

_NAMES = ["file", "position"]
#: The position of a row without an origin.
NOWHERE = -1


@dataclass(frozen=True)
class Origins:
    """The origin of every row of a part.

    Attributes:
        files: paths of the lake's files.
        file: for each row the index of its file in ``files``; -1 for a row that the lake has no more.
        position: for each row its position in that file; -1 for a row that the lake has no more.
    """

    files: tuple[str, ...]
    file: Ints
    position: Ints

    def rows_of(self, path: str) -> Ints:
        """The rows that come from a file."""
        return np.flatnonzero(self.file == self.files.index(path)) if path in self.files else np.zeros(0, np.int64)

    @property
    def sources(self) -> frozenset[str]:
        """The files that some row comes from."""
        return frozenset(self.files[index] for index in np.unique(self.file) if index >= 0)


def write_origins(storage: Storage, table: str, origins: Origins) -> str:
    """Write origins under a new name and return it, relative to the home."""
    file = pa.DictionaryArray.from_arrays(
        pa.array(origins.file, pa.int32(), mask=origins.file < 0), pa.array(origins.files, pa.string())
    )
    rows = pa.table([file, pa.array(origins.position, pa.int64())], names=_NAMES)

    output = io.BytesIO()
    pq.write_table(
        rows, output, compression="zstd", use_dictionary=["file"], column_encoding={"position": "DELTA_BINARY_PACKED"}
    )
    content = output.getvalue()
    path = f"{LAKES}/{table}/origins/{uuid.uuid4().hex}-{hashlib.sha256(content).hexdigest()}.parquet"
    storage.write_atomic(path, content)
    return path


def read_origins(storage: Storage, path: str, rows: int) -> Origins:
    """The origins in a file, of a part with this number of rows. Raises :class:`CorruptFile` for another file."""
    content = storage.read_bytes(path)
    if not path.endswith(f"-{hashlib.sha256(content).hexdigest()}.parquet"):
        raise _damaged(path, "another SHA-256 than its name has")
    read = pq.read_table(pa.BufferReader(content), read_dictionary=["file"])
    if read.num_rows != rows:
        raise _damaged(path, f"{read.num_rows} rows instead of {rows}")
    file = read.column("file").combine_chunks()
    indices = np.asarray(file.indices.fill_null(-1)).astype(np.int64)
    return Origins(tuple(file.dictionary.to_pylist()), indices, np.asarray(read.column("position")))


def _damaged(path: str, found: str) -> CorruptFile:
    return CorruptFile("the file of the origins of rows must be as it was written", where=path, value=found,
                       next_step="restore it from a backup, or add the lake under another name")  # fmt: skip
