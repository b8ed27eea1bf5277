"""Under concurrent changes and faults, no value is wrong, and no lease or file is left over."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.chaos.havoc import small_disk
from tests.chaos.storm import run_storm
from tests.support.postgresql import running

FAULTS, SEED = 34, 5


@pytest.mark.slow
@pytest.mark.parametrize("catalog", ["sqlite", "postgresql"])
def test_nothing_is_wrong_after_a_storm(tmp_path: Path, catalog: str) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running()) if catalog == "postgresql" else None
        stack.enter_context(small_disk(tmp_path / "home", 64 << 20))
        outcome = run_storm(tmp_path, server, SEED, FAULTS, hours=6)
    assert outcome.problems == [], outcome.report.errors[-4000:]
    assert sum(outcome.report.faults.values()) == FAULTS
    assert outcome.report.workers_died > 0, "no worker was hurt"
    assert outcome.memos > 0
