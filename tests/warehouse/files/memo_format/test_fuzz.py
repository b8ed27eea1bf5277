"""Mutated memo files, artifacts and overlays are read or refused, with limited memory."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.fuzz.bounded import run_trials
from tests.warehouse.files.memo_format.test_bytes import identical, read_all
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError
from transforms.types import Dense, DType, Ragged, Vector
from warehouse import Storage, write_memo_file
from warehouse.errors import MemoDamaged
from warehouse.files.arrow_bounds import check_arrow_file
from warehouse.files.arrow_file import read_arrow_columns, write_arrow_file
from warehouse.files.memo_file import read_memo_file
from warehouse.files.memo_format.directory import (
    HEAD,
    MAGIC,
    ColumnRecord,
    Directory,
    Segment,
    directory_digest,
    segment_checksum,
)
from warehouse.files.memo_format.encoding import Codec, Encoding, most_constants
from warehouse.files.memo_format.writing import encode_columns

_TRIALS = "tests.warehouse.files.memo_format.trials"
_KINDS = ("memo", "artifact", "overlay")


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_damaged_files_are_read_or_refused(kind: str) -> None:
    found = run_trials(_TRIALS, kind, 0, 300)
    assert found["read"] < 250, found


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_thousands_of_damaged_files(kind: str) -> None:
    run_trials(_TRIALS, kind, 1000, 5000)


def _file(folder: Path, rows: int, column: ColumnRecord, *segments: tuple[Encoding, bytes]) -> tuple[Storage, str]:
    """A forged file of one column, ``it``, with right checksums; its digest."""
    blank = [Segment(0, 0, bytes(16), encoding) for encoding, _ in segments]
    end = HEAD.size + len(Directory(rows, 0, blank, {"it": column}).to_bytes())
    placed, body = [], b""
    for encoding, content in segments:
        body += bytes(-(end + len(body)) % 8)
        placed.append(Segment(end + len(body), len(content), segment_checksum(content), encoding))
        body += content
    stored = Directory(rows, end + len(body), placed, {"it": column}).to_bytes()
    (folder / "m").write_bytes(HEAD.pack(MAGIC, len(stored)) + stored + body)
    return Storage(str(folder)), directory_digest(stored)


_MANY = 2**31 - 2


@pytest.mark.parametrize(
    ("rows", "column", "segments"),
    [
        (_MANY, ColumnRecord(0, 1, 0, values=0), [(Encoding(Codec.PACKED, _MANY), b"")]),
        (20, ColumnRecord(1, 1, 0, lengths=0, values=1),
         [(Encoding(Codec.PACKED, 20, base=10**8), b""), (Encoding(Codec.PACKED, 20 * 10**8), b"")]),
        (20, ColumnRecord(3, 2, 10**8, values=0), [(Encoding(Codec.PACKED, 20 * 10**8), b"")]),
        (20, ColumnRecord(3, 2, 10**8, values=0), [(Encoding(Codec.TERMS, 20 * 10**8, terms=1), b"")]),
        (20, ColumnRecord(0, 4, 0, values=0, text=1),
         [(Encoding(Codec.PACKED, 20, base=10**8), b""), (Encoding(Codec.ZSTD, 20 * 10**8), b"\x28\xb5\x2f\xfd" * 4)]),
        (20, ColumnRecord(1, 4, 0, lengths=0, values=1, text=2),
         [(Encoding(Codec.PACKED, 20, base=10**8), b""), (Encoding(Codec.PACKED, 20 * 10**8), b""),
          (Encoding(Codec.RAW, 0), b"")]),
        (20, ColumnRecord(0, 4, 0, values=0, text=1),
         [(Encoding(Codec.PACKED, 20, base=2**31 - 1), b""), (Encoding(Codec.RAW, 0), b"")]),
        (20, ColumnRecord(0, 4, 0, values=0, text=1),
         [(Encoding(Codec.PACKED, 20, base=-1), b""), (Encoding(Codec.RAW, 0), b"")]),
    ],
)  # fmt: skip
def test_no_memory_is_asked_for_that_the_bytes_are_not_worth(
    tmp_path: Path, rows: int, column: ColumnRecord, segments: list[tuple[Encoding, bytes]]
) -> None:
    storage, digest = _file(tmp_path, rows, column, *segments)
    before = pa.total_allocated_bytes()
    with pytest.raises(MemoDamaged):
        read_memo_file(storage, "m", ["it"], digest, rows=20)
    assert pa.total_allocated_bytes() - before < 1 << 20


_FREE = most_constants(20)


@pytest.mark.parametrize(
    ("column", "counts"),
    [
        (ColumnRecord(0, 1, 0, values=0), [_FREE]),
        (ColumnRecord(0, 4, 0, values=0, text=1), [_FREE, 0]),
        (ColumnRecord(1, 1, 0, lengths=0, values=1), [_FREE, 20]),
        (ColumnRecord(2, 1, 0, lengths=0, values=1, weights=2), [20, _FREE, 20]),
        (ColumnRecord(3, 1, 2, values=0), [_FREE]),
        (ColumnRecord(3, 1, 2**31 - 1, values=0), [_FREE]),
        (ColumnRecord(0, 1, 0, lengths=1, values=0), [20, _FREE]),
        (ColumnRecord(0, 1, 0, values=0, weights=1), [20, _FREE]),
        (ColumnRecord(0, 1, 0, values=0, text=1), [20, 0]),
        (ColumnRecord(3, 1, 1, values=0, valid=1), [20, 0]),
        (ColumnRecord(9, 1, 0, values=0), [_FREE]),
        (ColumnRecord(0, 9, 0, values=0), [_FREE]),
        (ColumnRecord(1, 1, 0, values=0), [_FREE]),
    ],
)
def test_no_segment_is_decoded_whose_column_has_other_values(
    tmp_path: Path, column: ColumnRecord, counts: list[int]
) -> None:
    codec = Codec.PACKED
    storage, digest = _file(
        tmp_path, 20, column, *((Encoding(codec if count else Codec.RAW, count), b"") for count in counts)
    )
    whole = write_memo_file(storage, "whole", {"it": pa.array(range(10))})
    read_memo_file(storage, "whole", ["it"], whole.checksum)  # what is compiled once is not counted
    tracemalloc.start()
    try:
        with pytest.raises(MemoDamaged):
            read_memo_file(storage, "m", ["it"], digest, rows=20)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        (b"Z\xfcrich", [6]),
        ("é".encode(), [1, 1]),
        (b"\xed\xa0\x80", [3]),
        (b"\xc0\x80", [2]),
        (b"\xff", [1]),
        (b"a\xe2\x82", [3]),
    ],
)
def test_text_is_utf_8_value_by_value(tmp_path: Path, text: bytes, lengths: list[int]) -> None:
    stored = np.array(lengths, "<i4").tobytes()
    parts = (Encoding(Codec.RAW, len(lengths)), stored), (Encoding(Codec.RAW, len(text)), text)
    storage, digest = _file(tmp_path, len(lengths), ColumnRecord(0, 4, 0, values=0, text=1), *parts)
    with pytest.raises(MemoDamaged) as caught:
        read_memo_file(storage, "m", ["it"], digest)
    assert "UTF-8" in str(caught.value)


def test_a_file_of_other_rows_is_not_decoded(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    file = write_memo_file(storage, "m", {"it": pa.array(range(10))})
    assert len(read_memo_file(storage, "m", ["it"], file.checksum, rows=10)["it"]) == 10
    with pytest.raises(MemoDamaged):
        read_memo_file(storage, "m", ["it"], file.checksum, rows=11)
    change = write_arrow_file(storage, "change", {"it": pa.array(range(10))})
    checksums = {"it": change.columns["it"].checksum}
    assert len(read_arrow_columns(storage, "change", checksums, rows=10)["it"]) == 10
    with pytest.raises(MemoDamaged):
        read_arrow_columns(storage, "change", checksums, rows=11)


def test_segments_do_not_lie_over_one_another(tmp_path: Path) -> None:
    content = np.arange(4, dtype="<i8").tobytes()
    encoding = Encoding(Codec.RAW, 4)
    storage, _ = _file(tmp_path, 4, ColumnRecord(0, 1, 0, values=0), (encoding, content), (encoding, content))
    found = bytearray((tmp_path / "m").read_bytes())
    (length,) = struct.unpack_from("<Q", found, len(MAGIC))
    directory = Directory.from_bytes(bytes(found[HEAD.size : HEAD.size + length]))
    placed = list(directory.segments)
    placed[1] = placed[1]._replace(position=placed[0].position)
    columns = {"it": ColumnRecord(3, 1, 1, values=0), "at": ColumnRecord(3, 1, 1, values=1)}
    stored = Directory(4, 0, placed, columns).to_bytes()
    shift = len(stored) - length
    placed = [one._replace(position=one.position + shift + -shift % 8) for one in placed]
    size_bytes = HEAD.size + len(stored)
    body = bytes(placed[0].position - size_bytes) + content
    stored = Directory(4, size_bytes + len(body), placed, columns).to_bytes()
    (tmp_path / "m").write_bytes(HEAD.pack(MAGIC, len(stored)) + stored + body)
    with pytest.raises(MemoDamaged, match="cannot be read") as caught:
        read_memo_file(storage, "m", ["it", "at"], directory_digest(stored))
    assert "must not overlap" in str(caught.value)


def test_many_equal_values_are_stored_in_a_bit_each_and_come_back() -> None:
    """More than may take no bytes: what is written can always be read."""
    rows = 3
    wide = 1_500_000
    column = pa.FixedSizeListArray.from_arrays(
        pa.array(np.full(rows * wide, 2.5)), type=arrow_type(Vector(DType.FLOAT64, wide))
    )
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(rows + 1, dtype=np.int32) * wide), pa.array(np.full(rows * wide, -7)),
        type=arrow_type(Ragged(DType.INT64)),
    )  # fmt: skip
    texts = pa.ListArray.from_arrays(
        lists.offsets, pa.array(["x"] * (rows * wide)), type=arrow_type(Ragged(DType.STRING))
    )
    columns: dict[str, Any] = {"vector": column, "lists": lists, "texts": texts}
    directory, parts = encode_columns(columns)
    widths = {segment.encoding.width for segment in directory.segments if segment.encoding.values == rows * wide}
    assert 1 in widths
    assert 0 not in {one.encoding.width for one in directory.segments
                     if one.encoding.codec == Codec.PACKED and one.encoding.values > rows}  # fmt: skip
    assert identical(read_all(b"".join(parts)), columns)


def test_a_buffer_of_an_arrow_file_that_claims_gigabytes(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    values = pa.array([i % 7 for i in range(5000)], arrow_type(Dense(DType.INT64)))
    file = write_arrow_file(storage, "m", {"it": values})
    content = (tmp_path / "m").read_bytes()
    claim = struct.pack("<q", len(values))  # narrowed to a byte a value
    assert content.count(claim + b"\x28\xb5\x2f\xfd") == 1, "a length, then a frame of ZSTD"
    (tmp_path / "m").write_bytes(
        content.replace(claim + b"\x28\xb5\x2f\xfd", struct.pack("<q", 2**40) + b"\x28\xb5\x2f\xfd")
    )
    with storage.open_input("m") as source, pytest.raises(DataError, match="in proportion to its stored bytes"):
        check_arrow_file(source, None)
    with pytest.raises(MemoDamaged, match="cannot be read"):
        read_arrow_columns(storage, "m", {"it": file.columns["it"].checksum})


def test_whole_arrow_files_pass(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    many = {"n": pa.nulls(5), "d": pa.array(["a"] * 5).dictionary_encode(), "e": pa.array([[]] * 5, pa.list_(pa.int8())),
            "b": pa.array([b"x" * 10**6] * 5), "s": pa.array([{"a": 1}] * 5)}  # fmt: skip
    for name, column in many.items():
        if name != "n":
            write_arrow_file(storage, "m", {name: column})
            with storage.open_input("m") as source:
                check_arrow_file(source, 5)
                with pytest.raises(DataError, match="the rows of its fragment"):
                    check_arrow_file(source, 6)
