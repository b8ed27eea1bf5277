from __future__ import annotations

import subprocess
import sys

import pytest

import pipelines

PUBLIC = [
    "FORMATS",
    "FormatOptions",
    "ImportConfig",
    "ImportReport",
    "IsolationLimits",
    "LogSchema",
    "RunnerOptions",
    "WorkerConfig",
    "WorkerReport",
    "import_logs",
    "prepare",
    "run_worker",
]


def test_the_public_surface_is_what_is_listed() -> None:
    assert pipelines.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(pipelines, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = pipelines.nothing


LIGHT = """
import sys
import pipelines, pipelines.formats.globo, pipelines.formats.movielens, pipelines.formats.criteo, pipelines.formats.obd
pipelines.LogSchema, pipelines.FormatOptions
print([name for name in ("apache_beam", "tensorflow", "pandas", "sqlalchemy", "numba") if name in sys.modules])
"""


def test_reading_logs_loads_no_beam() -> None:
    printed = subprocess.run([sys.executable, "-c", LIGHT], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"
