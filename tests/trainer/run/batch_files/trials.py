"""Trials by seed: a damaged batch with a right checksum, and a damaged file. A program: see :mod:`tests.fuzz.bounded`."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.bounded import main
from tests.support.mutations import mutated
from tests.trainer.run.batch_files.test_batch_file import DIGEST, LAYOUT, batches_of, write
from tests.trainer.run.batch_files.test_packed_batches import REGRESSION, assert_sound, frozen, some_batch
from trainer.run.batch_files.batch_file import BatchFile
from trainer.run.batch_files.packed_batches import unpack_batch

_TOKENS = (bytes(8), b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\x00\x00\x00\x00\x01\x00\x00\x00", b"\x01" + bytes(7))


@cache
def _some_batch() -> tuple[object, bytes]:
    _, layout, content = some_batch(REGRESSION)
    return layout, content


@cache
def _some_file() -> tuple[Path, bytes]:
    path = write(Path(sys.argv[4]), batches_of())
    return path, path.read_bytes()


def _damaged(content: bytes, seed: int) -> bytes:
    """The content, damaged unless the seed is that of the warm-up."""
    return mutated(content, Random(seed), _TOKENS) if seed >= 0 else content


def batch(seed: int) -> None:
    """Unpack damaged bytes."""
    layout, content = _some_batch()
    assert_sound(unpack_batch(frozen(_damaged(content, seed)), layout), layout)


def file(seed: int) -> None:
    """Read a damaged file."""
    path, content = _some_file()
    path.write_bytes(_damaged(content, seed))
    with BatchFile(path, DIGEST) as found:
        for one in found.batches(LAYOUT):
            assert_sound(one, LAYOUT)


if __name__ == "__main__":
    main({"batch": batch, "file": file})
