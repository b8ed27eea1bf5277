"""Retired models: no memo is computed for them any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.warehouse.scenes import events, model, work, write_partition
from warehouse import Warehouse, lease_tasks, queue_depths, queue_missing, register_table, submit_model
from warehouse.errors import UnknownModel
from warehouse.models.retire import retire_model


def test_nothing_is_leased_or_queued_for_it(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    assert retire_model(warehouse, "ctr").live
    assert not retire_model(warehouse, "ctr").live, "it was retired already"
    assert lease_tasks(warehouse, "worker", limit=100) == ()
    assert [depth.queued for depth in queue_depths(warehouse)] == [0]
    write_partition(log, 5, events(seed=5))
    register_table(warehouse, "log", str(log))
    assert queue_missing(warehouse) == 0


def test_tasks_of_another_live_model_are_computed(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model("one"))
    submit_model(warehouse, model("two", inputs=1))
    retire_model(warehouse, "one")
    assert work(warehouse) == 3


def test_submitting_it_again_brings_it_back(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    retire_model(warehouse, "ctr")
    found = submit_model(warehouse, model())
    assert (found.version, found.unchanged, found.queued, found.shared) == (1, True, 0, 6)
    assert work(warehouse) == 6
    write_partition(log, 5, events(seed=5))
    register_table(warehouse, "log", str(log))
    assert queue_missing(warehouse) == 2


def test_a_dry_run_shows_the_consequences_and_changes_nothing(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model("one"))
    assert work(warehouse) == 6
    write_partition(log, 5, events(seed=5))
    register_table(warehouse, "log", str(log))
    submit_model(warehouse, model("one"))
    submit_model(warehouse, model("two", inputs=1))
    planned = retire_model(warehouse, "one", dry_run=True)
    assert (planned.live, planned.done, planned.client) == (True, False, "search")
    assert (planned.queued_tasks, planned.shared_tasks) == (1, 1)
    assert (planned.memos, planned.own_memos) == (6, 3)
    assert 0 < planned.own_bytes < planned.bytes
    assert retire_model(warehouse, "one", dry_run=True) == planned
    assert retire_model(warehouse, "one") == replace(planned, done=True)
    assert work(warehouse) == 1
    again = retire_model(warehouse, "one", dry_run=True)
    assert (again.live, again.queued_tasks, again.shared_tasks) == (False, 0, 0)


def test_an_unknown_model_is_said_to_be(warehouse: Warehouse, log: Path) -> None:
    with pytest.raises(UnknownModel):
        retire_model(warehouse, "absent")
