from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from transforms.columns.arrow_types import arrow_type
from transforms.errors import InputError
from transforms.types import Dense, DType, Ragged, Vector, Weighted
from warehouse import Storage, memo_path, read_memo_file, write_memo_file
from warehouse.errors import MemoDamaged

RAGGED = arrow_type(Ragged(DType.INT64))
COLUMNS = {
    "ragged": pa.array([[1, 2], [], [2**40]], RAGGED),
    "dense": pa.array([None, 2**40, 3], pa.int64()),
    "small": pa.array([1, 2, None], pa.int64()),
    "negative": pa.array([-300, 0, None], pa.int64()),
    "void": pa.nulls(3, pa.int64()),
    "float": pa.array([1.5, None, -0.0], pa.float32()),
    "text": pa.array(["a", None, ""]),
    "words": pa.array([["a", "b"], [], ["c"]], arrow_type(Ragged(DType.STRING))),
    "flag": pa.array([True, None, False]),
    "moment": pa.array([0, None, 5], arrow_type(Dense(DType.TIMESTAMP))),
    "weighted": pa.array([[{"id": 1, "weight": 0.5}], [], []], arrow_type(Weighted(DType.INT64))),
    "vector": pa.array([[1.0, 2.0]] * 3, arrow_type(Vector(DType.FLOAT32, 2))),
}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def test_every_type_round_trips(storage: Storage) -> None:
    file = write_memo_file(storage, "a/b.memo", COLUMNS)
    read = read_memo_file(storage, "a/b.memo", file.columns, file.checksum)
    for name, array in COLUMNS.items():
        assert read[name].type == array.type
        assert read[name].equals(array), name
        assert file.columns[name].rows == 3
    assert sum(it.size_bytes for it in file.columns.values()) == file.size_bytes == len(storage.read_bytes("a/b.memo"))


@settings(max_examples=scaled(30))
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-130, 300), max_size=3), max_size=6), st.data())
def test_ids_of_any_size_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], data: st.DataObject
) -> None:
    storage = Storage(str(tmp_path_factory.mktemp("memos")))
    first = data.draw(st.integers(0, len(rows)))
    column = pa.array(rows, RAGGED).slice(first)
    dense = pa.array([sum(row) if abs(sum(row)) < 2**63 else None for row in rows], pa.int64()).slice(first)
    file = write_memo_file(storage, "m", {"c": column, "d": dense})
    read = read_memo_file(storage, "m", file.columns, file.checksum)
    assert read["c"].equals(column)
    assert read["d"].equals(dense)


def test_the_same_columns_give_the_same_bytes(storage: Storage) -> None:
    write_memo_file(storage, "one", COLUMNS)
    padded = {name: pa.concat_arrays([array, array, array]).slice(3, 3) for name, array in COLUMNS.items()}
    write_memo_file(storage, "two", padded)
    chunked = {name: pa.chunked_array([array.slice(0, 1), array.slice(1)]) for name, array in COLUMNS.items()}
    write_memo_file(storage, "three", chunked)
    assert storage.read_bytes("one") == storage.read_bytes("two") == storage.read_bytes("three")


def test_ids_take_the_fewest_bytes(storage: Storage) -> None:
    for ids, a_row in (([2**60 + i * 7919 for i in range(10_000)], 27 / 8), ([i * i % 8191 for i in range(10_000)], 13 / 8),
                       ([7] * 10_000, 0), ([i % 2 for i in range(10_000)], 1 / 8)):  # fmt: skip
        file = write_memo_file(storage, "m", {"c": pa.array(ids)})
        assert a_row * 10_000 <= file.size_bytes < a_row * 10_000 + 800, a_row


def test_few_ids_of_many_bits_are_stored_once(storage: Storage) -> None:
    ids = pa.array([(i * i % 60) * 7919**4 for i in range(10_000)])
    file = write_memo_file(storage, "m", {"c": ids})
    assert file.size_bytes < 10_000
    assert read_memo_file(storage, "m", ["c"], file.checksum)["c"].equals(ids)


def test_empty_fragments_are_files_too(storage: Storage) -> None:
    file = write_memo_file(storage, "m", {"c": pa.array([], RAGGED), "d": pa.array([], pa.int64())})
    read = read_memo_file(storage, "m", file.columns, file.checksum)
    assert read["c"].type == RAGGED
    assert len(read["c"]) == len(read["d"]) == 0


