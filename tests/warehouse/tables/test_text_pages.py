from __future__ import annotations

import gc
import io
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.fuzz.mutations import mutated_bytes
from tests.support.examples import scaled
from tests.warehouse.tables.crafted_parquet import PLAIN, RLE_DICTIONARY, CraftedPage, crafted_parquet, plain, varint
from warehouse.tables import parquet
from warehouse.tables.parquet import read_groups
from warehouse.tables.text_pages import read_text

TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ccc", "ä", "日本"]), st.text(max_size=40))
CODECS = ("snappy", "zstd", "gzip", "brotli", "lz4", "none")
DECODED = ("snappy", "zstd", "none")


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def decoded(content: bytes, coded: list[str] | None = None, groups: list[int] | None = None) -> dict[str, Any]:
    source = pa.BufferReader(content)
    file = pq.ParquetFile(source, read_dictionary=coded or [])
    chosen = list(range(file.metadata.num_row_groups)) if groups is None else groups
    return read_text(source, file, chosen, file.schema_arrow.names)


def by_arrow(content: bytes, coded: list[str] | None = None) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(content), read_dictionary=coded or []).read(use_threads=False)


def check_equal(ours: dict[str, Any], theirs: pa.Table) -> None:
    for name, column in ours.items():
        for chunk in column.chunks:
            chunk.validate(full=True)
        assert column.type == theirs.column(name).type
        assert as_plain(column).to_pylist() == as_plain(theirs.column(name)).to_pylist()


def as_plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


@settings(max_examples=scaled(150))
@given(
    values=st.lists(TEXTS, min_size=1, max_size=300),
    codec=st.sampled_from(CODECS),
    dictionary=st.booleans(),
    limit=st.sampled_from([16, 200, 1 << 20]),
    page=st.sampled_from([1, 64, 1 << 20]),
    batch=st.sampled_from([1, 7, 64, 1024]),
    group=st.sampled_from([1, 50, 1000]),
    nullable=st.booleans(),
    coded=st.booleans(),
)
def test_columns_are_decoded_as_arrow_decodes_them(
    values: list[str | None], codec: str, dictionary: bool, limit: int, page: int, batch: int, group: int,
    nullable: bool, coded: bool,
) -> None:  # fmt: skip
    values = values if nullable else [value or "" for value in values]
    table = pa.table([pa.array(values, pa.string())], pa.schema([pa.field("t", pa.string(), nullable)]))
    content = written(table, compression=codec, use_dictionary=dictionary, dictionary_pagesize_limit=limit,
                      data_page_size=page, write_batch_size=batch, row_group_size=group)  # fmt: skip
    names = ["t"] if coded else []
    ours = decoded(content, names)
    check_equal(ours, by_arrow(content, names))
    assert coded or codec not in DECODED or "t" in ours


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 13, 16, 17])
def test_codes_of_every_width(width: int) -> None:
    source = np.random.default_rng(width)
    values = [None if number % 11 == 0 else f"text {number}" for number in source.integers(0, 1 << width, 5_000)]
    values = sorted(values, key=str)[:1_000] + values
    content = written(pa.table({"t": pa.array(values, pa.string())}), data_page_size=2_000, write_batch_size=100)
    ours = decoded(content, ["t"])
    check_equal(ours, by_arrow(content, ["t"]))
    codes = ours["t"].chunk(0)
    assert codes.indices.null_count == 0
    assert codes.dictionary.null_count == 1


@pytest.mark.parametrize("version", ["1.0", "2.6"])
def test_files_of_other_writers(tmp_path: Path, version: str) -> None:
    values = [None if i % 7 == 0 else f"word {i * i % 97}" for i in range(40_000)]
    numbers = [f"{i}" for i in range(40_000)]
    table = pa.table({"few": values, "many": numbers})
    pl.DataFrame(pl.from_arrow(table)).write_parquet(tmp_path / "polars.parquet", row_group_size=9_000)
    with duckdb.connect() as connection:
        connection.register("rows", table)
        connection.execute(f"COPY rows TO '{tmp_path / 'duckdb.parquet'}' (FORMAT parquet, ROW_GROUP_SIZE 10000)")
    pq.write_table(table, tmp_path / "arrow.parquet", version=version, row_group_size=9_000)
    for path in sorted(tmp_path.iterdir()):
        for coded in ([], ["few"]):
            ours = decoded(path.read_bytes(), coded)
            check_equal(ours, by_arrow(path.read_bytes(), coded))
            assert path.name == "polars.parquet" or "few" in ours, path.name


