from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.run.batch_files.test_packed_batches import assert_same
from tests.trainer.run.reading.test_batches import RICH_LAYOUT, rich_table
from trainer.errors import DamagedBatches
from trainer.model.heads import BINARY
from trainer.run.batch_files.batch_file import BatchFile, BatchFileWriter
from trainer.run.batch_files.packed_batches import BatchLayout
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import decode
from transforms.errors import StorageError
from warehouse.files.batch_files.folder import BatchFolder
from warehouse.files.batch_files.origin import BatchOrigin

DIGEST = "ab" * 32
LAYOUT = BatchLayout.of(RICH_LAYOUT, BINARY, 16, [("hour=00#0", 100)])
ORIGIN = BatchOrigin("ctr", 1, "log", ("clicked", "words"), ("cd" * 32,))


def batches_of(rows=100):
    decoded = decode(rich_table(rows), RICH_LAYOUT, "hour=00#0")
    return list(make_batches([decoded], RICH_LAYOUT, batch_rows=16))


def write(home, batches, digest=DIGEST):
    folder = BatchFolder(home, 1 << 30)
    file = folder.begin("log", digest)
    writer = BatchFileWriter(file, ORIGIN, digest, LAYOUT)
    for batch in batches:
        writer.add(batch)
    writer.publish()
    return folder.find("log", digest)


def read(path, digest=DIGEST):
    with BatchFile(path, digest) as file:
        return list(file.batches(LAYOUT))


def test_a_file_has_the_batches_that_were_written(tmp_path):
    batches = batches_of()
    path = write(tmp_path, batches)
    assert_same(read(path), batches)
    with BatchFile(path, DIGEST) as file:
        assert len(file) == len(batches) == 7
        assert_same(list(file.batches(LAYOUT, 3)), batches[3:])
    assert os.listdir(path.parent) == [path.name]


def test_a_file_of_no_batches_is_empty(tmp_path):
    assert read(write(tmp_path, [])) == []


def test_equal_batches_give_equal_files(tmp_path):
    one, other = (write(tmp_path / name, batches_of()) for name in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_a_file_under_another_name_is_refused(tmp_path):
    path = write(tmp_path, batches_of())
    with pytest.raises(DamagedBatches, match="digest of its name"):
        read(path, "cd" * 32)


def test_a_batch_of_another_layout_is_refused(tmp_path):
    path = write(tmp_path, batches_of())
    other = BatchLayout.of(RICH_LAYOUT, BINARY, 8, [("hour=00#0", 100)])
    with BatchFile(path, DIGEST) as file, pytest.raises(DamagedBatches, match="sound header"):
        list(file.batches(other))
    fewer = BatchLayout.of(RICH_LAYOUT, BINARY, 16, [("hour=00#0", 50)])
    with BatchFile(path, DIGEST) as file, pytest.raises(DamagedBatches, match="events of its fragments"):
        list(file.batches(fewer))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_cut_file_is_refused(tmp_path, share):
    path = write(tmp_path, batches_of())
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(DamagedBatches):
        read(path)


def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path):
    """Without a signal: the pages of a batch are read in by a call that fails."""
    path = write(tmp_path, batches_of())
    with BatchFile(path, DIGEST) as file:
        found = file.batches(LAYOUT)
        next(found)
        os.truncate(path, 4096)
        with pytest.raises(DamagedBatches, match="keep its length"):
            list(found)


def test_pages_that_are_gone_are_an_error_and_no_signal(tmp_path, monkeypatch):
    """The length is looked at just before the file is cut."""
    path = write(tmp_path, batches_of())
    with BatchFile(path, DIGEST) as file:
        size = file.size_bytes
        found = file.batches(LAYOUT)
        next(found)
        os.truncate(path, 0)
        monkeypatch.setattr(
            "trainer.run.batch_files.batch_file.os.fstat",
            lambda descriptor: os.stat_result((0,) * 6 + (size,) + (0,) * 3),
        )
        with pytest.raises(DamagedBatches, match="be read from its disk"):
            list(found)


def test_a_file_that_is_removed_while_it_is_read_stays_readable(tmp_path):
    batches = batches_of()
    path = write(tmp_path, batches)
    with BatchFile(path, DIGEST) as file:
        found = file.batches(LAYOUT)
        next(found)
        BatchFolder(tmp_path, 1).remove(path)
        assert_same(list(found), batches[1:])


@pytest.mark.medium
@settings(max_examples=scaled(30))
@given(seed=st.integers(0, 2**32))
def test_damaged_files_are_refused(tmp_path_factory, seed):
    """Every changed byte is found: of the head, the batches, the directory and the end."""
    home = tmp_path_factory.mktemp("damaged")
    path = write(home, batches_of(30))
    content, random = path.read_bytes(), Random(seed)
    for _ in range(100):
        damaged = mutated(content, random, tokens=(b"\0" * 8, b"\xff" * 8))
        if damaged == content:
            continue
        path.write_bytes(damaged)
        with pytest.raises(DamagedBatches):
            read(path)


def test_a_full_folder_is_an_error_and_leaves_nothing(tmp_path):
    folder = BatchFolder(tmp_path, 1500)
    writer = BatchFileWriter(folder.begin("log", DIGEST), ORIGIN, DIGEST, LAYOUT)
    batch = batches_of()[0]
    writer.add(batch)
    for _ in range(2):
        with pytest.raises(StorageError, match="stay in their limit"):
            writer.add(batch)
    writer.discard()
    assert folder.files() == []
