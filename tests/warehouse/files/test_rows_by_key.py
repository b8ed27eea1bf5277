"""Files of rows by key give back the rows of any keys, and refuse every other byte."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.files.digests import column_digest
from warehouse.files.rows_by_key import (
    BLOCK_ROWS,
    ROW,
    DamagedRows,
    are_hashes_of,
    is_stored,
    open_rows_by_key,
    rows_by_key_writer,
)

TYPES = (
    pa.bool_(), pa.int8(), pa.int64(), pa.uint16(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(),
    pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns"), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
)  # fmt: skip


def column(kind: pa.DataType, rows: int, draw: np.random.Generator, nulls: float) -> pa.Array:
    numbers = draw.integers(0, 100, rows)
    mask = draw.random(rows) < nulls
    if str(kind) in ("string", "large_string", "binary", "large_binary"):
        texts = ["é" * (number % 4) + str(number) * (number % 3) for number in numbers]
        return pa.array([None if null else text for text, null in zip(texts, mask, strict=True)], pa.string()).cast(
            kind
        )
    if pa.types.is_boolean(kind):
        return pa.array(numbers > 50, mask=mask)
    if pa.types.is_float16(kind):
        return pa.array(numbers.astype(np.float16), mask=mask)
    if pa.types.is_date64(kind):
        return pa.array(numbers * 86_400_000, pa.int64(), mask=mask).cast(pa.timestamp("ms")).cast(kind)
    if pa.types.is_date32(kind):
        return pa.array(numbers, pa.int32(), mask=mask).cast(kind)
    return pa.array(numbers, pa.int64(), mask=mask).cast(kind)


def table(rows: int, seed: int = 0, nulls: float = 0.2, types: tuple[pa.DataType, ...] = TYPES) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table({f"{at} {kind}": column(kind, rows, draw, nulls) for at, kind in enumerate(types)})


def content(hashes: np.ndarray, rows: pa.Table, name: str = "name") -> bytes:
    file = io.BytesIO()
    rows_by_key_writer(hashes, rows, name)(file)
    return file.getvalue()


def read(path: Path, stored: bytes, hashes: np.ndarray, name: str = "name") -> pa.Table:
    path.write_bytes(stored)
    with open_rows_by_key(path, name) as file:
        return file.of(hashes)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("rows") / "file"


def checked(found: pa.Table, rows: pa.Table, hashes: np.ndarray, wanted: np.ndarray) -> None:
    numbers = found[ROW].to_numpy()
    assert sorted(numbers) == np.flatnonzero(np.isin(hashes, wanted)).tolist()
    assert found.drop_columns([ROW]).equals(rows.take(numbers))
    found.validate(full=True)


@given(
    st.integers(0, 300),
    st.integers(1, 400),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.lists(st.integers(0, 400), max_size=40),
)
def test_the_rows_of_some_keys_are_read(place, rows, keys, seed, nulls, chosen):
    draw = np.random.default_rng(seed)
    types = tuple(TYPES[at] for at in draw.choice(len(TYPES), draw.integers(0, 6)))
    made = table(rows, seed, nulls, types)
    made = made if types else pa.table({"time": pa.array(draw.integers(0, 9, rows))})
    hashes = (draw.integers(0, keys, rows) * 2_654_435_761 % 2**32).astype(np.uint32)
    wanted = np.unique(np.array(chosen, np.int64) * 2_654_435_761 % 2**32).astype(np.uint32)
    checked(read(place, content(hashes, made), wanted), made, hashes, wanted)


def test_equal_rows_give_equal_bytes_in_any_chunks(place):
    made, hashes = table(500), np.arange(500).astype(np.uint32) % 50
    parts = pa.concat_tables([made.slice(0, 120), made.slice(120)])
    assert content(hashes, made) == content(hashes, parts)
    sliced = table(600).slice(37, 400)
    found = read(place, content(hashes[:400], sliced), np.arange(50).astype(np.uint32))
    checked(found, sliced, hashes[:400], np.arange(50).astype(np.uint32))


def test_numbers_keep_their_bits(place):
    values = pa.array([float("nan"), -0.0, 0.0, None, float("inf"), 5e-324, -1e308])
    made = pa.table({"value": values, "narrow": values.cast(pa.float32(), safe=False)})
    found = read(place, content(np.zeros(7, np.uint32), made), np.zeros(1, np.uint32))
    for name in made.column_names:
        assert column_digest(found[name]) == column_digest(made[name])


def test_one_key_may_have_many_blocks(place):
    made, hashes = table(10 * BLOCK_ROWS + 3), np.full(10 * BLOCK_ROWS + 3, 7, np.uint32)
    for wanted in ([7], [6, 7, 8], [6, 8], [], [0, 2**32 - 1]):
        chosen = np.array(wanted, np.uint32)
        checked(read(place, content(hashes, made), chosen), made, hashes, chosen)


def test_only_the_blocks_of_the_keys_are_read(place):
    """Damage elsewhere is not seen, so nothing else was read."""
    made, hashes = (
        table(100 * BLOCK_ROWS, nulls=0.0, types=(pa.int64(),)),
        np.arange(100 * BLOCK_ROWS).astype(np.uint32),
    )
    stored = bytearray(content(hashes, made))
    stored[-5] ^= 1
    wanted = np.array([3, 700], np.uint32)
    checked(read(place, bytes(stored), wanted), made, hashes, wanted)
    with pytest.raises(DamagedRows, match="must have the bytes"):
        read(place, bytes(stored), np.array([100 * BLOCK_ROWS - 1], np.uint32))


def test_another_name_or_type_is_refused(place):
    made, hashes = table(10), np.arange(10).astype(np.uint32)
    with pytest.raises(DamagedRows, match="rows of name"):
        read(place, content(hashes, made), hashes, "other")
    for kind in (
        pa.list_(pa.int64()),
        pa.decimal128(5),
        pa.dictionary(pa.int32(), pa.string()),
        pa.timestamp("us", "UTC"),
    ):
        assert not is_stored(kind)
    assert all(map(is_stored, TYPES))


@pytest.mark.medium
def test_mutated_bytes_are_refused_or_change_nothing(place):
    made, hashes = (
        table(3 * BLOCK_ROWS + 9, types=TYPES[:4] + TYPES[-4:]),
        np.arange(3 * BLOCK_ROWS + 9).astype(np.uint32) % 60,
    )
    stored, chance, refused = content(hashes, made), random.Random(3), 0
    wanted = np.arange(60).astype(np.uint32)
    for k in range(1_500):
        damaged = bytearray(stored)
        match k % 3:
            case 0:
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            case 1:
                del damaged[chance.randrange(len(damaged)) :]
            case _:
                at = chance.randrange(len(damaged))
                damaged[at : at + chance.randrange(1, 9)] = chance.randbytes(chance.randrange(9))
        try:
            checked(read(place, bytes(damaged), wanted), made, hashes, wanted)
        except DamagedRows:
            refused += 1
        else:
            assert bytes(damaged) == stored
    assert refused > 1_400


def sealed(head: bytes, rest: bytes) -> bytes:
    return struct.pack("<16sQ32s", b"headrace rows 1\n", len(head), hashlib.sha256(head).digest()) + head + rest


@pytest.mark.medium
def test_heads_with_a_right_digest_are_still_checked(place):
    """What a program wrote that is not this one: any answer or the one error, and no memory out of proportion."""
    made, hashes = table(2 * BLOCK_ROWS, types=TYPES[:3] + TYPES[-4:]), np.arange(2 * BLOCK_ROWS).astype(np.uint32) % 20
    stored, chance = content(hashes, made), random.Random(5)
    length = struct.unpack_from("<Q", stored, 16)[0]
    head, rest = stored[56 : 56 + length], stored[56 + length :]
    wanted = np.arange(20).astype(np.uint32)
    checked(read(place, sealed(head, rest), wanted), made, hashes, wanted)
    size = struct.unpack_from("<Q", head)[0]
    document = json.loads(head[8 : 8 + size])
    for changed in (
        {"rows": 2**31}, {"rows": -1}, {"rows": 1.5}, {"rows": True}, {"columns": 7}, {"columns": [["a", "int64"]]}, {"columns": [["a", "list<item: int64>", False]]},
        {"columns": [["a", "int64", False]] * 2}, {"format": "other"}, {"name": None}, {"columns": [["a", "string", True]]}, {"rows": 0},
    ):  # fmt: skip
        text = json.dumps({**document, **changed}, separators=(",", ":")).encode()
        with pytest.raises(DamagedRows):
            read(place, sealed(struct.pack("<Q", len(text)) + text + head[8 + size :], rest), wanted)
    nested = b"[" * 100_000
    for text in (b"", b"null", b"[]", b"{}", b"\xff", nested):
        with pytest.raises(DamagedRows):
            read(place, sealed(struct.pack("<Q", len(text)) + text + head[8 + size :], rest), wanted)
    for _ in range(1_500):
        damaged = bytearray(head)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            read(place, sealed(bytes(damaged), rest), wanted).validate(full=True)
        except DamagedRows:
            continue


@pytest.mark.medium
def test_records_with_right_checks_are_still_checked(place):
    made, hashes = (
        table(BLOCK_ROWS, types=(pa.int64(), pa.string(), pa.bool_(), pa.binary())),
        np.zeros(BLOCK_ROWS, np.uint32),
    )
    stored, chance, refused = content(hashes, made), random.Random(7), 0
    length = struct.unpack_from("<Q", stored, 16)[0]
    head, rest = stored[56 : 56 + length], stored[56 + length :]
    size = struct.unpack_from("<Q", head)[0]
    start = struct.unpack_from("<Q", head, 8 + size + 8 + 8)[0]
    records = len(rest) - start
    for _ in range(1_500):
        damaged = bytearray(rest)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        check = zlib.crc32(damaged[records:], zlib.crc32(damaged[:records]))
        resealed = head[: 8 + size + 4] + struct.pack("<I", check) + head[8 + size + 8 :]
        try:
            read(place, sealed(resealed, bytes(damaged)), np.zeros(1, np.uint32)).validate(full=True)
        except DamagedRows:
            refused += 1
    assert 100 < refused < 1_500


def test_hashes_are_found_among_others():
    hashes = np.array([5, 0, 7, 2**32 - 1], np.uint32)
    assert are_hashes_of(hashes, np.array([0, 7], np.uint32)).tolist() == [False, True, True, False]
    assert are_hashes_of(hashes, np.empty(0, np.uint32)).tolist() == [False] * 4
