"""Beam's worker processes share the compiled kernels of their machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.scenes import REPOSITORY

#: Runs the works of a home in Beam's worker processes, which inherit the environment and so the folder of kernels.
JOB = """
import sys
from pathlib import Path
from pipelines.runners.runner import RunnerOptions
from pipelines.memoize.pipeline import run_memoize
from tests.pipelines.memoize.test_pipeline import leased_works
runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
options = RunnerOptions(runner, flags=("--direct_running_mode=multi_processing", "--direct_num_workers=2"))
folder = Path(sys.argv[1])
results = run_memoize(leased_works(folder, hours=4), str(folder / "home"), "kernels", options)
assert len(results) == 4
assert not any(outcome.failure for result in results for outcome in result.outcomes), results
"""


def _run(folder: Path, kernels: Path) -> dict[str, int]:
    """Run the job; the compiled kernels that are kept after it, with the time each was written."""
    folder.mkdir()
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kernels), "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", JOB, str(folder)], check=True, env=environment, cwd=REPOSITORY, timeout=300)
    return {path.name: path.stat().st_mtime_ns for path in kernels.rglob("*.nbc")}


@pytest.mark.slow
def test_a_second_set_of_workers_compiles_nothing(tmp_path: Path) -> None:
    first = _run(tmp_path / "first", tmp_path / "kernels")
    assert any("fused" in name for name in first), "the kernels were kept elsewhere"
    assert _run(tmp_path / "second", tmp_path / "kernels") == first
