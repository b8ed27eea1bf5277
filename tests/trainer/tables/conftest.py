"""Small batches are divided among threads in these tests, as large ones are in training."""

from __future__ import annotations

import pytest

from trainer.tables.kernels import threads


@pytest.fixture(autouse=True)
def divided_work(monkeypatch):
    monkeypatch.setattr(threads, "_FLOATS_OF_THREAD", 1)
