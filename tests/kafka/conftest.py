"""A real Kafka broker, if ``make kafka`` has installed one."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.kafka.install import PARTS

if TYPE_CHECKING:
    from tests.kafka.broker import Broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests; each has topics of its own."""
    if PARTS.is_missing() or find_spec("confluent_kafka") is None:
        pytest.skip("no Kafka here: make test-kafka")
    from tests.kafka.broker import running

    with running(tmp_path_factory.mktemp("kafka")) as started:
        yield started
