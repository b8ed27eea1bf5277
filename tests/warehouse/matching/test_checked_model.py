"""A model is checked once: what submitting receives is the value that the check made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import events, model, write_partition
from transforms.errors import UnknownColumn
from warehouse import Warehouse, register_table
from warehouse.changes.drop_table import drop_table
from warehouse.matching import checked_model, column_checks
from warehouse.matching.checked_model import check_models
from warehouse.matching.submit import submit_checked, submit_model
from warehouse.models.merged_graph import MergedGraph


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[MergedGraph]:
    """The graph of every check of a model's columns."""
    graphs: list[MergedGraph] = []

    def check(*given: Any) -> None:
        graphs.append(given[2])
        column_checks.check_columns(*given)

    monkeypatch.setattr(checked_model, "check_columns", check)
    return graphs


@pytest.mark.usefixtures("log")
def test_a_submission_checks_its_columns_once(warehouse: Warehouse, checks: list[MergedGraph]) -> None:
    (checked,) = check_models(warehouse, [model()])
    submit_checked(warehouse, checked)
    assert len(checks) == 1
    assert checks[0] is checked.graph
    submit_model(warehouse, model("other"))
    assert len(checks) == 2


@pytest.mark.usefixtures("log")
def test_the_policy_of_the_submission_is_that_of_the_check(warehouse: Warehouse) -> None:
    (checked,) = check_models(warehouse, [model()], policy="none")
    assert submit_checked(warehouse, checked).policy == "none"


@pytest.mark.usefixtures("log")
def test_a_table_with_other_columns_since_is_checked_again(warehouse: Warehouse, tmp_path: Path) -> None:
    (checked,) = check_models(warehouse, [model()])
    drop_table(warehouse, "log")
    write_partition(tmp_path / "other", 0, events().drop_columns(["title"]))
    register_table(warehouse, "log", str(tmp_path / "other"))
    with pytest.raises(UnknownColumn, match="title"):
        submit_checked(warehouse, checked)


@pytest.mark.usefixtures("log")
def test_a_model_that_does_not_fit_ends_the_check_of_all(warehouse: Warehouse) -> None:
    wrong = model("wrong")
    wrong.input("absent", hr.int64("no_such_column").hash_buckets(5))
    with pytest.raises(UnknownColumn, match="model wrong, input absent"):
        check_models(warehouse, [model(), wrong])
