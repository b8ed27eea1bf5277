"""``headrace prune report``: what the budget of a pruned run has bought."""

from __future__ import annotations

import os
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.headrace.test_checkpoints import GOLDENS
from tests.trainer.synthetic import Synthetic, config
from trainer.planning.kept_importance import kept_importance, total_share, unpruned_share
from trainer.run.loop import train
from trainer.run.weights.kept_rows import newest_kept_rows

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("pruned")
    data = Synthetic(3, 300)
    options = {"pruning": {"budget": 0.25, "round_steps": 5}, "linear": True, "deep": True}
    train(data.solution, data.read, config(path, **options))
    return path


def test_the_report_and_its_drawing(cli, run, tmp_path):
    drawing = tmp_path / "curves.svg"
    shown = cli("prune", "report", run, "--svg", drawing).out.replace(str(drawing), "FILE").replace(str(run), "RUN")
    place = GOLDENS / "prune_report.txt"
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        place.write_text(shown, encoding="utf-8")
    assert shown == place.read_text(encoding="utf-8")
    root = ElementTree.parse(drawing).getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 4
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == 4


def test_the_report_as_json(cli, run):
    found = cli("prune", "report", run, "--json").json
    assert (found["run"], found["budget"], found["rounds"]) == (str(run), 0.25, found["steps"] // 5)
    assert {one["name"] for one in found["tables"]} == {"words", "user", "linear words", "linear user"}
    for table in found["tables"]:
        assert 0 < table["kept_rows"] <= table["seen_rows"] <= table["rows"]
        assert 0 < table["importance_share"] <= 1
        assert table["curve"] == sorted(table["curve"])


def test_hashed_tables_are_not_in_the_report(cli, tmp_path):
    data = Synthetic(2, 60)
    options = {"pruning": {"budget": 0.25, "round_steps": 5}, "hashed": {"user": {"capacity": 20}}, "linear": True}
    train(data.solution, data.read, config(tmp_path, deep=True, **options))
    found = cli("prune", "report", tmp_path, "--json").json
    assert [one["name"] for one in found["tables"]] == ["words", "linear words"]
    assert found["rounds"] == found["steps"] // 5


def test_a_budget_above_what_occurs_is_said(cli, tmp_path):
    """The rows that occur all have places: a report that calls them kept would read as if pruning had lost nothing."""
    data = Synthetic(2, 60)
    settings = config(tmp_path / "roomy", pruning={"budget": 0.9}, deep=True)
    train(data.solution, data.read, settings)
    found = cli("prune", "report", tmp_path / "roomy", "--json").json
    assert found["rounds"] == 0
    kept = newest_kept_rows(settings, on_skip=pytest.fail)
    assert kept is not None
    share = unpruned_share(kept.tables)
    assert 0 < share < 0.9
    assert found["unpruned_share"] == share
    shown = cli("prune", "report", tmp_path / "roomy").out
    assert "nothing was pruned: the rows that occur have" in shown
    below = float(shown.partition("a pruning.budget below ")[2].split()[0])
    assert below <= share < below + 0.001


def test_a_run_that_pruned_says_nothing_of_it(cli, run):
    assert "nothing was pruned" not in cli("prune", "report", run).out
    assert cli("prune", "report", run, "--json").json["unpruned_share"] is None
    assert newest_kept_rows(config(run, deep=True), on_skip=pytest.fail) is None


def test_a_run_is_named_by_its_folder_its_model_or_both(cli, run, tmp_path):
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    (home / "runs" / "ctr-v2").symlink_to(run)
    named = cli("prune", "report", "ctr", "--home", home, "--json").json
    assert named["run"] == str(home / "runs" / "ctr-v2")
    assert cli("prune", "report", "ctr", "--run-dir", run, "--home", home, "--json").json["run"] == str(run)
    error = cli("prune", "report", run, "--run-dir", run, status=2).err
    assert "--run-dir and --version must go with the name of a model" in error


def test_other_runs_are_refused(cli, tmp_path):
    data = Synthetic(1, 50)
    train(data.solution, data.read, config(tmp_path / "whole"))
    assert "needs a run with pruned tables" in cli("prune", "report", tmp_path / "whole", status=2).err
    (tmp_path / "empty").mkdir()
    assert "must hold a checkpoint" in cli("prune", "report", tmp_path / "empty", status=4).err


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (["--tpu", "local"], "pruned tables must be outside of TPUs"),
        (["--servers", 2, "--least-servers", 1], "pruned tables must be on all servers"),
        (["--hosts", 3, "--least-hosts", 2], "pruned tables must be on all hosts"),
    ],
)
def test_pruned_tables_are_refused_where_they_cannot_be(cli, tmp_path, option, problem):
    (tmp_path / "options.json").write_text('{"pruning": {"budget": 0.5}}', encoding="utf-8")
    refused = cli("train", "model", "--config", tmp_path / "options.json", *option, status=2).err
    assert problem in refused
    assert re.search("next: +(give --servers N too, )?leave ", refused)


def test_what_kept_rows_are_worth():
    found = kept_importance("t", 10, 4, np.array([1, 5]), np.array([1, 2, 5, 7]), np.array([4, 3, 2, 1], np.float32))
    assert (found.seen_rows, found.kept_rows, found.importance_share, found.rows_for_most) == (4, 2, 0.6, 3)
    assert (found.curve[0], found.curve[-1], found.curve[16]) == (0.0, 1.0, 0.4)
    assert total_share([found]) == 0.2


def test_a_kept_row_without_importance_was_looked_up():
    found = kept_importance("t", 10, 4, np.array([3, 5]), np.array([5, 7]), np.array([3, 1], np.float32))
    assert (found.seen_rows, found.kept_rows, found.importance_share) == (3, 2, 0.75)
    assert (found.curve[0], found.curve[-1]) == (0.0, 1.0)


def test_a_table_that_was_never_looked_up():
    found = kept_importance("t", 10, 4, np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    assert (found.importance_share, found.rows_for_most, set(found.curve)) == (0.0, 0, {0.0})
    assert total_share([]) == 0.0