def test_other_columns_are_left_to_arrow() -> None:
    table = pa.table({"number": [1, 2], "bytes": [b"a", b"b"], "large": pa.array(["a", "b"], pa.large_string()),
                      "lists": [["a"], ["b"]], "parts": [{"t": "a"}, {"t": "b"}], "t": ["a", "b"]})  # fmt: skip
    assert list(decoded(written(table))) == ["t"]
    assert list(decoded(written(table, data_page_version="2.0"))) == []
    delta = written(table, use_dictionary=False, column_encoding={"t": "DELTA_BYTE_ARRAY"})
    assert list(decoded(delta)) == []
    assert list(decoded(written(table), groups=[])) == []


def test_columns_and_order_of_read_groups() -> None:
    table = pa.table({"a": [1, 2, 3], "t": ["x", None, "x"], "u": ["long text of its own"] * 3})
    source = pa.BufferReader(written(table, row_group_size=2))
    read = read_groups(source, pq.ParquetFile(source), [0, 1], ["u", "a", "t"], ["t", "u", "absent"])
    assert read.column_names == ["u", "a", "t"]
    assert read.to_pylist() == table.select(["u", "a", "t"]).to_pylist()
    assert read_groups(source, pq.ParquetFile(source), [1], [], []).num_rows == 1


def test_adjacent_columns_are_one_read() -> None:
    reads: list[int] = []

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            reads.append(size or 0)
            return super().read(size)

    content = written(pa.table({f"t{i}": [f"{i}", "b"] * 50 for i in range(9)}))
    source = pa.PythonFile(Counted(content), mode="r")
    file = pq.ParquetFile(source)
    reads.clear()
    assert len(read_text(source, file, [0], file.schema_arrow.names)) == 9
    assert len(reads) == 1


@pytest.mark.slow
def test_a_read_leaves_nothing_behind() -> None:
    content = written(pa.table({"t": ["a", "b"] * 50}))
    source = pa.BufferReader(content)
    kept = frames_of_parquet()  # of errors that other tests hold
    before = {id(frame) for frame in kept}
    for _ in range(3):
        read_groups(source, pq.ParquetFile(source), [0], ["t"], ["t"])
    assert not [frame for frame in frames_of_parquet() if id(frame) not in before]


def frames_of_parquet() -> list[types.FrameType]:
    gc.collect()
    frames = [held for held in gc.get_objects() if type(held) is types.FrameType]
    return [frame for frame in frames if frame.f_code.co_filename == parquet.__file__]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_pages_are_decoded_as_arrow_decodes_them_or_not_at_all(seed: int) -> None:
    draws = random.Random(f"pages {seed}")
    values = [None if i % 5 == 0 else f"word {i % 17}" for i in range(200)]
    seeds = [written(pa.table({"t": values}), compression=codec, data_page_size=100, write_batch_size=16)
             for codec in ("none", "snappy")]  # fmt: skip
    seeds.append(written(pa.table({"t": values}), compression="none", use_dictionary=False, data_page_size=300))
    read = 0
    for _ in range(400):
        content = draws.choice(seeds)
        footer = int.from_bytes(content[-8:-4], "little") + 8
        body = mutated_bytes(content[:-footer], draws)[: len(content) - footer]
        content = body.ljust(len(content) - footer, b"\0") + content[-footer:]
        coded = draws.choice(([], ["t"]))
        ours = decoded(content, coded)
        try:
            theirs = by_arrow(content, coded)
            theirs.validate(full=True)
        except (pa.ArrowException, OSError):
            continue
        read += len(ours)
        if ours:
            check_equal(ours, theirs)
    assert read > 10


def compressed(content: bytes, codec: str) -> bytes:
    return content if codec == "none" else bytes(pa.Codec(codec).compress(content))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none", "gzip", "brotli"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_a_page_of_another_size_than_its_header_states_is_not_decoded(codec: str, dictionary: bool) -> None:
    """Arrow's codecs return as many bytes as they are asked for; those behind the end are of other objects."""
    texts = plain(b"a" * 100, b"b" * 96)
    codes = CraftedPage(compressed(b"\x01\x04\x00", codec), 3, 2, RLE_DICTIONARY)
    rest = [codes] if dictionary else []
    sound = CraftedPage(compressed(texts, codec), len(texts), 2, is_dictionary=dictionary)
    content = crafted_parquet([sound, *rest], codec)
    assert by_arrow(content).column("t").to_pylist() == ["a" * 100, "a" * 100 if dictionary else "b" * 96]
    assert list(decoded(content, ["t"] if dictionary else [])) == (["t"] if codec in DECODED else [])
    claims = plain(b"a", b"") + (4 + 92).to_bytes(4, "little")
    for produced in (claims, claims[:9], texts[:-1], texts + b"x"):
        page = CraftedPage(compressed(produced, codec), len(texts), 2, is_dictionary=dictionary)
        for coded in ([], ["t"]):
            assert decoded(crafted_parquet([page, *rest], codec), coded) == {}, (len(produced), coded)


