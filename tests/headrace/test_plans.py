"""``headrace plan``: made, shown, explained, compared and drawn, of a file of tables and of a model."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.screens.plan_drawing import plan_svg
from headrace.screens.plans import _drawback
from headrace.terminal.units import brief_text, changed_text, percent_range_text
from tests.headrace.test_commands import check_golden
from trainer.job.feedback.plan_log import PlanChange, PlanLog
from trainer.job.feedback.replanning import Candidate
from trainer.planning.feature_statistics import RESIDUES, FeatureStatistics
from trainer.planning.infeasible import needed_text
from trainer.planning.plan_document import read_about, read_plan
from trainer.planning.plan_report import PlanReport, WayReport
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.valencies import VALENCY_BOUNDS
from trainer.run.progress.run_statistics import STATISTICS, NamedStatistics, RunStatistics

CLASSES = len(VALENCY_BOUNDS)

TABLES = {
    "tables": [
        {"name": "user", "rows": 400_000, "dim": 64, "pooling_factor": 1},
        {"name": "item", "rows": 100_000, "dim": 64, "pooling_factor": 20, "skew": 1.1},
        {"name": "hour", "rows": 24, "dim": 8},
        {"name": "query", "rows": 50_000, "dim": 128, "pooling_factor": 3, "column_slots": 0, "row_slots": 1},
    ]
}


@pytest.fixture
def planned(cli, tmp_path, monkeypatch):
    """A plan in ``plan.json`` of the current folder, and the command line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables.json").write_text(json.dumps(TABLES))
    cli.made = cli(
        "plan", "make", "--tables", "tables.json", "--topology", "cpu:4", "--output", "plan.json", "--svg", "plan.svg"
    )
    return cli


def test_a_plan_is_made_shown_and_explained(planned):
    check_golden("plan_make", planned.made.out)
    assert planned("plan", "show", "plan.json").out == planned.made.out
    check_golden("plan_explain", planned("plan", "explain", "plan.json", "item").out)
    document = planned("plan", "show", "plan.json", "--json").json
    assert [one["name"] for one in document["tables"]] == ["user", "item", "hour", "query"]
    assert document["report"]["bound_secs"] <= document["report"]["step_secs"]


def test_equal_input_gives_equal_files(planned, tmp_path):
    first = (tmp_path / "plan.json").read_bytes()
    planned("plan", "make", "--tables", "tables.json", "--topology", "cpu:4", "--output", "again.json")
    assert (tmp_path / "again.json").read_bytes() == first


def test_plans_are_compared(planned):
    planned("plan", "make", "--tables", "tables.json", "--topology", "cpu:6", "--output", "six.json")
    check_golden("plan_diff", planned("plan", "diff", "plan.json", "six.json").out)
    same = planned("plan", "diff", "plan.json", "plan.json", "--json").json
    assert same["changes"] == []
    assert same["unchanged_tables"] == 4


def test_the_drawing_has_a_bar_for_each_table_on_each_core(planned, tmp_path):
    drawing = (tmp_path / "plan.svg").read_text()
    root = ElementTree.fromstring(drawing)
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    data = (tmp_path / "plan.json").read_bytes()
    plan, report = read_plan(data, "plan.json"), PlanReport.read(read_about(data, "plan.json"), "plan.json")
    for shard in plan.shards():
        assert any(text.startswith(f"{shard.table}: ") and text.endswith(f"on core {shard.core}") for text in titles)
    assert plan_svg(plan, report) + "\n" == drawing
    shown = planned("plan", "show", "plan.json", "--svg", "again.svg")
    assert shown.status == 0
    assert (tmp_path / "again.svg").read_text() == drawing


def test_hot_rows_are_planned_within_a_budget(planned):
    check_golden("plan_hot", planned("plan", "hot", "--tables", "tables.json", "--share", "0.1").out)
    found = planned("plan", "hot", "--tables", "tables.json", "--share", "0.1", "--json").json
    rows = {one["name"]: one for one in found["tables"]}
    assert sum(one["hot_bytes"] for one in rows.values()) == found["hot_bytes"] <= found["budget_bytes"]
    assert rows["hour"]["hot_rows"] == 24, "it is looked up in every event and takes few bytes"
    assert rows["item"]["hot_rows"] > rows["user"]["hot_rows"]
    assert 0.5 < found["served_share"] < 1
    all_rows = planned("plan", "hot", "--tables", "tables.json", "--memory", "1TB", "--json").json
    assert all(one["hot_rows"] == one["rows"] for one in all_rows["tables"])
    assert all_rows["served_share"] == pytest.approx(1)


