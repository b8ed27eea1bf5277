"""Fixtures shared by every room's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Tests that train in their own process.
TRAINING = ("tests/trainer/", "tests/headrace/")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Give TensorFlow the one thread that deterministic training asks for, before any other test starts it with more."""
    nodes = [item.nodeid for item in session.items]
    if any(node.startswith(TRAINING) for node in nodes) and not all(node.startswith(TRAINING) for node in nodes):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
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
