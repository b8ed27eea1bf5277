from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from trainer.checkpoints.checkpoint import (
    checkpoints_dir,
    epochs_committed,
    read_checkpoint,
    read_newest,
    write_checkpoint,
)
from trainer.checkpoints.retention import remove_leftovers
from trainer.errors import CheckpointNotWritten, TornCheckpoint
from transforms.errors import StorageError

ARRAYS = {
    "weights/odd name": np.arange(6, dtype=np.float32).reshape(2, 3),
    "rows": np.array([3, 5]),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(7, np.int64),
    "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
}
DOCUMENT = {"step": 3, "nested": {"b": [1, 2.5, None]}}


def write(run_dir: Path, epochs_done: int, *, keep: int = 9, **changes) -> Path:
    return write_checkpoint(run_dir, epochs_done, {**DOCUMENT, "epoch": epochs_done, **changes}, ARRAYS, keep=keep)


def newest(run_dir: Path):
    skipped: list[str] = []
    checkpoint = read_newest(run_dir, on_skip=skipped.append)
    return checkpoint, skipped


def test_a_saved_checkpoint_round_trips(tmp_path):
    path = write(tmp_path, 4)
    checkpoint, skipped = newest(tmp_path)
    assert (checkpoint.path, checkpoint.epochs_done, skipped) == (str(path), 4, [])
    assert checkpoint.document == {**DOCUMENT, "epoch": 4}
    assert checkpoint.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert checkpoint.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(checkpoint.arrays[name], array)


def test_equal_content_gives_equal_bytes(tmp_path):
    one, other = write(tmp_path / "one", 1), write(tmp_path / "other", 1)
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_a_checkpoint_below_torn_ones_outlives_them(tmp_path):
    for epoch in (1, 2, 3):
        write(tmp_path, epoch)
    for epoch in (2, 3):
        (checkpoints_dir(tmp_path) / f"epoch-{epoch:06d}" / "manifest.json").write_bytes(b"torn")
    written = write(tmp_path, 2, keep=1)
    checkpoint, skipped = newest(tmp_path)
    assert (checkpoint.path, skipped) == (str(written), [])


def test_no_checkpoint_is_none_and_only_the_newest_are_kept(tmp_path):
    assert newest(tmp_path) == (None, [])
    for epoch in range(1, 6):
        write(tmp_path, epoch, keep=2)
    assert sorted(path.name for path in checkpoints_dir(tmp_path).iterdir()) == ["epoch-000004", "epoch-000005"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "file", "reason"),
    [
        (truncate, "array-0000.npy", "another size"),
        (flip, "array-0000.npy", "the bytes that"),
        (Path.unlink, "array-0001.npy", "must exist"),
        (flip, "state.json", "the bytes that"),
        (Path.unlink, "state.json", "must exist"),
        (Path.unlink, "manifest.json", "must exist"),
        (truncate, "manifest.json", "JSON text"),
        (lambda path: path.write_text('{"format": "other"}'), "manifest.json", "match the digest"),
    ],
)
def test_a_torn_checkpoint_is_passed_over_with_the_reason(tmp_path, damage, file, reason):
    write(tmp_path, 1)
    damage(write(tmp_path, 2) / file)
    checkpoint, (message,) = newest(tmp_path)
    assert checkpoint.epochs_done == 1
    assert message.startswith("epoch-000002")
    assert reason in message
    assert file in message
    shutil.rmtree(checkpoint.path)
    with pytest.raises(TornCheckpoint, match="a run must have an intact checkpoint") as caught:
        newest(tmp_path)
    assert reason in caught.value.value
    assert caught.value.next_step


def test_a_new_checkpoint_replaces_a_torn_one(tmp_path):
    truncate(write(tmp_path, 1) / "state.json")
    write(tmp_path, 1, again=True)
    assert newest(tmp_path)[0].document["again"]
    assert [path.name for path in checkpoints_dir(tmp_path).iterdir()] == ["epoch-000001"]


