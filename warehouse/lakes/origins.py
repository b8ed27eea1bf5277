"""Where the rows of a part come from: row i of a part's origins is the lake's file and the position of row i of the part.

A row that the lake has no more has no origin. The files are Parquet with checksums of their pages.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.errors import CorruptFile
from warehouse.lakes.row_codes import Ints
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
    path = f"{LAKES}/{table}/origins/{uuid.uuid4().hex}.parquet"
    file = pa.DictionaryArray.from_arrays(
        pa.array(origins.file, pa.int32(), mask=origins.file < 0), pa.array(origins.files, pa.string())
    )
    rows = pa.table([file, pa.array(origins.position, pa.int64())], names=_NAMES)

    def write(output: Any) -> None:
        pq.write_table(rows, output, compression="zstd", use_dictionary=["file"], write_page_checksum=True,
                       column_encoding={"position": "DELTA_BINARY_PACKED"})  # fmt: skip

    storage.write_atomic(path, write)
    return path


def read_origins(storage: Storage, path: str, rows: int) -> Origins:
    """The origins in a file, of a part with this number of rows. Raises :class:`CorruptFile` for another file."""
    with storage.open_input(path) as source:
        try:
            read = pq.read_table(source, page_checksum_verification=True, read_dictionary=["file"])
            if read.column_names != _NAMES or read.num_rows != rows:
                raise pa.ArrowInvalid(f"columns {read.column_names}, {read.num_rows} rows instead of {rows}")
            file = read.column("file").combine_chunks().cast(pa.dictionary(pa.int32(), pa.string()))
            indices = np.asarray(file.indices.fill_null(-1)).astype(np.int64)
            position = np.asarray(read.column("position").cast(pa.int64()))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptFile("the file of the origins of rows must be as it was written", where=path,
                              value=str(error).splitlines()[0][:200],
                              next_step="restore it from a backup, or add the lake under another name") from error  # fmt: skip
    return Origins(tuple(file.dictionary.to_pylist()), indices, np.where(indices < 0, NOWHERE, position))
