"""Tables in shared memory: an engine that begins with the memory of another one goes on from its values."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.support.small_folders import free_bytes_in, small_folder
from tests.trainer.tables.table_states import assert_same
from tests.trainer.tables.test_engine import batch_of
from trainer.errors import MemoryFull
from trainer.tables import Adagrad, CpuEngine, FeatureSpec, TableSpec
from trainer.tables.kernels.memory import SharedMemory

FEATURES = (
    FeatureSpec("a", TableSpec("one", 50, 8, Adagrad(0.1, 0.25))),
    FeatureSpec("b", TableSpec("two", 9, 3, Adagrad(0.1, 0.25))),
)
BATCH = batch_of([[[1, 3], [3], []], [[8], [0, 1], [2]]])


def train(engine, times=1):
    for _ in range(times):
        engine.lookup(BATCH)
        engine.apply_gradients(BATCH, np.ones((BATCH.rows, engine.width), np.float32))


def test_an_engine_goes_on_from_the_values_in_its_memory(tmp_path):
    alone = CpuEngine(FEATURES, seed=3)
    train(alone, 2)
    train(CpuEngine(FEATURES, seed=3, memory=SharedMemory(tmp_path)))
    second = CpuEngine(FEATURES, seed=3, memory=SharedMemory(tmp_path))
    train(second)
    assert_same(second.state(), alone.state())


def test_a_killed_process_leaves_its_values(tmp_path):
    program = f"""
