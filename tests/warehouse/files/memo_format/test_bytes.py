"""The bytes of a memo file, and errors of other bytes."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError
from transforms.types import Dense, DType, Ragged, Vector, Weighted
from warehouse import Storage, write_memo_file
from warehouse.errors import MemoDamaged
from warehouse.files.digests import column_digest
from warehouse.files.memo_file import read_memo_file
from warehouse.files.memo_format import reading
from warehouse.files.memo_format.bit_packing import LANES, pack, packed_words, unpack
from warehouse.files.memo_format.decoding import INT32, INT64, SIZE, TABLE_LENGTH, decode, measure
from warehouse.files.memo_format.directory import HEAD, MAGIC, Directory, directory_digest
from warehouse.files.memo_format.encoding import Codec, Encoding, encode_integers
from warehouse.files.memo_format.reading import read_directory, read_memo_columns
from warehouse.files.memo_format.writing import encode_columns

GOLDEN = Path(__file__).parent / "golden.memo"
_ELEMENTS = {
    DType.BOOL: st.booleans(),
    DType.INT64: st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    DType.FLOAT32: st.floats(width=32),
    DType.FLOAT64: st.floats(),
    DType.STRING: st.text(max_size=4),
    DType.TIMESTAMP: st.integers(-(2**62), 2**62),
}


def golden_columns() -> dict[str, pa.Array]:
    """A column of every kind and element type, and of every codec; nothing random, nothing of the machine."""
    rows = 300
    mixed = [(i * 2654435761) % 2**32 for i in range(rows)]
    columns: dict[str, pa.Array] = {}
    for dtype in DType:
        values = {
            DType.BOOL: [value % 3 == 0 for value in mixed],
            DType.INT64: [value - 2**31 for value in mixed],
            DType.FLOAT32: [value / 256 for value in mixed],
            DType.FLOAT64: [value / 7 for value in mixed],
            DType.STRING: [f"é{value % 11}" * (value % 3) for value in mixed],
            DType.TIMESTAMP: [1_700_000_000_000_000 + value for value in mixed],
        }[dtype]
        holed = [None if i % 5 == 0 else value for i, value in enumerate(values)]
        columns[f"dense {dtype}"] = pa.array(values, arrow_type(Dense(dtype)))
        columns[f"holed {dtype}"] = pa.array(holed, arrow_type(Dense(dtype)))
        columns[f"void {dtype}"] = pa.nulls(rows, arrow_type(Dense(dtype)))
        lists = [values[i : i + i % 4] for i in range(rows)]
        columns[f"ragged {dtype}"] = pa.array(lists, arrow_type(Ragged(dtype)))
        columns[f"vector {dtype}"] = pa.array([[value, value] for value in values], arrow_type(Vector(dtype, 2)))
        pairs = [[{"id": value, "weight": i / 8} for i, value in enumerate(row)] for row in lists]
        columns[f"weighted {dtype}"] = pa.array(pairs, arrow_type(Weighted(dtype)))
    columns["few"] = pa.array([(value % 5) * 10**12 for value in mixed])
    columns["one"] = pa.array([42] * rows)
    columns["huge"] = pa.array([(-1) ** i * (2**63 - 1 - i) for i in range(rows)])
    return columns


def in_memory(content: bytes) -> pa.NativeFile:
    return pa.PythonFile(io.BytesIO(content), mode="r")


def read_all(content: bytes) -> dict[str, pa.Array]:
    """Every column, with no digest to begin from."""
    source = in_memory(content)
    directory = Directory.from_bytes(read_directory(source, content[: 64 << 10]))
    return read_memo_columns(source, directory, list(directory.columns), 0)


def identical(left: Mapping[str, pa.Array], right: Mapping[str, pa.Array]) -> bool:
    """Equal to the last bit, types and not-a-numbers too."""
    return list(left) == list(right) and all(
        array.type == right[name].type and column_digest(array) == column_digest(right[name])
        for name, array in left.items()
    )


def test_the_golden_file_is_what_is_written_today() -> None:
    _, parts = encode_columns(golden_columns())
    assert b"".join(parts) == GOLDEN.read_bytes()


def test_the_golden_file_is_read_as_it_was_written() -> None:
    columns = golden_columns()
    read = read_all(GOLDEN.read_bytes())
    assert identical(read, columns)
    for name, array in read.items():
        array.validate(full=True)
        assert array.null_count == columns[name].null_count


def test_every_codec_stands_in_the_golden_file() -> None:
    content = GOLDEN.read_bytes()
    directory = Directory.from_bytes(read_directory(in_memory(content), content))
    assert {segment.encoding.codec for segment in directory.segments} == set(Codec)
    assert all(segment.position % 8 == 0 for segment in directory.segments)


@pytest.mark.parametrize("gap_bytes", [0, 1 << 20])
@pytest.mark.parametrize("batch_bytes", [1, 700, 1 << 20])
@pytest.mark.parametrize("arena_words", [1, 400, 2 << 20])
def test_columns_are_the_same_however_the_file_is_read(
    monkeypatch: pytest.MonkeyPatch, gap_bytes: int, batch_bytes: int, arena_words: int
) -> None:
    monkeypatch.setattr(reading, "_ARENA_WORDS", arena_words)
    columns = golden_columns()
    source = in_memory(GOLDEN.read_bytes())
    directory = Directory.from_bytes(read_directory(source, GOLDEN.read_bytes()[: 64 << 10]))
    for step in (1, 2, 7):
        names = list(columns)[::step]
        found = read_memo_columns(source, directory, names, gap_bytes, batch_bytes=batch_bytes)
        assert identical(found, {name: columns[name] for name in names})
    assert read_memo_columns(source, directory, [], gap_bytes) == {}


def test_threads_read_and_write_at_once(tmp_path: Path) -> None:
    """Each thread keeps memory of its own for stored bytes and for the search of distinct values."""
    storage = Storage(str(tmp_path))

    def round_trip(number: int) -> bool:
        ids = np.random.default_rng(number).integers(0, 3000 + number, 60_000)
        columns = {"ids": pa.array(ids * 17), "wide": pa.array(ids * 2**40), "all": pa.array(np.arange(60_000) ** 2)}
        file = write_memo_file(storage, f"m{number}", columns)
        return identical(read_memo_file(storage, file.path, list(columns), file.checksum), columns)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(round_trip, range(12)))


@settings(max_examples=scaled(40))
@given(st.data(), st.sampled_from(sorted(DType)), st.integers(0, 9), st.integers(0, 3))
def test_any_slice_of_a_column_round_trips(data: st.DataObject, dtype: DType, rows: int, start: int) -> None:
    element = _ELEMENTS[dtype]
    lists = data.draw(st.lists(st.lists(element, max_size=3), min_size=rows, max_size=rows))
    holed = data.draw(st.lists(st.none() | element, min_size=rows, max_size=rows))
    pairs = [[{"id": item, "weight": 0.5} for item in row] for row in lists]
    vectors = data.draw(st.lists(st.lists(element, min_size=2, max_size=2), min_size=rows, max_size=rows))
    whole = {
        "dense": pa.array(holed, arrow_type(Dense(dtype))),
        "ragged": pa.array([None if i % 7 == 5 else row for i, row in enumerate(lists)], arrow_type(Ragged(dtype))),
        "weighted": pa.array(pairs, arrow_type(Weighted(dtype))),
        "vector": pa.array(vectors, arrow_type(Vector(dtype, 2))),
    }
    columns = {name: array.slice(start) for name, array in whole.items()}
    _, parts = encode_columns(columns)
    read = read_all(b"".join(parts))
    assert identical(read, columns)
    for array in read.values():
        array.validate(full=True)
    copied = {name: pa.concat_arrays([array, array.slice(0, 0)]) for name, array in columns.items()}
    assert encode_columns(copied)[1] == parts, "what lies beside a slice does not show"


@pytest.mark.medium
@settings(max_examples=scaled(80))
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9), max_size=200),
    st.sampled_from([np.int32, np.int64]),
    st.sampled_from([1, 30]),
)
def test_integers_round_trip_through_any_codec(values: list[int], kind: type, repeated: int) -> None:
    array = np.array(values * repeated, np.int64).astype(kind)
    encoding, stored = encode_integers(array)
    content = np.frombuffer(memoryview(stored).cast("B") if len(stored) else b"", np.uint8).copy()
    assert np.array_equal(_decoded(encoding, content, kind), array)
    assert len(content) <= array.nbytes


def _decoded(encoding: Encoding, content: np.ndarray[Any, np.dtype[np.uint8]], kind: type) -> np.ndarray[Any, Any]:
    """The values by the compiled decoder."""
    codec, values, base, width, code_width, terms = encoding
    role = INT64 if kind is np.int64 else INT32
    jobs = np.array([[0, len(content), values, base, terms, codec, width, code_width, role, 0, 0]], np.int64)
    assert measure(jobs, 1 << 20) == -1
    words = np.frombuffer(content.tobytes() + bytes(-len(content) % 8), np.uint64).copy()
    arena = np.empty(jobs[0, SIZE], np.int64)
    assert decode(words, jobs, np.empty(TABLE_LENGTH, np.int64), arena, arena.view(np.int32)) == -1
    return arena.view(kind)[:values]


@pytest.mark.parametrize("count", [1, LANES - 1, LANES, LANES + 1, 5 * LANES + 7])
def test_every_width_packs_and_unpacks(count: int) -> None:
    for width in range(1, 65):
        top = (1 << width) - 1
        values = np.array([(i * 0x9E3779B97F4A7C15) & top for i in range(count)], np.uint64)
        words = np.zeros(packed_words(count, width), np.uint64)
        pack(values, 0, width, words, LANES)
        out = np.zeros(count, np.uint64)
        unpack(words, 0, width, out, LANES)
        assert np.array_equal(out, values), width


def test_the_words_are_those_of_the_specification() -> None:
    """Value i is in lane i % 64; a lane's values follow one another from its lowest bit on."""
    values = np.array([i % 8 for i in range(64 * 22)], np.int64)
    words = np.zeros(packed_words(len(values), 3), np.uint64)
    pack(values, 0, 3, words, LANES)
    for lane in (0, 5, 63):
        stream = sum(int(words[64 * k + lane]) << (64 * k) for k in range(len(words) // 64))
        assert [(stream >> (3 * row)) & 7 for row in range(22)] == [lane % 8] * 22
    assert encode_integers(np.array([7, -5, 7] * 1000))[0] == (Codec.TERMS, 3000, -5, 4, 1, 2)


def test_lists_of_one_shape_store_their_lengths_once_and_share_their_offsets() -> None:
    lists = [list(range(i % 9)) for i in range(500)]
    one = pa.array(lists, arrow_type(Ragged(DType.INT64)))
    other = pa.array([[item * 3 + 1 for item in row] for row in lists], one.type)
    directory, parts = encode_columns({"one": one, "other": other})
    assert directory.columns["one"].lengths == directory.columns["other"].lengths
    assert len(directory.segments) == 3
    read = read_all(b"".join(parts))
    assert read["one"].buffers()[1].address == read["other"].buffers()[1].address
    assert identical(read, {"one": one, "other": other})


def test_no_rows_and_constants_take_no_bytes() -> None:
    kinds = [arrow_type(Dense(DType.INT64)), arrow_type(Ragged(DType.STRING)), arrow_type(Vector(DType.BOOL, 3))]
    none = {str(i): pa.array([], kind) for i, kind in enumerate(kinds)}
    directory, parts = encode_columns(none)
    assert identical(read_all(b"".join(parts)), none)
    assert sum(segment.stored_bytes for segment in directory.segments) == 0
    same = {
        "int": pa.array([7] * 1000),
        "float": pa.array([1.5] * 1000, pa.float32()),
        "void": pa.nulls(1000, pa.int64()),
    }
    directory, parts = encode_columns(same)
    assert identical(read_all(b"".join(parts)), same)
    assert sum(segment.stored_bytes for segment in directory.segments) == 125, "the bitmap of the nulls"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.int32()),
        pa.array([[1, 2]], pa.list_(pa.int64())),
        pa.array([{"a": 1}]),
        pa.array([[1, 2], None], arrow_type(Vector(DType.INT64, 2))),
    ],
)
def test_what_no_transform_makes_is_refused(column: pa.Array) -> None:
    with pytest.raises(DataError, match="column it"):
        encode_columns({"it": column})


