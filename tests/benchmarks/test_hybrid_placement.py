"""The policies that hybrid placement is compared with, and a small run of the benchmark."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest

from benchmarks import hybrid_placement
from benchmarks.support import cache_policies as policies

IDS = np.array([0, 1, 0, 2, 0, 1, 3, 0, 1, 2])


def test_policies_by_hand() -> None:
    assert policies.least_recently_used(IDS, 2).hits == 2
    assert policies.least_frequently_used(IDS, 2).hits == 3
    assert policies.belady(IDS, 2).hits == 5
    assert policies.static(IDS, 4, 2).hits == 4
    assert [policies.clairvoyant(IDS, interval, 2).hits for interval in (1, 2, 5, 10)] == [10, 10, 7, 7]


def test_bounds_are_bounds() -> None:
    ids = hybrid_placement.drifting_lookups(20_000)["articles (synthetic)"]
    found = {name: one.hit_rate for name, one in hybrid_placement.compare(ids, 0.1, 256).items()}
    assert found["LRU"] <= found["Belady, each lookup"] <= found["clairvoyant, each batch"] <= 1.0
    assert found["LFU"] <= found["Belady, each lookup"]
    assert policies.clairvoyant(ids, 2048, 40).hits <= policies.clairvoyant(ids, 256, 40).hits < len(ids)
    assert found["hybrid placement"] <= found["clairvoyant, each batch"]
    assert found["hybrid placement"] > found["static"]


@pytest.mark.slow
def test_a_small_run(tmp_path, capsys) -> None:
    logs = hybrid_placement.lookups_of(tmp_path, 20_000)
    assert "a synthetic log takes its place" in capsys.readouterr().out
    ((name, ids),) = logs.items()
    hybrid_placement.report(name, ids, 0.1, 256)
    shown = capsys.readouterr().out
    assert "points below the clairvoyant of each batch" in shown
    assert "target" not in shown, "the target is of the real log"
    hybrid_placement.measure_bookkeeping(hybrid_placement.log_scene(name, ids, 0.1, 256), 1)
    assert "of which bookkeeping" in capsys.readouterr().out
    hybrid_placement.measure_servers(hybrid_placement.log_scene(name, ids, 0.1, 256), 1)
    shown = capsys.readouterr().out
    assert float(re.search(r"kB a step, ([0-9.]+)x", shown)[1]) < 1, "hot rows are not sent"


def test_clicks_are_read_in_the_order_of_their_times(tmp_path) -> None:
    """Also across files, and of a file without clicks."""
    head = "user_id,session_id,click_article_id,click_timestamp"
    for hour, rows in enumerate((["7,1,50,300", "8,1,60,100"], [], ["7,2,40,200"])):
        with gzip.open(tmp_path / f"clicks_hour_{hour:03}.csv.gz", "wt") as file:
            file.write("\n".join([head, *rows]) + "\n")
    found = hybrid_placement.lookups_of(tmp_path, 0)
    assert found["articles"].tolist() == [2, 0, 1]
    assert found["users"].tolist() == [1, 0, 0]