def test_hot_rows_of_a_model_without_statistics_say_what_is_assumed(submitted):
    found = submitted("plan", "hot", "second", "--json").json
    assert all("of all rows alike" in one["statistics"] for one in found["tables"])


def test_names_of_tables_do_not_break_the_drawing(planned, tmp_path):
    (tmp_path / "odd.json").write_text(json.dumps({"tables": [{"name": "<b>&\"' \u202e", "rows": 9, "dim": 8}]}))
    planned("plan", "make", "--tables", "odd.json", "--topology", "cpu:2", "--svg", "odd.svg")
    root = ElementTree.fromstring((tmp_path / "odd.svg").read_text())
    assert any("<b>&\"'" in (one.text or "") for one in root.iter("{http://www.w3.org/2000/svg}title"))


def test_a_model_without_statistics_is_planned_by_a_stated_assumption(submitted):
    answer = submitted("plan", "make", "second", "--topology", "cpu:2", "--json")
    assert {one["name"] for one in answer.json["tables"]} >= {"user"}
    assert all("one id an event is assumed" in one["statistics"] for one in answer.json["tables"])


def test_statistics_of_a_run_change_the_plan_of_each_model_with_the_feature(submitted, tmp_path):
    """They are those of a component, whatever the model calls it."""
    components = {
        one["name"]: one["fingerprint"] for one in submitted("model", "show", "second", "--json").json["inputs"]
    }
    statistics = FeatureStatistics(
        events=1000, batches=10, ids=7000, longest_bag=9, bags_by_valency=(0.0,) * CLASSES, ids_by_valency=(0.0,) * CLASSES,
        distinct_rows=10, most_distinct_rows=9, ids_by_residue=(1.0,) * RESIDUES, frequencies=RowFrequencies.power_law(500, 1.1),
    )  # fmt: skip
    document = RunStatistics("run", 0, 1, {components["user"]: NamedStatistics("renamed", statistics)}).to_document()
    folder = tmp_path / "other" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / STATISTICS).write_text(json.dumps(document))
    answer = submitted("plan", "make", "second", "--topology", "cpu:2", "--run", tmp_path / "other", "--json")
    rows = {one["name"]: one for one in answer.json["tables"]}
    assert rows["user"]["ids_per_event"] == 7
    assert rows["user"]["statistics"] == "a sample of 1,000 events in 10 batches of run other"
    assert "assumed" in rows["overlap"]["statistics"]
    answer = submitted("plan", "make", "second", "--topology", "cpu:2", "--run", tmp_path, status=4)
    assert "a run must have statistics of features" in answer.err


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (("make", "--topology", "cpu:4"), 2, "a plan needs either a model or a file of tables"),
        (("make", "--tables", "tables.json", "--topology", "cpu:4", "--run", "x"), 2, "--run must go with a model"),
        (("make", "--tables", "none.json", "--topology", "cpu:4"), 2, "the file must be readable"),
        (("make", "--tables", "plan.json", "--topology", "cpu:4"), 2, "a document must hold 'dim', got none"),
        (("make", "--tables", "tables.json", "--topology", "cpu:0"), 2, "a topology must be a known kind"),
        (
            ("make", "--tables", "tables.json", "--topology", "cpu:2", "--memory", "1MiB"),
            2,
            "a core's memory must hold its share",
        ),
        (
            ("make", "--tables", "tables.json", "--topology", "cpu:2", "--skew", "9"),
            2,
            "an option must be in its range",
        ),
        (("hot",), 2, "a plan needs either a model or a file of tables"),
        (("hot", "--tables", "tables.json", "--share", "1.5"), 2, "an option must be in its range"),
        (("hot", "--tables", "tables.json", "--memory", "x"), 2, "a size must be a number of bytes or have a unit"),
        (("show", "tables.json"), 2, "a document must hold 'format', got none"),
        (("explain", "plan.json", "none"), 4, "no such table in the plan"),
        (("diff", "plan.json", "none.json"), 2, "the file must be readable"),
    ],
)
def test_bad_input_gives_one_error(planned, arguments, status, problem):
    answer = planned("plan", *arguments, status=status)
    assert problem in answer.err
    assert not answer.out


@pytest.mark.parametrize(
    ("member", "value"),
    [("rows", 0), ("rows", 2**60), ("dim", -1), ("pooling_factor", 1e99), ("skew", "x"), ("name", "")],
)
def test_tables_out_of_range_are_refused(planned, tmp_path, member, value):
    table = {**TABLES["tables"][0], member: value}
    (tmp_path / "bad.json").write_text(json.dumps({"tables": [table]}))
    answer = planned("plan", "make", "--tables", "bad.json", "--topology", "cpu:2", status=2)
    assert "bad.json.tables[0]" in answer.err


