"""Memory that is released is the system's again, and zeros when it is touched."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from trainer.tables.stores.pruned.lent_memory import LentMemory

_BYTES = 64 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="the system says how much memory is resident")
def test_released_memory_is_not_resident():
    memory, one = LentMemory(), np.zeros(1, np.int64)
    values = memory.array("weights", one, one + _BYTES // 4, np.float32, is_fresh=True)
    values[:] = 1.0
    before = resident_bytes()
    memory.release_memory("weights", _BYTES // 4 + 1, _BYTES)
    assert before - resident_bytes() > _BYTES // 2
    assert values[: _BYTES // 16].all()
    assert not values[_BYTES // 16 + 4096 :].any()
    values[:] = 2.0
    assert values.all()


def test_few_bytes_stay_as_they_are():
    memory, one = LentMemory(), np.zeros(1, np.int64)
    values = memory.array("weights", one, one + 8, np.float32, is_fresh=True)
    values[:] = 1.0
    memory.release_memory("weights", 0, 32)
    memory.release_memory("slots", 0, 1 << 20)
    assert values.all()
    assert len(memory.array("slots", one, one, np.float32, is_fresh=True)) == 0