def test_names_of_any_kind() -> None:
    columns = {"": pa.array([1]), "ü\n": pa.array([2])}
    assert identical(read_all(b"".join(encode_columns(columns)[1])), columns)
    with pytest.raises(DataError):
        encode_columns({"a\0": pa.array([1])})


def test_a_flipped_byte_is_found_in_the_columns_it_belongs_to() -> None:
    """Bytes between segments belong to none; every other flip is found, and never another value."""
    content = GOLDEN.read_bytes()
    columns = golden_columns()
    draws = random.Random(5)
    caught = 0
    for position in draws.sample(range(len(content)), 400):
        flipped = bytearray(content)
        flipped[position] ^= 1 << draws.randrange(8)
        try:
            stored = read_directory(in_memory(bytes(flipped)), bytes(flipped[: 64 << 10]))
            if directory_digest(stored) != directory_digest(content[HEAD.size :][: len(stored)]):
                caught += 1
                continue
            assert identical(read_all(bytes(flipped)), columns)
        except DataError:
            caught += 1
    assert caught > 300


def test_a_forged_directory_never_leads_out_of_bounds() -> None:
    """Whoever writes the directory and its digest anew: an error, or some values that Arrow finds valid in shape."""
    content = GOLDEN.read_bytes()
    (length,) = np.frombuffer(content, "<u8", 1, len(MAGIC)).tolist()
    draws = random.Random(11)
    refused = 0
    for _ in range(600):
        forged = bytearray(content)
        for _ in range(draws.randrange(1, 4)):
            at = HEAD.size + draws.randrange(length)
            forged[at] = draws.choice([0, 1, 0x7F, 0xFF, forged[at] ^ 1 << draws.randrange(8)])
        try:
            for array in read_all(bytes(forged)).values():
                array.validate()
        except (DataError, pa.ArrowException, OSError, ValueError, MemoryError):
            refused += 1
    assert refused > 100


