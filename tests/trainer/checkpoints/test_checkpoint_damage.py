"""A damaged checkpoint is skipped with its file and reason; it never gives other weights or a trace."""

from __future__ import annotations

import os
import random
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.checkpoints.damage import SmallRun, flipped, kept, overwritten, small_run
from trainer.checkpoints.checkpoint import read_checkpoint
from trainer.checkpoints.manifest import MANIFEST, Manifest
from trainer.errors import TornCheckpoint
from trainer.run.history.history_file import HISTORY
from trainer.run.weights.saved_run import saved_run

pytest.importorskip("tensorflow")

SEED = 20261122


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return small_run(tmp_path_factory.mktemp("damaged") / "run")


def files(folder: Path) -> list[Path]:
    """The files of a commit but its metric history: a damaged one begins again, and holds back no weights."""
    found = sorted(path for path in folder.iterdir() if path.name != HISTORY)
    assert len(found) > 10
    return found


def assert_torn_manifest(data: bytes) -> None:
    with pytest.raises(TornCheckpoint) as caught:
        Manifest.from_bytes(data, MANIFEST)
    assert caught.value.where.startswith(MANIFEST)


def assert_torn(folder: Path, file: str) -> None:
    with pytest.raises(TornCheckpoint) as caught:
        saved_run(read_checkpoint(folder))
    assert caught.value.where.endswith(file)


def test_an_intact_run_is_read_whole(run: SmallRun) -> None:
    found, skipped = run.read()
    assert (found.path, skipped) == (str(run.newest), [])
    assert {
        "dense/weights/000",
        "dense/random/000",
        "dense/optimizer/000",
        "embedding/slots/user",
    } <= found.arrays.keys()
    assert not found.arrays["embedding/rows/user"].flags.writeable


def test_a_flip_in_any_byte_of_the_manifest_is_noticed(run: SmallRun) -> None:
    draw, data = random.Random(SEED), (run.newest / MANIFEST).read_bytes()
    for at in range(len(data)):
        assert_torn_manifest(flipped(data, at, draw.randrange(8)))


@pytest.mark.medium
def test_a_flipped_bit_in_any_file_selects_the_previous_checkpoint(run: SmallRun) -> None:
    draw = random.Random(SEED)
    for path in files(run.newest):
        data = path.read_bytes()
        for at in draw.sample(range(len(data)), min(len(data), 12)):
            with overwritten(path, flipped(data, at, draw.randrange(8))):
                run.assert_passed_over(path.name)


@pytest.mark.slow
def test_every_flip_of_every_file_is_noticed(run: SmallRun) -> None:
    """All bits of the manifest, one bit of every byte of the other files; each third one through the choice of the run."""
    draw, flips = random.Random(SEED), 0
    for path in files(run.newest):
        data = path.read_bytes()
        for at in range(len(data)):
            for bit in range(8) if path.name == MANIFEST else [draw.randrange(8)]:
                flips += 1
                with overwritten(path, flipped(data, at, bit)):
                    if flips % 3:
                        assert_torn(run.newest, path.name)
                    else:
                        run.assert_passed_over(path.name)
    print(f"{flips} flips: each was noticed, none gave other weights")
    assert flips > 20_000


def test_a_manifest_of_any_length_is_noticed(run: SmallRun) -> None:
    path = run.newest / MANIFEST
    data = path.read_bytes()
    for length in range(len(data)):
        assert_torn_manifest(data[:length])
    for more in (b" ", b"\n", b"\0", data):
        with overwritten(path, data + more):
            run.assert_passed_over(MANIFEST)


def test_a_shorter_longer_or_absent_file_is_noticed(run: SmallRun, tmp_path: Path) -> None:
    for path in files(run.newest):
        data = path.read_bytes()
        for damaged in (b"", data[:-1], data[: len(data) // 2], data + b"\0"):
            with overwritten(path, damaged):
                run.assert_passed_over(path.name)
        with kept(run.newest, tmp_path / "copy"):
            path.unlink()
            run.assert_passed_over(path.name)


@pytest.mark.parametrize("kind", ["folder", "named pipe", "link to itself"])
@pytest.mark.parametrize("file", [MANIFEST, "state.json", "array-0000.npy"])
def test_something_else_in_the_place_of_a_file_is_noticed(run: SmallRun, tmp_path: Path, kind: str, file: str) -> None:
    with kept(run.newest, tmp_path / "copy"):
        path = run.newest / file
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "named pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(path)
        run.assert_passed_over(file)


def test_two_files_that_change_places_are_noticed(run: SmallRun, tmp_path: Path) -> None:
    """Arrays of one type and shape, such as the two slots of a weight, differ by what they are for."""
    arrays = [path for path in files(run.newest) if path.suffix == ".npy"]
    alike = 0
    for one, other in pairwise(arrays):
        if one.read_bytes() == other.read_bytes():
            continue  # equal bytes in either place are the same checkpoint
        alike += one.stat().st_size == other.stat().st_size
        with kept(run.newest, tmp_path / "copy"):
            one.rename(tmp_path / "other")
            other.rename(one)
            (tmp_path / "other").rename(other)
            run.assert_passed_over(".npy")
    assert alike


def test_a_file_of_the_checkpoint_before_is_noticed(run: SmallRun) -> None:
    for path in files(run.newest):
        older = (run.before / path.name).read_bytes()
        if older != path.read_bytes():
            with overwritten(path, older):
                found, (message,) = run.read()
                assert found.path == str(run.before)
                assert run.newest.name in message


def test_a_whole_checkpoint_under_another_epoch_is_noticed(run: SmallRun, tmp_path: Path) -> None:
    with kept(run.newest, tmp_path / "copy"):
        shutil.rmtree(run.newest)
        shutil.copytree(run.before, run.newest)
        run.assert_passed_over("folder of its epoch")


def test_more_files_than_were_written_change_nothing(run: SmallRun, tmp_path: Path) -> None:
    with kept(run.newest, tmp_path / "copy"):
        for path in files(run.newest):
            shutil.copy(path, path.with_name(f"copy-of-{path.name}"))
        np.save(run.newest / "array-9999.npy", np.zeros(3))
        assert run.read()[0].path == str(run.newest)


def test_a_damaged_lock_changes_nothing(run: SmallRun) -> None:
    path = run.folder / "lock"
    data = path.read_bytes()
    for damaged in (b"", b"\xff" * 64, *(flipped(data, at, 7) for at in range(len(data)))):
        with overwritten(path, damaged):
            assert run.read()[1] == []