def test_snappy_data_that_state_more_than_they_are_are_not_decoded() -> None:
    texts = plain(b"a" * 100, b"b" * 96)
    for produced in (texts[:9], texts[:-1], texts + b"x"):
        stored = bytes(pa.Codec("snappy").compress(produced))
        start = len(varint(len(produced)))
        page = CraftedPage(varint(len(texts)) + stored[start:], len(texts), 2)
        assert decoded(crafted_parquet([page], "snappy")) == {}
    for stored in (b"", b"\xff", b"\xff" * 6, varint(2**35) + b"\0"):
        assert decoded(crafted_parquet([CraftedPage(stored, len(texts), 2)], "snappy")) == {}


_PEAK = """
import re, sys
from tests.warehouse.tables.test_text_pages import decoded, written
import pyarrow as pa
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10
decoded(written(pa.table({"t": ["a", "b"]}), use_dictionary=False))
decoded(written(pa.table({"t": ["a", "b"]})), ["t"])
before = peak()
print([list(decoded(open(path, "rb").read(), coded)) for path in sys.argv[1:] for coded in ([], ["t"])])
print(peak() - before)
"""


@pytest.mark.medium
def test_memory_is_in_proportion_to_the_texts_and_one_page(tmp_path: Path) -> None:
    """Files of some kilobytes, whose pages together are hundreds of megabytes or state to be so."""

    def padded(content: bytes, encoding: int, size: int) -> CraftedPage:
        return CraftedPage(compressed(content.ljust(size, b"\0"), "zstd"), size, 1, encoding)

    codes, dictionary = b"\x01\x02\x00", CraftedPage(compressed(plain(b"a"), "zstd"), 5, 1, is_dictionary=True)
    boast = CraftedPage(compressed(codes, "zstd"), 2**31 - 1, 1, RLE_DICTIONARY)
    files = {
        "texts": [padded(plain(b""), PLAIN, 16 << 20)] * 40,
        "large": [dictionary, *[padded(codes, RLE_DICTIONARY, 16 << 20)] * 40],
        "small": [dictionary, *[padded(codes, RLE_DICTIONARY, 1_000_000)] * 600],
        "boast": [dictionary, *[boast] * 200],
    }
    for name, pages in files.items():
        (tmp_path / name).write_bytes(crafted_parquet(pages, "zstd"))
    assert by_arrow((tmp_path / "texts").read_bytes()).column("t").to_pylist() == [""] * 40
    paths = [str(tmp_path / name) for name in files]
    done = subprocess.run([sys.executable, "-c", _PEAK, *paths], capture_output=True, text=True, check=True, cwd=ROOT)
    found, peak = done.stdout.splitlines()
    assert found == str([[]] * 2 * len(files))
    assert int(peak) < 64, "MiB"


def test_pages_larger_than_their_chunk_are_left_to_arrow() -> None:
    page = CraftedPage(plain(b"ab"), 6, 1)
    sound = crafted_parquet([page], "none")
    assert list(decoded(sound)) == ["t"]
    assert decoded(crafted_parquet([page], "none", plain_size=5)) == {}


def test_a_nested_column_is_not_taken_for_another_of_its_path() -> None:
    nested = pa.array(
        [{"b": "wrong", "c": "d"}] * 3, pa.struct([pa.field("b", pa.string(), False), pa.field("c", pa.string())])
    )
    flat = ["right", None, "right"]
    fields = [pa.field("a", nested.type, nullable=False), pa.field("a.b", pa.string()), pa.field("t", pa.string())]
    for order in ([0, 1, 2], [1, 0, 2]):
        arrays = [nested, pa.array(flat), pa.array(["x", "y", "z"])]
        table = pa.table([arrays[i] for i in order], pa.schema([fields[i] for i in order]))
        source = pa.BufferReader(written(table))
        file = pq.ParquetFile(source)
        assert list(read_text(source, file, [0], ["a.b", "t", "a.c", "a", "absent"])) == ["t"]
        for coded in ([], ["a.b"]):
            read = read_groups(source, pq.ParquetFile(source), [0], ["t", "a.b"], coded)
            assert read.to_pylist() == [{"t": t, "a.b": right} for t, right in zip("xyz", flat, strict=True)]
