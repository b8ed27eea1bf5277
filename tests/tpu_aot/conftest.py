"""The environment for TPU programs, if ``make tpu`` has installed one."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT
from trainer.tpu_check.environment import TpuEnvironment


@pytest.fixture(scope="session")
def tpu_environment() -> TpuEnvironment:
    environment = TpuEnvironment(ROOT / ".tpu")
    if not environment.is_ready:
        pytest.skip("no environment for TPU programs here: make test-tpu-aot")
    return environment
