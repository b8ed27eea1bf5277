"""``headrace table compact``, and the warning of small fragments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from headrace.screens.compact_table import CompactedTableScreen
from tests.headrace.test_commands import check_golden
from tests.headrace.test_screens import text_of
from warehouse.maintenance.compact_table import CompactedTable
from warehouse.tables.fragment_sizes import FragmentSizes


def test_merge_and_read_again(submitted: Any) -> None:
    check_golden("table_compact_queued", submitted("table", "compact", "log", "--dry-run").out)
    submitted("work", "--until-idle")
    check_golden("table_compact_planned", submitted("table", "compact", "log", "--dry-run").out)
    check_golden("table_compact_done", submitted("table", "compact", "log").out)
    assert re.search(r"hour=00 to \S+/hour=\d\d ", submitted("model", "explain", "first", "--partitions").out)
    again = submitted("table", "compact", "log", "--json").json
    assert (again["merged"], again["fragments"], again["queued"]) == (0, 1, 0)
    check_golden("table_compact_nothing", submitted("table", "compact", "log").out)
    assert submitted("work", "--until-idle").out == "nothing was queued\n"
    submitted("verify", "--recompute", 3)


def test_an_age_excludes_recent_partitions(submitted: Any) -> None:
    assert submitted("table", "compact", "log", "--older-than", "2000-01-01", "--json").json["merged"] == 0
    assert "an age must be" in submitted("table", "compact", "log", "--older-than", "soon", status=2).err
    assert "no such table" in submitted("table", "compact", "logs", status=4).err


@pytest.mark.slow
def test_registering_many_small_fragments_warns_once(cli: Any, tmp_path: Path) -> None:
    write_sample_log(tmp_path / "log", SampleLogConfig(hours=26, mean_rows_per_hour=20), late=False)
    added = cli("table", "add", "log", tmp_path / "log", "--time-column", "time")
    assert added.out.count("headrace table compact log") == 1
    assert "half of the 26 fragments hold at most" in added.out.replace("\n", " ")
    found = cli("table", "add", "log", tmp_path / "log", "--json").json["small_fragments"]
    assert found.startswith("half of the 26 fragments")
    cli("table", "compact", "log")
    assert cli("table", "add", "log", tmp_path / "log", "--json").json["small_fragments"] == ""


def test_large_or_few_fragments_are_no_reason_to_warn() -> None:
    assert FragmentSizes(23, 10).warning("log") == ""
    assert FragmentSizes(24, 50_000).warning("log") == ""
    small = FragmentSizes(24, 49_999).warning("log")
    assert small.startswith("half of the 24 fragments hold at most 49,999 events")
    assert small.endswith("next: headrace table compact log")
    assert "partition_by" in FragmentSizes(24, 49_999, are_hourly=True).warning("log")


def test_what_is_left_is_named() -> None:
    done = CompactedTable("log", False, 0, 5, 5, 0, 0, 0, 0, 0, incomplete=4, waiting=2, quarantined=1, changed=1,
                          damaged=("memos/a, component b: gone",), queued=3)  # fmt: skip
    text = text_of(CompactedTableScreen(done), width=300)
    assert "table log: no fragments were merged" in text
    assert "not computed yet: 2 groups; next: headrace work" in text
    assert "a merge would remove memos: of a component, some are ready or evicted and others are not: 4 groups" in text
    assert "changed them meanwhile: 1 group" in text
    assert "quarantined or dropped: 1 fragment" in text
    assert "memos/a, component b: gone" in text
    assert "to compute: 3 memos; next: headrace work" in text
