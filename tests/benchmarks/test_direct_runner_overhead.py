from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.direct_runner_overhead import Figures, TimeTaken, measure


@pytest.mark.slow
def test_a_small_log(tmp_path: Path) -> None:
    found = measure(tmp_path, rows=600, hours=3)
    assert found.fragments == 3
    assert found.memos == 3 * 17
    assert found.inside.keys() == {"kernels", "reading", "writing"}
    assert all(secs > 0 for secs in found.inside.values())


def test_the_shares() -> None:
    inside = {"kernels": 6.0, "reading": 2.0, "writing": 1.0}
    it = Figures(1, 1, 1, 2, TimeTaken(10.0, 16.0), inside, (TimeTaken(8.0, 15.0), TimeTaken(9.0, 13.0)))
    assert it.outside_share == pytest.approx(0.1)
    assert it.longer_share == pytest.approx(0.15)
    assert it.more_cpu_share == pytest.approx(0.125)
