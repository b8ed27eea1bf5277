"""Compressed logs are read by their first bytes, whatever they are called."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import TruncatedLog, UnknownFormat
from pipelines.inference.infer import infer_schema
from pipelines.parsing.compression import log_pieces
from pipelines.parsing.log import parse_log, parse_whole_log
from tests.pipelines.logs import log_schema, tsv_line
from tests.support.examples import scaled
from transforms.errors import HeadraceError

LOG = "".join(tsv_line(n * 7919 % 1000, n / 50, query=f"red shoes {n * 31 % 97}") for n in range(500)).encode()
MARK = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"


def by_arrow(name: str) -> Callable[[bytes], bytes]:
    def compress(content: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, name) as stream:
            stream.write(content)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    return compress


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: gzip.compress(content, mtime=0), "bzip2": bz2.compress, "xz": lzma.compress,
    "zstd": by_arrow("zstd"), "lz4": by_arrow("lz4"),
}  # fmt: skip
SUFFIXES = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst", "lz4": ".lz4"}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("name", ["log", "log.tsv", "log.tsv.GZ", "log.tsv.zst", "log.bz2", "log.Xz", "log.parquet"])
def test_the_first_bytes_decide_and_not_the_name(tmp_path: Path, compression: str, name: str) -> None:
    plain, path = tmp_path / "plain.tsv", tmp_path / name
    plain.write_bytes(LOG)
    path.write_bytes(COMPRESSIONS[compression](LOG))
    read = parse_whole_log(str(path), log_schema())
    assert read.table.equals(parse_whole_log(str(plain), log_schema()).table)
    assert read.rejects == ()
    assert infer_schema([str(path)]).schema == infer_schema([str(plain)]).schema


@pytest.mark.parametrize("after", [b"\0" * 512, b"\0"])
def test_zeros_after_the_members_of_a_gzip_file_are_padding(tmp_path: Path, after: bytes) -> None:
    path, plain = tmp_path / "log", tmp_path / "plain"
    plain.write_bytes(LOG)
    half = len(LOG) // 2
    path.write_bytes(gzip.compress(LOG[:half]) + gzip.compress(LOG[half:]) + after)
    assert parse_whole_log(str(path), log_schema()).table.equals(parse_whole_log(str(plain), log_schema()).table)


@pytest.mark.parametrize("kept_bytes", [2, 10, 20])
def test_a_second_member_that_is_cut_off_is_damage(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(LOG) + gzip.compress(LOG)[:kept_bytes])
    with pytest.raises(TruncatedLog):
        parse_whole_log(str(path), log_schema())


@pytest.mark.parametrize("name", ["log.tsv.gz", "log.zst", "log.bz2"])
def test_a_plain_text_is_read_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(LOG)
    assert parse_whole_log(str(tmp_path / name), log_schema()).table.num_rows == 500
    assert infer_schema([str(tmp_path / name)]).rows == 500


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("piece_bytes", [7, 1000, 1 << 20])
def test_members_one_after_the_other_are_one_text(tmp_path: Path, compression: str, piece_bytes: int) -> None:
    compress = COMPRESSIONS[compression]
    members = [compress(LOG[:100]), compress(b""), compress(LOG[100:5000]), compress(LOG[5000:])]
    padding = b"\0" * 512 if compression in ("gzip", "xz") else MARK if compression in ("zstd", "lz4") else b""
    (tmp_path / "log").write_bytes((MARK if compression == "zstd" else b"") + padding.join(members) + padding)
    pieces = list(log_pieces(str(tmp_path / "log"), piece_bytes))
    assert b"".join(pieces) == LOG
    assert max(map(len, pieces)) <= piece_bytes


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("kept_share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_says_how_much_could_be_read(tmp_path: Path, compression: str, kept_share: float) -> None:
    content = COMPRESSIONS[compression](LOG)
    path = tmp_path / f"log{SUFFIXES[compression]}"
    path.write_bytes(content[: int(len(content) * kept_share)])
    with pytest.raises(TruncatedLog, match=f"a {compression} file must be complete") as caught:
        parse_whole_log(str(path), log_schema())
    assert caught.value.where == str(path)
    assert 0 <= int(caught.value.allowed.split(";")[1].split()[0]) <= 500 * (kept_share > 0)


def test_an_empty_file_that_is_called_compressed_was_cut(tmp_path: Path) -> None:
    for name, content in (("a.gz", b""), ("a.gz", b"\x1f"), ("a.zst", b"\x28\xb5"), ("a.bz2", b"BZh9")):
        (tmp_path / name).write_bytes(content[:3])
        with pytest.raises(TruncatedLog):
            list(log_pieces(str(tmp_path / name), 100))
    (tmp_path / "a.tsv").write_bytes(b"")
    assert list(log_pieces(str(tmp_path / "a.tsv"), 100)) == []


def test_words_that_begin_like_a_compression_are_text(tmp_path: Path) -> None:
    for text in (b"BZh9 is a word\n", b"BZh9", b"PK and more\n", b"ORC_ID,label\n1,2\n", b"Obj 1\n", b"FEA,1\n"):
        (tmp_path / "log").write_bytes(text)
        assert b"".join(log_pieces(str(tmp_path / "log"), 1 << 20)) == text


OTHER_KINDS = {
    "a Parquet file": b"PAR1....", "a zip archive": b"PK\x03\x04....", "a tar archive": b"a.csv".ljust(257, b"\0") + b"ustar\0",
    "a 7z archive": b"7z\xbc\xaf\x27\x1c..", "an Avro file": b"Obj\x01....", "an ORC file": b"ORC\x0a\x03\x0a\x08",
    "an Arrow file": b"ARROW1\0\0", "a file of compress (.Z)": b"\x1f\x9d....", "a Snappy stream": b"\xff\x06\0\0sNaPpY",
    "an SQLite database": b"SQLite format 3\0",
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_KINDS)
@pytest.mark.parametrize("packed", [False, True])
def test_other_kinds_of_files_are_refused_by_infer_and_import_alike(tmp_path: Path, kind: str, packed: bool) -> None:
    content = OTHER_KINDS[kind] + b"\n" * 300
    path = tmp_path / "log.csv"
    path.write_bytes(gzip.compress(content) if packed else content)
    errors = []
    for read in (
        lambda: infer_schema([str(path)]),
        lambda: list(parse_log(str(path), log_schema())),
        lambda: list(log_pieces(str(path), 1)),
    ):
        with pytest.raises(UnknownFormat) as caught:
            read()
        errors.append(str(caught.value))
    assert errors[0] == errors[1] == errors[2]
    assert kind in errors[0]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=scaled(40))
def test_a_damaged_file_is_read_or_is_one_error(
    tmp_path_factory: pytest.TempPathFactory, compression: str, seed: int
) -> None:
    random = Random(seed)
    content = bytearray(COMPRESSIONS[compression](LOG))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(content))
        match random.randrange(3):
            case 0:
                content[at] = random.randrange(256)
            case 1:
                del content[at : at + random.randrange(1, 60)]
            case _:
                content[at:at] = random.randbytes(random.randrange(1, 20))
        content = content or bytearray(b"x")
    path = tmp_path_factory.mktemp("damaged") / "log"
    path.write_bytes(bytes(content))
    out = []
    refused: HeadraceError | None = None
    try:
        out.extend(log_pieces(str(path), 100))
    except (TruncatedLog, UnknownFormat) as error:
        refused = error
    if isinstance(refused, TruncatedLog):
        assert f"({sum(map(len, out))} bytes) could be read" in refused.allowed
    assert all(len(piece) <= 100 for piece in out)
    with contextlib.suppress(HeadraceError):
        infer_schema([str(path)])
