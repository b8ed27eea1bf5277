"""A real Spark, if ``make spark`` has installed one."""

from __future__ import annotations

import pytest

from tests.spark.install import PARTS


@pytest.fixture(scope="session", autouse=True)
def spark() -> None:
    if PARTS.is_missing():
        pytest.skip("no Spark here: make test-spark")