import os, signal, pathlib
from tests.trainer.tables.test_table_memory import FEATURES, SharedMemory, CpuEngine, train
train(CpuEngine(FEATURES, seed=3, memory=SharedMemory(pathlib.Path({str(tmp_path)!r}))), 2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    alone = CpuEngine(FEATURES, seed=3)
    train(alone, 2)
    assert_same(CpuEngine(FEATURES, seed=3, memory=SharedMemory(tmp_path)).state(), alone.state())


def test_a_state_that_is_loaded_takes_the_place_of_the_values(tmp_path):
    engine = CpuEngine(FEATURES, seed=3, memory=SharedMemory(tmp_path))
    before = engine.state()
    train(engine)
    engine.load_state(before)
    assert_same(CpuEngine(FEATURES, seed=3, memory=SharedMemory(tmp_path)).state(), before)


def test_memory_of_another_size_is_not_used(tmp_path):
    train(CpuEngine(FEATURES, seed=3, memory=SharedMemory(tmp_path)))
    others = [FeatureSpec("a", TableSpec("one", 51, 8, Adagrad(0.1, 0.25)))]
    assert not len(CpuEngine(others, seed=3, memory=SharedMemory(tmp_path)).state()["one"].rows)


def test_memory_that_the_system_refuses_is_one_error(tmp_path):
    with pytest.raises(MemoryError):
        SharedMemory(tmp_path / "missing").array(
            "weights", np.zeros(1, np.int64), np.array([8]), np.float32, is_fresh=True
        )


MIB = 1 << 20


def array(memory, size_bytes, name="weights", **options):
    options = {"is_fresh": True, **options}
    return memory.array(name, np.zeros(1, np.int64), np.array([size_bytes // 4]), np.float32, **options)


def test_an_array_that_a_folder_has_no_room_for_is_refused_and_leaves_nothing(tmp_path):
    with small_folder(tmp_path / "small", 4 * MIB) as folder:
        memory = SharedMemory(folder)
        with pytest.raises(MemoryFull, match="must have space") as raised:
            array(memory, 5 * MIB)
        assert raised.value.value == f"{5 * MIB:,} bytes needed, {4 * MIB:,} bytes free"
        assert raised.value.where == f"{folder}: array weights"
        assert "docker run --shm-size" in raised.value.next_step
        assert (list(folder.iterdir()), free_bytes_in(folder)) == ([], 4 * MIB)
        array(memory, 3 * MIB)[:] = 1.0
        with pytest.raises(MemoryFull, match="must have space"):
            array(memory, 2 * MIB, "slots")
        assert [one.name for one in folder.iterdir()] == ["weights"]
        del memory


def test_every_byte_of_an_array_may_be_written_when_others_fill_its_folder(tmp_path):
    """A process that writes where there is no space is killed by a signal."""
    program = f"""
import pathlib
from tests.trainer.tables.test_table_memory import MIB, SharedMemory, array
folder = pathlib.Path({str(tmp_path / "small")!r})
found = array(SharedMemory(folder), 3 * MIB)
try:
    (folder / "other").write_bytes(bytes(4 * MIB))
except OSError:
    found[:] = 1.0
print(found.sum())
"""
    with small_folder(tmp_path / "small", 4 * MIB):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{3 * MIB / 4}\n"), done.stderr[-2000:]


def test_a_fresh_array_may_take_the_place_of_the_one_before(tmp_path):
    with small_folder(tmp_path / "small", 4 * MIB) as folder:
        memory = SharedMemory(folder)
        array(memory, 3 * MIB)[:] = 1.0
        before = array(memory, 3 * MIB, is_fresh=False)
        assert before.all()
        found = array(memory, 3 * MIB, in_place=True)
        assert not found.any()
        found[5] = 7.0
        assert before[5] == 7.0
        with pytest.raises(MemoryFull, match="must have space"):
            array(memory, 3 * MIB)
        del before, found


def test_another_fresh_array_leaves_the_one_before_as_it_is(tmp_path):
    memory = SharedMemory(tmp_path)
    before = array(memory, 1000)
    before[:] = 1.0
    array(memory, 1000)[:] = 2.0
    assert (before == 1.0).all()


def test_a_file_without_room_for_all_its_bytes_gets_it_or_is_refused(tmp_path):
    """As an earlier release wrote them."""
    with small_folder(tmp_path / "small", 4 * MIB) as folder:
        for name, size in (("weights", 3 * MIB), ("slots", 2 * MIB)):
            with (folder / name).open("wb") as file:
                file.truncate(size)
        memory = SharedMemory(folder)
        array(memory, 3 * MIB, is_fresh=False)[:] = 1.0
        with pytest.raises(MemoryFull, match="must have space"):
            array(memory, 2 * MIB, "slots", is_fresh=False)
        assert (folder / "slots").stat().st_size == 2 * MIB, "what it has is kept"


def test_room_for_an_array_that_grows_is_reserved_in_steps(tmp_path):
    with small_folder(tmp_path / "small", 6 * MIB) as folder:
        memory = SharedMemory(folder)
        found = array(memory, 64 * MIB, is_reserved=False)
        assert free_bytes_in(folder) == 6 * MIB
        memory.reserve("weights", 100)
        assert free_bytes_in(folder) == 2 * MIB, "a whole step"
        memory.reserve("weights", 5 * MIB)
        assert free_bytes_in(folder) == MIB, "there is no space for a whole step"
        found[: 5 * MIB // 4] = 1.0
        with pytest.raises(MemoryFull, match="must have space"):
            memory.reserve("weights", 7 * MIB)
        assert free_bytes_in(folder) == MIB
        again = array(memory, 64 * MIB, is_fresh=False, is_reserved=False)
        memory.reserve("weights", 5 * MIB)
        assert again[: 5 * MIB // 4].all()
        del found, again


def test_room_is_made_where_the_system_has_no_call_for_it(tmp_path, monkeypatch):
    (tmp_path / "weights").write_bytes(b"abcd" + bytes(2 * MIB - 4))
    with (tmp_path / "slots").open("wb") as file:
        file.truncate(2 * MIB)
    monkeypatch.delattr(os, "posix_fallocate")
    for name in ("weights", "slots"):
        array(SharedMemory(tmp_path), 2 * MIB, name, is_fresh=False)
        assert (tmp_path / name).stat().st_blocks * 512 >= 2 * MIB
    assert (tmp_path / "weights").read_bytes() == b"abcd" + bytes(2 * MIB - 4)
    assert (tmp_path / "slots").read_bytes() == bytes(2 * MIB)


def test_a_limit_of_file_sizes_is_an_error_and_no_signal(tmp_path):
    """Where no tmpfs can be mounted: a limit of the process refuses the file."""
    program = f"""
import pathlib, resource
from tests.trainer.tables.test_table_memory import MIB, MemoryFull, SharedMemory, array
resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
try:
    array(SharedMemory(pathlib.Path({str(tmp_path)!r})), 2 * MIB)
except MemoryFull as error:
    print(error.value.partition(",")[0], list(pathlib.Path({str(tmp_path)!r}).iterdir()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "2 []\n"), done.stderr[-2000:]