def test_nothing_is_pickled(tmp_path):
    with pytest.raises(ValueError, match="must hold numbers"):
        write_checkpoint(tmp_path, 1, {}, {"bad": np.array([{}], object)}, keep=1)
    path = write(tmp_path, 2)
    np.save(path / "array-0000.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(TornCheckpoint):
        read_checkpoint(path)


def test_a_full_disk_is_one_clear_error_and_the_checkpoint_before_stays(tmp_path):
    """A real refusal by the system: the process may not write files beyond 4 KiB (EFBIG)."""
    write(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(CheckpointNotWritten, match="disk is full") as caught:
            write_checkpoint(tmp_path, 2, {}, {"big": np.zeros(100_000)}, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert isinstance(caught.value, StorageError)
    assert "epoch-000002" in caught.value.where
    assert caught.value.next_step.startswith("free disk space")
    assert [path.name for path in checkpoints_dir(tmp_path).iterdir()] == ["epoch-000001"]
    assert newest(tmp_path)[0].epochs_done == 1


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path):
    checkpoints_dir(tmp_path).write_text("a file stands in the way")
    with pytest.raises(CheckpointNotWritten) as caught:
        write(tmp_path, 1)
    assert "disk is full" not in caught.value.what


WRITER = """
    import sys
    import numpy as np
    from pathlib import Path
    from trainer.checkpoints.checkpoint import write_checkpoint
    run_dir, epoch = Path(sys.argv[1]), int(sys.argv[2])
    while True:
        epoch += 1
        arrays = {f"a{k}": np.full(20_000, epoch, np.int64) for k in range(5)}
        write_checkpoint(run_dir, epoch, {"epoch": epoch}, arrays, keep=2)
        print(epoch, flush=True)
"""


@pytest.mark.medium
def test_a_writer_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    """SIGKILL while it does nothing but write checkpoints; what it reported is there, and nothing is half there."""
    rng = np.random.default_rng(11)
    reached = 0
    for _ in range(8):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path), str(reached)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(int(rng.integers(1, 4))):
            process.stdout.readline()
        try:
            process.wait(float(rng.random() * 0.05))
        except subprocess.TimeoutExpired:
            process.kill()
        reported = [reached, *map(int, process.communicate()[0].split())][-1]
        checkpoint, skipped = newest(tmp_path)
        assert skipped == []
        assert checkpoint.epochs_done >= max(reported, reached + 1)
        assert all((array == checkpoint.epochs_done).all() for array in checkpoint.arrays.values())
        reached = checkpoint.epochs_done
        remove_leftovers(tmp_path)
        assert not [path for path in checkpoints_dir(tmp_path).iterdir() if path.name.startswith(".")]


def test_names_that_are_no_checkpoint_are_not_read_and_not_lost(tmp_path):
    for name in ("epoch-000002.bak", "epoch-٠٠٠٠٠٣", "epoch-0000004", "epoch-x"):
        shutil.copytree(write(tmp_path, 1), checkpoints_dir(tmp_path) / name)
    (checkpoints_dir(tmp_path) / "epoch-000005").write_text("a file")
    assert newest(tmp_path)[0].epochs_done == 1
    assert epochs_committed(tmp_path) == 1
    shutil.rmtree(checkpoints_dir(tmp_path) / "epoch-000001")
    with pytest.raises(TornCheckpoint, match="a run must have an intact checkpoint") as caught:
        newest(tmp_path)  # a run that began again from zero would overtake what these hold
    assert "epoch-000002.bak: not the folder of a checkpoint" in caught.value.value


def test_more_than_a_million_epochs_are_in_order(tmp_path):
    for epoch in (999_998, 999_999, 1_000_000):
        write(tmp_path, epoch, keep=2)
    assert newest(tmp_path)[0].epochs_done == epochs_committed(tmp_path) == 1_000_000
    assert sorted(path.name for path in checkpoints_dir(tmp_path).iterdir()) == ["epoch-1000000", "epoch-999999"]


def test_of_links_only_the_link_is_deleted(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").write_text("kept")
    write(tmp_path, 2)
    for name in ("epoch-000001", ".tmp-epoch-000003-1"):
        (checkpoints_dir(tmp_path) / name).symlink_to(theirs)
    (checkpoints_dir(tmp_path) / ".tmp-file").write_text("left behind")
    remove_leftovers(tmp_path)
    write(tmp_path, 3, keep=2)
    assert sorted(path.name for path in checkpoints_dir(tmp_path).iterdir()) == ["epoch-000002", "epoch-000003"]
    assert (theirs / "file").read_text() == "kept"


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([1 + 2j]), np.array([1.0], ">f8")])
def test_an_array_that_could_not_be_read_back_is_not_written(tmp_path, array):
    with pytest.raises(ValueError, match="must hold numbers"):
        write_checkpoint(tmp_path, 1, {}, {"bad": array}, keep=1)
    remove_leftovers(tmp_path)
    assert newest(tmp_path) == (None, [])


def test_a_checkpoint_replaces_a_file_or_a_link(tmp_path):
    checkpoints_dir(tmp_path).mkdir()
    (checkpoints_dir(tmp_path) / "epoch-000001").write_text("a file")
    (checkpoints_dir(tmp_path) / "epoch-000002").symlink_to(tmp_path)
    write(tmp_path, 1)
    write(tmp_path, 2)
    assert newest(tmp_path)[0].epochs_done == 2
    assert sorted(path.name for path in checkpoints_dir(tmp_path).iterdir()) == ["epoch-000001", "epoch-000002"]
