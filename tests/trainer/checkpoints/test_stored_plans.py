"""The plans of a run in a bucket: stored before a commit names them, removed with the last one that does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.gcs_server import GcsServer
from tests.trainer.checkpoints.job_states import checkpoint, commit_of, cut, facts, names_of
from trainer.checkpoints.checkpoint import read_newest
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.checkpoints.retention import Retention, apply_retention
from trainer.checkpoints.run_files import PLANS, RunFiles
from trainer.checkpoints.stored_plans import PlanDocuments, find_plan, store_plan


@pytest.fixture
def run_dir(gcs_server: GcsServer) -> str:
    return gcs_server.home(gcs_server.bucket(), "run")


@pytest.fixture
def files(run_dir: str) -> RunFiles:
    return open_run(run_dir)


def publish_with_plan(run_dir: str, epochs: int, plan: str) -> None:
    part, taken = cut(checkpoint(epochs), 0, 1, epochs)
    parts = {names_of(1)[0]: write_part(run_dir, replace(part, plan=plan), taken)}
    publish(run_dir, commit_of(checkpoint(epochs), epochs), names_of(1), parts, lambda name: facts())


def test_a_stored_plan_stays_as_it_is(files: RunFiles) -> None:
    assert find_plan(files, "a" * 64) is None
    documents = PlanDocuments(b"the plan", b"its solution")
    store_plan(files, "a" * 64, documents)
    store_plan(files, "a" * 64, PlanDocuments(b"other", b"other"))
    assert find_plan(files, "a" * 64) == documents


def test_a_plan_alone_is_no_torn_run(run_dir: str, files: RunFiles) -> None:
    """A controller was killed before its first commit."""
    store_plan(files, "a" * 64, PlanDocuments(b"the plan", b"its solution"))
    assert read_newest(run_dir, on_skip=pytest.fail) is None


def test_a_plan_without_its_solution_is_not_found(files: RunFiles) -> None:
    store_plan(files, "a" * 64, PlanDocuments(b"the plan", b"its solution"))
    files.remove(f"{PLANS}/{'a' * 64}/solution.json")
    assert find_plan(files, "a" * 64) is None


def test_a_plan_is_removed_with_the_last_commit_that_names_it(run_dir: str, files: RunFiles) -> None:
    for plan in ("p1", "p2", "p3"):
        store_plan(files, plan, PlanDocuments(b"plan", b"solution"))
    for epochs, plan in ((1, "p1"), (2, "p1"), (3, "p2")):
        publish_with_plan(run_dir, epochs, plan)
    apply_retention(run_dir, Retention(newest=2), now_secs=0.0)
    assert files.folders(PLANS) == ["p1", "p2", "p3"], "epoch 2 names p1, and p3 may be that of a commit to come"
    removed = apply_retention(run_dir, Retention(newest=1), now_secs=0.0)
    assert files.folders(PLANS) == ["p2", "p3"]
    assert files.place(f"{PLANS}/p1") in removed
