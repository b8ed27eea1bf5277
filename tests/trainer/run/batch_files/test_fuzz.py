"""Damaged batches and files are refused, or give what engines may use, with limited memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.bounded import run_trials

_TRIALS = "tests.trainer.run.batch_files.trials"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["batch", "file"])
def test_thousands_of_damaged_bytes(tmp_path: Path, kind: str) -> None:
    found = run_trials(_TRIALS, kind, 0, 5000, str(tmp_path))
    assert found["DamagedBatches"] > 2500, found
    assert set(found) <= {"read", "DamagedBatches"}, found
    assert kind == "batch" or found["read"] < 50, found
