"""Fixtures shared by every room's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Give TensorFlow the one thread that deterministic training asks for, before any other test starts it with more.

    Where tests of all rooms run in one process: in the workers of pytest-xdist, and when no files are named.
    """
    if hasattr(config, "workerinput") or config.args == config.getini("testpaths"):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import pyarrow.compute  # noqa: F401 - before TensorFlow, whose older RE2 Arrow's regular expressions would get
        import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real logs beside the checkout; a test that needs it is skipped where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real logs beside this checkout")
    return folder