def test_any_truncation_is_found() -> None:
    content = GOLDEN.read_bytes()
    for length in [*range(0, 200), *range(200, len(content), 997), len(content) - 1]:
        with pytest.raises(DataError):
            read_all(content[:length])


def test_a_file_is_verified_by_one_digest_or_by_its_columns(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    columns = {"a": pa.array(range(100)), "b": pa.array([[1]] * 100, arrow_type(Ragged(DType.INT64)))}
    file = write_memo_file(storage, "m", columns)
    assert identical(read_memo_file(storage, "m", ["b"], file.checksum), {"b": columns["b"]})
    assert file.checksum == hashlib.sha256(_stored_directory(tmp_path / "m")).hexdigest()
    other = write_memo_file(storage, "other", {**columns, "a": pa.array(range(1, 101))})
    assert other.columns["b"].checksum == file.columns["b"].checksum
    assert other.columns["a"].checksum != file.columns["a"].checksum
    with pytest.raises(MemoDamaged, match="not the one that was committed"):
        read_memo_file(storage, "other", ["b"], file.checksum)


def _stored_directory(path: Path) -> bytes:
    content = path.read_bytes()
    (length,) = np.frombuffer(content, "<u8", 1, len(MAGIC)).tolist()
    return content[HEAD.size : HEAD.size + length]
