"""Arrow arrays as bytes, for the exchange with a clean process."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def bytes_of(arrays: Sequence[pa.Array]) -> bytes:
    """Arrays of one length as an Arrow stream."""
    batch = pa.record_batch(list(arrays), names=[str(number) for number in range(len(arrays))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def arrays_of(payload: bytes) -> list[pa.Array]:
    """The arrays of :func:`bytes_of`."""
    with pa.ipc.open_stream(payload) as reader:
        return list(reader.read_next_batch().columns)