def test_unequal_rows_are_refused(storage: Storage) -> None:
    with pytest.raises(InputError):
        write_memo_file(storage, "m", {"a": pa.array([1]), "b": pa.array([1, 2])})
    with pytest.raises(InputError):
        write_memo_file(storage, "m", {})
    assert not storage.exists("m")


def test_one_of_many_columns_is_read_alone(storage: Storage, tmp_path: Path) -> None:
    columns = {f"c{i}": pa.array([(j * (i + 7919)) % 2**40 for j in range(20_000)]) for i in range(50)}
    file = write_memo_file(storage, "m", columns)
    content = bytearray((tmp_path / "m").read_bytes())
    middle = len(content) // 2
    content[middle - 200 : middle + 200] = bytes(400)
    (tmp_path / "m").write_bytes(content)
    damaged = 0
    for name in file.columns:
        try:
            assert read_memo_file(storage, "m", [name], file.checksum)[name].equals(columns[name])
        except MemoDamaged:
            damaged += 1
    assert 1 <= damaged <= 2, "damage in one column's bytes must not touch the others"


@pytest.mark.parametrize("keep", [0, 1, 10, 100, -1, -10])
def test_a_truncated_file_is_damaged(storage: Storage, tmp_path: Path, keep: int) -> None:
    file = write_memo_file(storage, "m", COLUMNS)
    path = tmp_path / "m"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(MemoDamaged) as caught:
        read_memo_file(storage, "m", ["ragged"], file.checksum)
    assert "m" in caught.value.where


def test_every_flipped_byte_is_found_or_harmless(storage: Storage, tmp_path: Path) -> None:
    file = write_memo_file(storage, "m", COLUMNS)
    whole = (tmp_path / "m").read_bytes()
    found = 0
    for position in range(0, len(whole), 13):
        (tmp_path / "m").write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            read = read_memo_file(storage, "m", file.columns, file.checksum)
        except MemoDamaged:
            found += 1
        else:
            assert all(read[name].equals(array) for name, array in COLUMNS.items())
    assert found > 0


def test_missing_file_column_and_other_format(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(MemoDamaged, match="cannot be read"):
        read_memo_file(storage, "nothing", ["a"], "")
    file = write_memo_file(storage, "m", COLUMNS)
    with pytest.raises(MemoDamaged, match="no such column"):
        read_memo_file(storage, "m", ["other"], file.checksum)
    with pytest.raises(MemoDamaged, match="not the one that was committed"):
        read_memo_file(storage, "m", ["text"], "0" * 64)
    with pa.ipc.new_file(str(tmp_path / "x"), pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": [1]}))
    with pytest.raises(MemoDamaged, match="not a memo file") as caught:
        read_memo_file(storage, "x", ["a"], "")
    assert caught.value.next_step == "it is computed again"


def test_the_path_is_a_function_of_the_content() -> None:
    path = memo_path("log", "date=2026-01-01", "f" * 64, ["b", "a"], "1a")
    assert path == memo_path("log", "date=2026-01-01", "f" * 64, ["a", "b"], "1a")
    assert path.startswith("memos/log/date=2026-01-01/" + "f" * 16 + "-")
    assert path != memo_path("log", "date=2026-01-01", "f" * 64, ["a"], "1a")


def test_weighted_ids_and_vectors_take_the_fewest_bytes_and_round_trip(storage: Storage) -> None:
    def columns(limit: int) -> dict[str, pa.Array]:
        ids = [[pow(i + 2, 9, 2**61 - 1) % limit, pow(i + 3, 11, 2**61 - 1) % limit] for i in range(5000)]
        pairs = [[{"id": item, "weight": 1.0} for item in row[: i % 3]] for i, row in enumerate(ids)]
        return {
            "weighted": pa.array(pairs, arrow_type(Weighted(DType.INT64, 2**62))),
            "vector": pa.array(ids, arrow_type(Vector(DType.INT64, 2))),
        }

    sizes = {}
    for limit in (100, 2**60):
        whole = columns(limit)
        file = write_memo_file(storage, f"{limit}", {name: array.slice(7) for name, array in whole.items()})
        read = read_memo_file(storage, f"{limit}", file.columns, file.checksum)
        assert all(read[name].equals(array.slice(7)) and read[name].type == array.type for name, array in whole.items())
        sizes[limit] = file.size_bytes
    assert sizes[100] * 2 < sizes[2**60]
