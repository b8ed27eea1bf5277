"""Tables in shared memory: an engine that begins with the memory of another one goes on from its values."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.trainer.embedding.test_engine import batch_of
from tests.trainer.embedding.tpu.engines import assert_same
from trainer.embedding import Adagrad, CpuEngine, FeatureSpec, TableSpec
from trainer.embedding.cpu.memory import SharedMemory

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
from tests.trainer.embedding.test_table_memory import FEATURES, SharedMemory, CpuEngine, train
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
