"""Runs of models with several labels, on a warehouse: one process and jobs, missing, late and bad labels, and serving."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from tests.trainer.synthetic import config
from tests.warehouse.scenes import FREE_READS, events, write_partition
from trainer.errors import BadLabel, RunMismatch
from trainer.model.scores import RegressionScores, Scores
from trainer.run.loop import train
from trainer.run.progress.data_changes import ChangePolicy
from trainer.serving.trained import load_trained
from warehouse import Warehouse, read_fragment, read_solution, register_table, submit_model
from warehouse.config import WarehouseConfig
from warehouse.reading.reader import LABEL, read_labels
from warehouse.solution.solution import ReadSolution

pytest.importorskip("tensorflow")

HOURS, ROWS = 3, 150


def with_conversions(table: pa.Table, seed: int) -> pa.Table:
    """Conversions of some clicks: null unless an event was clicked; some clicks are missing too, and some events have neither."""
    rng = np.random.default_rng(seed)
    clicked = table["clicked"].to_numpy(zero_copy_only=False)
    paid = np.where(rng.random(len(clicked)) < 0.5, rng.random(len(clicked)) * 10, 0.0)
    no_click = rng.random(len(clicked)) < 0.1
    columns = table.set_column(
        table.schema.get_field_index("clicked"), "clicked", pa.array(clicked.astype(np.int64), mask=no_click)
    )
    return columns.append_column(
        "paid", pa.array(paid, pa.float64(), mask=(clicked == 0) | (rng.random(len(clicked)) < 0.2))
    )


def labels() -> dict[str, object]:
    return {"click": "clicked", "conversion": hr.float64("paid") > 0.0, "paid": hr.Label("paid", task="regression")}


def ads_model(label: object) -> hr.Model:
    made = hr.Model("ads", client="search", label=label, table="log")
    made.input("words", hr.text("query").unigrams().hash_buckets(100))
    made.input("price", hr.float32("price"))
    return made


@pytest.fixture
def warehouse(tmp_path):
    for hour in range(HOURS):
        write_partition(tmp_path / "log", hour, with_conversions(events(ROWS, seed=hour), hour))
    with Warehouse.open(WarehouseConfig(home=str(tmp_path / "home"), rates=FREE_READS)) as opened:
        register_table(opened, "log", str(tmp_path / "log"))
        submit_model(opened, ads_model(labels()))
        yield opened


def stored(tmp_path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "log").rglob("*.parquet")))


def train_on(warehouse, run_dir, changes=None, **options):
    solution = read_solution(warehouse, "ads")
    given = {} if changes is None else {"changes": changes}
    return train(
        solution,
        lambda f: read_fragment(warehouse.storage, solution, f, rows=True),
        config(run_dir, **options),
        read_labels=lambda f: read_labels(warehouse.storage, solution, f),
        **given,
    )


def test_labels_are_read_as_a_struct_and_solutions_round_trip(warehouse, tmp_path):
    solution = read_solution(warehouse, "ads")
    assert solution.label == "click: clicked, conversion: greater(paid, 0.0), paid: paid (regression)"
    assert solution.to_document()["format"] == "headrace.read_solution/4"
    again = ReadSolution.from_document(solution.to_document())
    assert again.target == solution.target
    assert again.digest() == solution.digest()
    parts = [read_fragment(warehouse.storage, again, one)[LABEL].combine_chunks() for one in again.fragments]
    found = pa.concat_arrays(parts)
    table = stored(tmp_path)
    assert found.field("click").to_pylist() == table["clicked"].to_pylist()
    paid = table["paid"].to_pylist()
    assert found.field("conversion").to_pylist() == [None if value is None else value > 0 for value in paid]
    assert found.field("paid").to_pylist() == paid


@pytest.mark.medium
def test_a_run_trains_each_event_on_the_labels_that_it_has(warehouse, tmp_path):
    report = train_on(warehouse, tmp_path / "run", passes=2, task_weights={"paid": 0.5}, linear=True)
    table = stored(tmp_path)
    known = {name: table[column].is_valid().to_numpy() for name, column in (("click", "clicked"), ("paid", "paid"))}
    trainable = int((known["click"] | known["paid"]).sum())
    assert 0 < trainable < HOURS * ROWS
    assert (report.ledger.events, report.ledger.exact) == (trainable, True)
    assert report.unlabelled == HOURS * ROWS - trainable
    scored = load_trained(str(tmp_path / "run")).evaluate(
        solution := read_solution(warehouse, "ads"), lambda f: read_fragment(warehouse.storage, solution, f)
    )
    assert scored.events == trainable
    assert scored.tasks["click"].events == int(known["click"].sum())
    assert scored.tasks["conversion"].events == scored.tasks["paid"].events == int(known["paid"].sum())
    assert isinstance(scored.tasks["conversion"], Scores)
    assert isinstance(scored.tasks["paid"], RegressionScores)
    assert report.history[-1].scores.tasks.keys() == {"click", "conversion", "paid"}
    assert train_on(warehouse, tmp_path / "run", passes=2, task_weights={"paid": 0.5}, linear=True).events == 0


def test_predictions_are_by_label(warehouse, tmp_path):
    train_on(warehouse, tmp_path / "run")
    trained = load_trained(str(tmp_path / "run"))
    solution = read_solution(warehouse, "ads")
    table = read_fragment(warehouse.storage, solution, next(solution.fragments))
    found = trained.predict(table)
    assert {name: one.shape for name, one in found.items()} == dict.fromkeys(("click", "conversion", "paid"), (ROWS,))
    assert ((found["click"] > 0) & (found["click"] < 1)).all()


@pytest.mark.slow
def test_a_conversion_that_arrives_later_is_a_changed_label(warehouse, tmp_path):
    """Of a trained event: it is trained again if changed labels are, and refused otherwise."""
    train_changed = ChangePolicy(train_labels=True)
    first = train_on(warehouse, tmp_path / "run", train_changed)
    path = next(iter(sorted((tmp_path / "log").rglob("*.parquet"))))
    table = pq.read_table(path)
    clicked, paid = table["clicked"].to_pylist(), table["paid"].to_pylist()
    waiting = [k for k, (click, value) in enumerate(zip(clicked, paid, strict=True)) if click == 1 and value is None]
    new = [k for k, (click, value) in enumerate(zip(clicked, paid, strict=True)) if click is None and value is None]
    assert waiting
    assert new
    for k in (waiting[0], new[0]):
        paid[k] = 3.0
    at = table.schema.get_field_index("paid")
    pq.write_table(table.set_column(at, "paid", pa.array(paid, pa.float64())), path)
    register_table(warehouse, "log", str(tmp_path / "log"))
    with pytest.raises(RunMismatch, match="must continue"):
        train_on(warehouse, tmp_path / "run")
    again = train_on(warehouse, tmp_path / "run", train_changed)
    assert (again.late.relabelled, again.late.labels, again.events) == (1, 1, 2)
    assert again.ledger.events == first.ledger.events + 1


def test_a_label_that_its_task_does_not_have_is_refused_with_the_labels_name(warehouse, tmp_path):
    submit_model(warehouse, ads_model({"click": "clicked", "conversion": "paid"}))
    with pytest.raises(BadLabel, match="a binary label must be 0 or 1") as caught:
        train_on(warehouse, tmp_path / "run")
    assert caught.value.where.startswith("label conversion, ")
