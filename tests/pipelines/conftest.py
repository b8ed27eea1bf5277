"""Fixtures of the tests of ``pipelines``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pipelines.runners.dataflow_scenes import Cloud
    from tests.support.gcs_server import GcsServer


@pytest.fixture
def cloud(gcs_server: GcsServer, tmp_path: Path) -> Iterator[Cloud]:
    """A bucket and a service that takes Dataflow jobs; this process is logged in there."""
    from tests.pipelines.runners.dataflow_scenes import logged_in

    with logged_in(gcs_server, tmp_path) as cloud:
        yield cloud
