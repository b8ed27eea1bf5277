"""Each screen of ``headrace/screens`` has a page, or a reason for none."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from starlette.routing import Route

import headrace.screens
from headrace.screens.shown import Shown
from headrace.web.app import make_app
from headrace.web.config import WebConfig
from headrace.web.guard import Guard
from warehouse import Warehouse, WarehouseConfig

#: The page of a screen: the path of its route.
PAGES = {
    "changes.HistoryScreen": "/tables/{name}",
    "columns.ColumnScreen": "/tables/{name}/columns/{column:path}",
    "evictions.EvictionScreen": "/evict",
    "evictions.EvictionsScreen": "/evictions",
    "evictions.RestorationScreen": "/evictions/{number:int}",
    "graphs.GraphScreen": "/graphs/{fingerprint}",
    "graphs.GraphsScreen": "/graphs",
    "graphs.MemosScreen": "/graphs/{fingerprint}/memos",
    "graphs.ValuesScreen": "/graphs/{fingerprint}/values",
    "models.ExplainScreen": "/models/{name}/memos",
    "models.ModelDiffScreen": "/models/{name}/diff",
    "models.ModelScreen": "/models/{name}",
    "models.ModelsScreen": "/models",
    "checkpoints.CheckpointsScreen": "/runs/{name}/checkpoints",
    "curves.CurvesScreen": "/runs/curves",
    "joins.JoinsScreen": "/tables/{name}",
    "holds.HoldsScreen": "/holds",
    "holds.ReleasedScreen": "/holds/{place}/{name}",
    "jobs.JobScreen": "/jobs/{number}",
    "jobs.JobsScreen": "/jobs",
    "plan_history.PlanHistoryScreen": "/runs/{name}/plan",
    "plans.ExplainScreen": "/runs/{name}/plan",
    "run_plans.RunPlanScreen": "/runs/{name}/plan",
    "run_plans.RunTowersScreen": "/runs/{name}/towers",
    "runs.RunDiffScreen": "/runs/diff",
    "runs.RunScreen": "/runs/{name}",
    "runs.RunsScreen": "/runs",
    "towers.TowersScreen": "/runs/{name}/towers",
    "queue.QueueScreen": "/queue",
    "status.StatusScreen": "/",
    "tables.TableScreen": "/tables/{name}",
    "tables.TablesScreen": "/tables",
    "tasks.ChangeScreen": "/quarantine/{task:int}",
    "tasks.GroupsScreen": "/quarantine",
    "tasks.TaskScreen": "/quarantine/{task:int}",
    "tasks.TasksScreen": "/quarantine/tasks",
}

_CHANGES_DATA = "changes data or files; pages change nothing but evictions, holds and failed tasks"
_RUNS_WORK = "its command does hours of work with a progress bar, and prints this at the end"
_NEEDS_FILES = "its command reads files that the user names, on the user's machine"
_CLUSTER = "its command talks to servers of a training, with their tokens"
_LIVE = "its command asks once, for a script or an autoscaler"

#: Why a screen has no page.
WITHOUT = {
    "analyze.AnalyzedScreen": _RUNS_WORK,
    "analyze.PlannedScreen": _RUNS_WORK,
    "capacity.CapacityScreen": _LIVE,
    "changes.ChangeScreen": _CHANGES_DATA,
    "chaos.ChaosScreen": _RUNS_WORK,
    "check.CheckScreen": _NEEDS_FILES,
    "checkpoints.CheckpointScreen": _NEEDS_FILES,
    "checkpoints.ComparisonScreen": _NEEDS_FILES,
    "checkpoints.ReshardedScreen": _CHANGES_DATA,
    "checkpoints.VerifiedRunScreen": _RUNS_WORK,
    "clients.ClientScreen": _CHANGES_DATA,
    "clients.ClientsScreen": "the page of the queue shows clients with their shares; this list is for the command that sets them",
    "compact_table.CompactedTableScreen": _CHANGES_DATA,
    "demo.DemoScreen": _RUNS_WORK,
    "drift.DriftScreen": _RUNS_WORK,
    "drift.SketchesScreen": "its command compares sketches in a window that the user states; a page of drift is not planned yet",
    "dropped_table.DroppedTableScreen": _CHANGES_DATA,
    "dropped_table.RemovedFilesScreen": _CHANGES_DATA,
    "dry_run.DryRunScreen": _NEEDS_FILES,
    "evaluation.EvaluationScreen": _RUNS_WORK,
    "export.ExportScreen": _CHANGES_DATA,
    "feature_statistics.FeatureStatisticsScreen": _RUNS_WORK,
    "hot_rows.HotRowsScreen": _RUNS_WORK,
    "inferred.InferredScreen": _NEEDS_FILES,
    "init.InitScreen": _CHANGES_DATA,
    "joins.EvictedJoinsScreen": _CHANGES_DATA,
    "lakes.LakeScreen": _CHANGES_DATA,
    "links.AppliedScreen": _CHANGES_DATA,
    "links.LinkScreen": _NEEDS_FILES,
    "links.NothingNewScreen": _NEEDS_FILES,
    "links.VerifiedChainScreen": _NEEDS_FILES,
    "lookups.LookupsScreen": _RUNS_WORK,
    "maintenance.CompactedScreen": _CHANGES_DATA,
    "maintenance.GarbageScreen": _CHANGES_DATA,
    "maintenance.PinsScreen": "the preview of an eviction counts pinned memos; the list is for maintenance by command",
    "maintenance.VerifiedScreen": _RUNS_WORK,
    "models.SubmittedScreen": _NEEDS_FILES,
    "moved_servers.MovedScreen": _CLUSTER,
    "parameter_servers.ServersScreen": _CLUSTER,
    "phases.PhasesScreen": _RUNS_WORK,
    "plans.PlanDiffScreen": _NEEDS_FILES,
    "plans.PlanScreen": _NEEDS_FILES,
    "predict.PredictedScreen": _RUNS_WORK,
    "preempt.NoticeScreen": _CLUSTER,
    "pruning.PruningScreen": _RUNS_WORK,
    "reading.ReadScreen": "its command reads values of events; pages show none but failed samples",
    "retirement.RetirementScreen": _CHANGES_DATA,
    "runs.EventFilesScreen": _CHANGES_DATA,
    "scaled_servers.ScaledScreen": _CLUSTER,
    "settings.SettingsScreen": "settings of the machine of the command, with the addresses of its catalog",
    "states.SkewScreen": _NEEDS_FILES,
    "states.StatesScreen": _CHANGES_DATA,
    "sweeps.SweepScreen": _RUNS_WORK,
    "tables.ImportedScreen": _CHANGES_DATA,
    "tables.RegisteredScreen": _CHANGES_DATA,
    "topics.TopicScreen": _CHANGES_DATA,
    "tpu.TpuCheckScreen": _RUNS_WORK,
    "training.TrainedScreen": _RUNS_WORK,
    "work.TemplateScreen": _RUNS_WORK,
    "work.WorkScreen": _RUNS_WORK,
}


def screens() -> set[str]:
    """The screens of ``headrace/screens``, as module and class."""
    found = set()
    for one in pkgutil.iter_modules(headrace.screens.__path__):
        module = importlib.import_module(f"headrace.screens.{one.name}")
        for name, value in vars(module).items():
            if (
                isinstance(value, type)
                and issubclass(value, Shown)
                and value.__module__ == module.__name__
                and not inspect.isabstract(value)
            ):
                found.add(f"{one.name}.{name}")
    return found


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The paths of all routes."""
    with Warehouse.open(WarehouseConfig(str(tmp_path_factory.mktemp("home")))) as warehouse:
        guard = make_app(warehouse, WebConfig(home="home"), token="t" * 16, port=lambda: 0)
    assert isinstance(guard, Guard)
    return {one.path for one in guard._app.routes if isinstance(one, Route)}  # type: ignore[attr-defined]


def test_each_screen_has_a_page_or_a_reason_for_none() -> None:
    known = [*PAGES, *WITHOUT]
    assert len(known) == len(set(known)), "a screen has two entries"
    assert screens() - set(known) == set(), (
        "enter the new screens into PAGES with their pages, or into WITHOUT with the reason"
    )
    assert set(known) - screens() == set(), "these screens are gone"


def test_the_pages_of_screens_are_there(paths: set[str]) -> None:
    assert {screen: path for screen, path in PAGES.items() if path not in paths} == {}


def test_each_page_is_in_the_table_of_the_manual(paths: set[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "pages.md").read_text(encoding="utf-8")
    for path in set(PAGES.values()):
        start = re.split(r"\{", path)[0]
        assert f"`{start}" in text, path
