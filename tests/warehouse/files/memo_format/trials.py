"""Mutated memo files, artifacts and overlays for :mod:`tests.warehouse.files.memo_format.test_fuzz`.

Half of the mutants of format 3 have their checksums made right again: what can write the folder of memos can do so too, and
then the decoder itself is all that stands between the bytes and the process.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from tests.fuzz.bounded import main
from tests.fuzz.mutations import mutated_bytes
from tests.warehouse.files.memo_format.test_bytes import GOLDEN
from warehouse import Storage
from warehouse.files.arrow_file import write_arrow_file
from warehouse.files.artifacts import artifact_path, read_artifact, write_artifact
from warehouse.files.digests import table_digests
from warehouse.files.memo_file import read_memo_file
from warehouse.files.memo_format.directory import HEAD, MAGIC, Directory, directory_digest, segment_checksum
from warehouse.tables.overlays import read_deletions, read_overlays
from warehouse.tables.table import Fragment, Overlay

UNDAMAGED = -1
_COUNTS_BYTES, _SEGMENT_BYTES, _COLUMN_BYTES = 24, 56, 28
_ODD = (0, 1, 2, 7, 63, 64, 65, 127, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1)
#: Of a segment's record: offset and width of each number, but for its checksum.
_SEGMENT_NUMBERS = ((0, 8), (8, 8), (32, 8), (40, 8), (48, 4), (52, 1), (53, 1), (54, 1))
_COLUMN_NUMBERS = ((0, 1), (1, 1), (4, 4), *((8 + 4 * i, 4) for i in range(5)))


def forged(content: bytes, draws: random.Random) -> tuple[bytes, str]:
    """A damaged memo file of format 3 whose checksums are right, and the digest of its directory."""
    found = bytearray(content)
    (length,) = struct.unpack_from("<Q", found, len(MAGIC))
    segments, columns = struct.unpack_from("<II", found, HEAD.size)
    first_segment = HEAD.size + _COUNTS_BYTES
    first_column = first_segment + segments * _SEGMENT_BYTES
    for _ in range(draws.choice((1, 1, 2, 3))):
        match draws.randrange(5):
            case 0 | 1:
                at, size = draws.choice(_SEGMENT_NUMBERS)
                _overwrite(found, first_segment + draws.randrange(segments) * _SEGMENT_BYTES + at, size, draws)
            case 2:
                at, size = draws.choice(_COLUMN_NUMBERS)
                _overwrite(found, first_column + draws.randrange(columns) * _COLUMN_BYTES + at, size, draws)
            case 3:
                _overwrite(found, HEAD.size + draws.choice((0, 4, 8, 16)), 4, draws)
            case _:
                start = HEAD.size + length
                found[start:] = _of_length(mutated_bytes(bytes(found[start:]), draws), len(found) - start)
    for place in range(segments):
        record = first_segment + place * _SEGMENT_BYTES
        position, stored = struct.unpack_from("<QQ", found, record)
        if position + stored <= len(found):
            found[record + 16 : record + 32] = segment_checksum(bytes(found[position : position + stored]))
    return bytes(found), directory_digest(bytes(found[HEAD.size : HEAD.size + length]))


def _overwrite(found: bytearray, at: int, size: int, draws: random.Random) -> None:
    number = int.from_bytes(found[at : at + size], "little")
    other = draws.choice((*_ODD, number + 1, number - 1, number + 64, number * 2, draws.randrange(300)))
    found[at : at + size] = (other % 256**size).to_bytes(size, "little")


def _of_length(content: bytes, length: int) -> bytes:
    return content[:length] + bytes(max(0, length - len(content)))


def _valid(arrays: Mapping[str, pa.Array]) -> None:
    """What a reader is given can be followed: every offset, and every text."""
    for array in arrays.values():
        array.validate(full=True)
        array.to_pylist() if not pa.types.is_timestamp(array.type) and "timestamp" not in str(array.type) else None


def memo_trial(folder: Path) -> Callable[[int], None]:
    """Read every column of a damaged file of format 3."""
    storage, content = Storage(str(folder)), GOLDEN.read_bytes()
    (length,) = struct.unpack_from("<Q", content, len(MAGIC))
    names = list(Directory.from_bytes(content[HEAD.size : HEAD.size + length]).columns)
    digest = directory_digest(content[HEAD.size : HEAD.size + length])

    def trial(seed: int) -> None:
        draws = random.Random(seed)
        if seed == UNDAMAGED:
            found, checksum = content, digest
        elif draws.random() < 0.25:
            found, checksum = mutated_bytes(content, draws), digest
        else:
            found, checksum = forged(content, draws)
        (folder / "it.memo").write_bytes(found)
        # Alone most of the time: one column that is refused must not hide the next.
        chosen = names if draws.random() < 0.1 else draws.sample(names, 4)
        _valid(read_memo_file(storage, "it.memo", chosen, checksum))

    return trial


def artifact_trial(folder: Path) -> Callable[[int], None]:
    """Read a damaged artifact."""
    storage = Storage(str(folder))
    values = pa.array([f"term {i}" * (i % 5) for i in range(2000)])
    digest = write_artifact(storage, values)
    path = folder / artifact_path(digest)
    content = path.read_bytes()

    def trial(seed: int) -> None:
        draws = random.Random(seed)
        path.write_bytes(content if seed == UNDAMAGED else mutated_bytes(content, draws))
        _valid({"values": read_artifact(storage, digest)})

    return trial


def overlay_trial(folder: Path) -> Callable[[int], None]:
    """Read a damaged overlay and a damaged deletion vector."""
    storage, rows = Storage(str(folder)), 500
    columns = {
        "text": pa.array([None if i % 9 == 0 else f"é{i}" for i in range(rows)], pa.large_string()),
        "tags": pa.array([["x"] * (i % 3) for i in range(rows)], pa.list_(pa.string())),
        "deleted": pa.array([i % 2 == 0 for i in range(rows)]),
        "kind": pa.array(["a", "b"] * (rows // 2)).dictionary_encode(),
    }
    write_arrow_file(storage, "overlay.arrow", columns)
    digests = table_digests(pa.table(columns))
    content = (folder / "overlay.arrow").read_bytes()
    made = {name: Overlay(name, "it.arrow", digests[name]) for name in columns}
    deletions = made.pop("deleted")
    fragment = Fragment("0" * 64, "/x", (0,), rows, 1, {}, overlays=tuple(made.values()), deletions=deletions)

    def trial(seed: int) -> None:
        draws = random.Random(seed)
        (folder / "it.arrow").write_bytes(content if seed == UNDAMAGED else mutated_bytes(content, draws))
        _valid(read_overlays(storage, fragment, [draws.choice(list(made))]))
        read_deletions(storage, fragment)

    return trial


_TRIALS = {"memo": memo_trial, "artifact": artifact_trial, "overlay": overlay_trial}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main({sys.argv[1]: _TRIALS[sys.argv[1]](Path(made))}, UNDAMAGED)
