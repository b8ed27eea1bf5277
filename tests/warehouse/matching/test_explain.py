"""Every reason for a miss in ``explain``."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import Clock, events, evict_component, model, work, write_partition
from transforms.expressions.model import Model, ModelInput
from transforms.graphs.graph import Node, Operation
from warehouse import (
    Decision,
    Failure,
    Warehouse,
    explain_model,
    fail_tasks,
    lease_tasks,
    queue_missing,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.errors import UnknownModel


def explained(warehouse: Warehouse, name: str = "ctr", input_name: str = "input_0") -> dict[str, Decision]:
    return {one.partition[-2:]: one for one in explain_model(warehouse, name) if one.input == input_name}


def codes(warehouse: Warehouse, name: str = "ctr", input_name: str = "input_0") -> dict[str, str]:
    return {hour: one.reason_code for hour, one in explained(warehouse, name, input_name).items()}


def with_operator_version(source: Model, name: str, operator: str, version: int) -> Model:
    """``source`` as another release of the operators would have built it."""

    def rebuilt(node: Node) -> Node:
        if not isinstance(node, Operation):
            return node
        number = version if node.op == operator else node.version
        return Operation(node.type, node.op, number, tuple(map(rebuilt, node.operands)), node.params)

    made = Model(name, client=source.client, label=source.label, table=source.table)
    for item in source.inputs.values():
        root = rebuilt(item.component)
        made.inputs[item.name] = ModelInput(item.name, root, root.identity)
    return made


@pytest.mark.usefixtures("log")
def test_from_never_seen_to_ready(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    first = explained(warehouse)["00"]
    assert (first.reason_code, first.state, first.hit, first.rows) == ("never_seen", "PENDING", False, 20)
    assert "never computed" in first.reason
    assert "queued" in first.reason
    lease_tasks(warehouse, "w", limit=1)
    assert sorted(one.state for one in explain_model(warehouse, "ctr")).count("RUNNING") == 1
    assert codes(warehouse)["00"] == "running"
    submit_model(warehouse, model("other", "ads"))
    assert codes(warehouse, "other")["01"] == "pending"
    assert "another model" in explained(warehouse, "other")["01"].reason
    warehouse.clock.advance(1000)  # type: ignore[attr-defined]
    work(warehouse)
    assert set(codes(warehouse).values()) == set(codes(warehouse, "other").values()) == {"ready"}
    assert all(one.hit for one in explain_model(warehouse, "ctr"))
    assert set(codes(warehouse, "ctr", "price").values()) == {"raw"}


@pytest.mark.usefixtures("log")
def test_another_operator_version(warehouse: Warehouse) -> None:
    submit_model(warehouse, with_operator_version(model(inputs=2), "old", "unigrams", 7))
    submit_model(warehouse, model("new", inputs=3))
    assert set(codes(warehouse, "new").values()) == {"operator_version"}
    reason = explained(warehouse, "new")["00"].reason
    assert "same structure but operator unigrams version 1 instead of 7" in reason
    assert set(codes(warehouse, "new", "input_2").values()) == {"never_seen"}


def test_changed_data_names_the_column(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=4))
    work(warehouse)
    changed = events(20, seed=1)
    titles = pa.array(["new title", *changed.column("title").to_pylist()[1:]])
    write_partition(log, 1, events(20, seed=1, title=titles))
    register_table(warehouse, "log", str(log))
    assert codes(warehouse, input_name="input_1") == {"00": "ready", "01": "data_changed", "02": "ready"}
    assert explained(warehouse, input_name="input_1")["01"].reason == "data changed in column title"
    assert set(codes(warehouse, input_name="input_0").values()) == {"ready"}, "it does not read the title"
    queue_missing(warehouse)
    decision = explained(warehouse, input_name="input_1")["01"]
    assert (decision.reason_code, decision.state) == ("data_changed", "PENDING")
    assert decision.reason == "data changed in column title; queued"


def test_changed_data_in_a_file_of_another_name(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=2))
    work(warehouse)
    (log / "date=2026-01-01/hour=01/part.parquet").unlink()
    write_partition(log, 1, events(20, seed=40), name="restated.parquet")
    register_table(warehouse, "log", str(log))
    assert explained(warehouse, input_name="input_1")["01"].reason == "data changed in columns query, title"


def test_appended_data_was_never_seen(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    work(warehouse)
    write_partition(log, 1, events(20, seed=40), name="a_sorts_first.parquet")
    write_partition(log, 9, events(20, seed=41))
    register_table(warehouse, "log", str(log))
    found = [(one.partition[-2:], one.reason_code) for one in explain_model(warehouse, "ctr") if one.input == "input_0"]
    assert sorted(found) == [
        ("00", "ready"),
        ("01", "never_seen"),
        ("01", "ready"),
        ("02", "ready"),
        ("09", "never_seen"),
    ]


@pytest.mark.usefixtures("log")
def test_evicted_says_when_and_why(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    clock.now = 1_767_225_600.0  # 2026-01-01
    evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint, why="too big")
    decision = explained(warehouse)["00"]
    assert (decision.reason_code, decision.state, decision.hit) == ("evicted", "EVICTED", False)
    assert decision.reason.startswith("evicted on 2026-01-01 (too big [fingerprint ")
    assert set(codes(warehouse, input_name="input_1").values()) == {"ready"}
    submit_model(warehouse, model())
    assert {one.reason_code for one in explain_model(warehouse, "ctr") if one.input == "input_0"} == {"evicted"}
    assert explained(warehouse)["00"].reason == f"{decision.reason}; queued"
    work(warehouse)
    assert set(codes(warehouse).values()) == {"ready"}


@pytest.mark.usefixtures("log")
def test_failed_says_what_happened(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    for _ in range(3):
        clock.advance(60)
        (task,) = lease_tasks(warehouse, "w", limit=1)
        assert task.partition.endswith("00")
        fail_tasks(warehouse, [(task, Failure("raised", "ValueError: not a word\nand a long trace"))])
    decision = explained(warehouse)["00"]
    assert (decision.reason_code, decision.state) == ("failed", "FAILED")
    assert "ValueError: not a word" in decision.reason
    assert "trace" not in decision.reason


@pytest.mark.usefixtures("log")
def test_two_inputs_of_one_component_have_equal_explanations(warehouse: Warehouse) -> None:
    twice = model(inputs=1)
    twice.input("again", hr.text("query").unigrams().hash_buckets(100))
    submit_model(warehouse, twice)
    assert [replace(one, input="") for one in explained(warehouse).values()] == [
        replace(one, input="") for one in explained(warehouse, input_name="again").values()
    ]


@pytest.mark.usefixtures("log")
def test_unknown_models_and_versions(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    with pytest.raises(UnknownModel) as caught:
        explain_model(warehouse, "cttr")
    assert caught.value.allowed == "ctr"
    with pytest.raises(UnknownModel) as caught:
        explain_model(warehouse, "ctr", version=2)
    assert caught.value.allowed == "1"


@pytest.mark.usefixtures("log")
def test_what_the_alternatives_cost(warehouse: Warehouse) -> None:
    """Loading costs nothing here; what is not there cannot be loaded, and what is there need not be kept."""
    submit_model(warehouse, model(inputs=2))
    missed = explain_model(warehouse, "ctr", costs_of=["input_0"])
    assert all(one.costs is None for one in missed if one.input != "input_0")
    costs = [one.costs for one in missed if one.input == "input_0"]
    assert all(one is not None and one.load_secs == math.inf and 0 < one.compute_secs < math.inf for one in costs)
    assert all(one is not None and 0 < one.keep_secs < math.inf and one.requests > 1 for one in costs)
    assert {one.action for one in missed} == {"compute", "raw"}
    work(warehouse)
    found = explain_model(warehouse, "ctr", costs_of=["input_0"])
    assert {one.action for one in found} == {"load", "raw"}
    costs = [one.costs for one in found if one.input == "input_0"]
    assert all(one is not None and one.keep_secs == math.inf for one in costs)
    assert all(one is not None and one.load_secs < one.compute_secs for one in costs)
