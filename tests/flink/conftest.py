"""A real Flink, if ``make flink`` has installed one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flink.cluster import FlinkCluster, running
from tests.flink.install import PARTS


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[FlinkCluster]:
    """One cluster for all: the test that kills a part of it comes last."""
    if PARTS.is_missing():
        pytest.skip("no Flink here: make test-flink")
    with running(tmp_path_factory.mktemp("flink")) as cluster:
        failed = request.session.testsfailed
        yield cluster
        if request.session.testsfailed > failed:
            print(cluster.logs())