def test_a_plan_with_another_number_of_loads_is_refused(planned, tmp_path):
    document = json.loads((tmp_path / "plan.json").read_text())
    document["report"]["cores"].pop()
    (tmp_path / "short.json").write_text(json.dumps(document))
    assert "the load of each of its cores" in planned("plan", "show", "short.json", status=2).err


def test_times_have_three_digits():
    assert [brief_text(secs) for secs in (2.5, 0.0123, 4.56e-5, 0.0)] == ["2.5 s", "12.3 ms", "45.6 µs", "0 s"]


def way_of(step_secs: float, largest_secs: float) -> WayReport:
    return WayReport("row", 1, 4, step_secs, largest_secs, 1000, is_chosen=False)


@given(st.floats(1e-9, 10.0), st.floats(0.0, 0.01), st.sampled_from(["step", "shard"]), st.floats(0.5, 2.0))
def test_a_drawback_never_compares_equal_figures(secs, longer, what, mean):
    """Times of a cost model may differ by less than the digits that are shown."""
    chosen, more = way_of(secs, secs), secs * (1.0 + longer)
    one = way_of(more, secs) if what == "step" else way_of(secs, more)
    text = _drawback(one, chosen, mean * secs)
    figures = re.findall(r"[0-9.e-]+ (?:s|ms|µs|ns)\b", text)
    assert len(figures) == len(set(figures)) >= 1, text


def test_figures_that_look_alike_are_no_change():
    assert changed_text("100 µs", "100 µs") == "100 µs, as before"
    assert changed_text("100 µs", "101 µs") == "100 µs → 101 µs"
    assert percent_range_text(0.50001, 0.50002) == "50.0 %"
    assert percent_range_text(0.459, 1.0) == "45.9 to 100.0 %"


def test_sizes_that_look_alike_state_what_is_too_much():
    assert needed_text((5 << 30) + 7, 5 << 30) == "5.01 GiB"
    assert needed_text((5 << 30) + 7, (5 << 30) + 3) == "5.01 GiB, 4 bytes too much,"


def test_the_history_of_a_plan_says_why_and_what_it_took(cli, tmp_path):
    kept = PlanChange("a" * 64, "commit", 2, new_measured_secs=0.0618)
    moved = PlanChange("b" * 64, "pays", 9, step_secs=0.0374, new_step_secs=0.0255, imbalance=1.81, new_imbalance=1.003, saved_secs=6.2,
                       move_secs=5.84, moved_bytes=103 << 20, pause_secs=3.1, measured_secs=0.081, new_measured_secs=0.063)  # fmt: skip
    PlanLog(
        looked_at=14,
        looks=12,
        changes=(kept, moved, PlanChange("", "hosts", 20)),
        candidates=(Candidate("", 1.5), Candidate("a" * 64)),
        imbalance=1.004,
    ).write(tmp_path)
    check_golden("plan_history", cli("plan", "history", tmp_path).out.replace(str(tmp_path), "RUN"))
    shown = cli("plan", "history", tmp_path, "--json").json
    assert [one["reason"] for one in shown["changes"]] == ["commit", "pays", "hosts"]
    assert shown["followed"] == {"run": str(tmp_path), "looks": 12, "moves": 1, "imbalance": 1.004}
    (tmp_path / "plans.json").write_text("{")
    assert "plans.json" in cli("plan", "history", tmp_path, status=3).err


def test_the_history_of_a_plan_that_changed_nothing_says_with_what_it_began(cli, tmp_path):
    for plan, commits, words in (
        ("a" * 64, 0, "aaaaaaaaaaaa: the best plan by the statistics in the catalog"),
        ("", 3, "rows spread over all hosts: the statistics in the catalog have no better plan, or not all features"),
    ):
        change = PlanChange(plan, "statistics")
        PlanLog(looked_at=commits, looks=commits, changes=(change,), candidates=(Candidate("b" * 64, 0.0),)).write(
            tmp_path
        )
        shown = " ".join(cli("plan", "history", tmp_path).out.split())
        assert words in shown
        assert ("no commit had a sample to look at" in shown) == (not commits)
        assert "would have saved" not in shown
        assert " to " not in shown.partition("measured")[2].partition(words[:4])[0], (
            "nothing moved, and nothing was measured"
        )
