"""The figures at the end of a training by which its placement, servers and pruning are judged: each is what was counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headrace.screens.training_figures import PlacementRow, PrunedRow, ServedRow
from headrace.views.training_figures import placement_row, pruned_row, scaled_row, served_row
from tests.headrace.conftest import UNTRIED
from trainer.planning.kept_importance import KeptImportance
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.servers.server_status import ServerStatus


def test_a_placement_counts_the_weights_of_each_part() -> None:
    whole = TablePlan("a", 30, 2, (Slice(0, 2, (0,)),))
    spread = TablePlan("b", 10, 4, (Slice(0, 4, (0, 1)),))
    row = placement_row(PartitionPlan(2, (whole, spread)), how="plan")
    assert row == PlacementRow("plan", 2, 0.8, 0.0)
    assert row.text() == "by plan over 2 parts: the largest has 80.0 % of the weights, an equal share is 50.0 %"
    copied = TablePlan("b", 10, 4, (Slice(0, 4, (0, 1)),), is_replicated=True)
    row = placement_row(PartitionPlan(2, (copied,)), how="towers")
    assert row == PlacementRow("towers", 2, 0.5, 0.5)
    assert row.text().endswith("; 50.0 % are copies")
    assert placement_row(None, how="plan") is None
    hashed = TablePlan("c", 2**62, 2, (Slice(0, 2, (1,)),))
    row = placement_row(PartitionPlan(2, (whole, hashed)), how="towers", capacities={"c": 10})
    assert row == PlacementRow("towers", 2, 0.75, 0.0)


def test_servers_count_from_the_beginning_of_the_command() -> None:
    then = ServerStatus(fetches=5, fetched_rows=100, updated_rows=40, wait_secs=1.0, process=7)
    now = replace(then, fetches=9, fetched_rows=300, updated_rows=90, wait_secs=3.5)
    row = served_row({"a": then, "b": then}, {"a": now, "b": then}, 50)
    assert row == ServedRow(2, 200, 50, 2.5, 50)
    assert "2 servers read 200 rows, and updated or loaded 50, 4 rows read an event; fetches waited" in row.text()
    begun_again = replace(now, process=8)
    assert served_row({"a": then}, {"a": begun_again}, 50) is None
    assert served_row({}, {"a": now}, 50) is None


def test_servers_of_a_job_that_scales_them_count_from_their_start() -> None:
    one = ServerStatus(fetched_rows=300, updated_rows=90, wait_secs=1.5, process=7)
    later = replace(one, fetched_rows=40, updated_rows=60, process=8)
    row = scaled_row({"a": one, "b": later})
    assert row == ServedRow(2, 340, 150, 3.0, 0, are_last=True)
    assert row.text().startswith("2 servers that ran at the end read 340 rows, and updated or loaded 150;")
    assert scaled_row({}) is None


def test_pruned_rows_are_those_of_all_tables() -> None:
    tables = tuple(
        KeptImportance(name, 100, 50, kept, 4, share, most, ())
        for name, kept, share, most in (("a", 20, 0.9, 10), ("b", 50, 1.0, 30), ("c", 0, 0.0, 0))
    )
    assert pruned_row(tables) == PrunedRow(70, 150, 0.9)
    assert (
        pruned_row(tables).text()
        == "70 of 150 rows that occurred are kept, in each table at least 90.0 % of the importance"
    )
    assert pruned_row(tables[2:]).least_importance_share is None


@pytest.fixture
def trained(cli: Any, small_log: Any, models_file: Any) -> Any:
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log")

    def call(options: dict[str, Any], *arguments: Any) -> Any:
        return cli("train", "first", "--config", json.dumps({**UNTRIED, "batch_rows": 32, **options}), *arguments)

    return call


def test_a_pruned_run_prints_what_it_keeps(trained: Any, cli: Any, tmp_path: Any) -> None:
    """As `headrace prune report` does."""
    options = {"pruning": {"budget": 0.1, "round_steps": 4}}
    found = trained(options, "--run-dir", tmp_path / "run", "--json").json
    report = cli("prune", "report", tmp_path / "run", "--json").json["tables"]
    assert found["kept"]["kept_rows"] == sum(one["kept_rows"] for one in report) > 0
    assert found["kept"]["seen_rows"] == sum(one["seen_rows"] for one in report)
    assert found["kept"]["least_importance_share"] == min(one["importance_share"] for one in report)
    assert found["placement"] is None
    assert found["served"] is None
    shown = trained(options, "--run-dir", tmp_path / "run", "--end", "2026-03-03").out
    assert "rows that occurred are kept" in shown
