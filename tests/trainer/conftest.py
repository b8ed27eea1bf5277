from __future__ import annotations

import pytest


@pytest.fixture
def in_tensorflow(monkeypatch):
    """Every dense part of this process is in TensorFlow: the compiled one rounds otherwise."""
    monkeypatch.setattr("trainer.run.weights.run_state.is_compiled", lambda layout, config: False)
