"""Labels that are expressions, and other tasks, from the model to a trainer's read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import model, work
from transforms.errors import DataError, InputError, TypeMismatch, UnknownColumn
from transforms.expressions.model import Model
from transforms.ranges import between
from warehouse import ReadSolution, Warehouse, delete_rows, read_fragment, read_solution, submit_model
from warehouse.reading.reader import LABEL, LIVE, ROW, read_labels
from warehouse.solution.parsing import FORMAT, TARGET_FORMAT

pytestmark = pytest.mark.usefixtures("log")


def labelled(label: object, **options: object) -> Model:
    made = Model("ctr", client="search", label=label, table="log", **options)
    made.inputs = model(inputs=2).inputs
    return made


def columns(warehouse: Warehouse, solution: ReadSolution, **options: object) -> list[pa.Table]:
    return [read_fragment(warehouse.storage, solution, one, **options) for one in solution.fragments]


def test_a_label_is_computed_when_it_is_read(warehouse: Warehouse) -> None:
    submit_model(warehouse, labelled(hr.float32("price") > 8.5))
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    assert solution.label == "greater(price, 8.5)"
    for fragment, table in zip(solution.fragments, columns(warehouse, solution), strict=True):
        price = read_fragment(warehouse.storage, solution, fragment, columns=["query"])["price"].to_pylist()
        assert table[LABEL].to_pylist() == [None if one is None else one > 8.5 for one in price]
        assert read_labels(warehouse.storage, solution, fragment)[LABEL].to_pylist() == table[LABEL].to_pylist()


def test_a_label_shares_what_is_memoized_with_the_inputs(warehouse: Warehouse) -> None:
    made = labelled(hr.text("title").length() > 10)
    made.input("length", hr.text("title").length())
    submit_model(warehouse, made)
    before = [table[LABEL] for table in columns(warehouse, read_solution(warehouse, "ctr"))]
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    assert solution.count("load")
    assert [table[LABEL] for table in columns(warehouse, solution)] == before


def test_documents_of_raw_columns_stay_what_they_were(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=2))
    plain = read_solution(warehouse, "ctr").to_document()
    assert (plain["format"], plain["label"]) == (FORMAT, "clicked")
    assert not {"label_component", "task", "classes"} & plain.keys()


@pytest.mark.parametrize(
    ("label", "options"),
    [
        (hr.float32("price") > 2.5, {}),
        ("price", {"task": "regression"}),
        (hr.float32("price").fill_null(0.0).bucketize([5, 9]), {"classes": 3}),
        ("clicked", {"task": "binary"}),
    ],
)
def test_the_document_round_trips(warehouse: Warehouse, label: object, options: dict[str, object]) -> None:
    submit_model(warehouse, labelled(label, **options))
    assert submit_model(warehouse, labelled(label, **options)).unchanged
    solution = read_solution(warehouse, "ctr")
    document = json.loads(json.dumps(solution.to_document()))
    assert document["format"] == TARGET_FORMAT
    again = ReadSolution.from_document(document)
    assert again == solution
    assert again.target == solution.target
    assert again.digest() == solution.digest()


@pytest.mark.parametrize(
    "change",
    [
        {"task": "ranking"},
        {"task": "multiclass", "classes": 0},
        {"classes": 3},
        {"label": "clicked"},
        {"label_component": {"format": "headrace.component/1", "nodes": []}},
        {"label_component": None},
        {"format": FORMAT},
    ],
)
def test_a_document_of_another_label_is_refused(warehouse: Warehouse, change: dict[str, object]) -> None:
    submit_model(warehouse, labelled(hr.float32("price") > 2.5))
    document = read_solution(warehouse, "ctr").to_document()
    with pytest.raises(DataError):
        ReadSolution.from_document({**document, **change})


def test_another_label_or_task_is_another_version(warehouse: Warehouse) -> None:
    versions = [
        submit_model(warehouse, labelled(label, **options)).version
        for label, options in (
            ("clicked", {}),
            (hr.boolean("clicked"), {}),
            (hr.float32("price") > 2.5, {}),
            (hr.float32("price") > 3.5, {}),
            ("price", {"task": "regression"}),
            ("price", {"classes": 3}),
            ("price", {"classes": 4}),
        )
    ]
    assert versions == [1, 2, 3, 4, 5, 6, 7]


def test_a_label_is_checked_before_anything_is_queued(warehouse: Warehouse) -> None:
    with pytest.raises(UnknownColumn) as caught:
        submit_model(warehouse, labelled(hr.float32("prise") > 2.5))
    assert (caught.value.where, caught.value.value) == ("model ctr, label", "prise")
    with pytest.raises(TypeMismatch, match="not stored as it is declared"):
        submit_model(warehouse, labelled(hr.int64("query") > 2))
    with pytest.raises(TypeMismatch, match="boolean or number"):
        labelled(hr.text("query"))
    with pytest.raises(TypeMismatch, match="boolean or number"):
        labelled(hr.text("query").unigrams().hash_buckets(10))
    with pytest.raises(InputError, match="full pass"):
        labelled(hr.float32("price").standardize_over(over=between("2026-01-01", "2026-01-02")) > 0)
    with pytest.raises(InputError, match="one of binary"):
        labelled("clicked", task="ranking")
    with pytest.raises(InputError, match="number of classes"):
        labelled("clicked", task="multiclass")
    with pytest.raises(InputError, match="no number of classes"):
        labelled("clicked", task="regression", classes=3)


def test_labels_and_rows_of_deleted_events(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, labelled(hr.float32("price") > 8.5))
    delete_rows(warehouse, "log", where=[("price", "4")])
    solution = read_solution(warehouse, "ctr")
    for fragment, table in zip(solution.fragments, columns(warehouse, solution, rows=True), strict=True):
        stored = read_labels(warehouse.storage, solution, fragment)
        assert stored.num_rows == fragment.rows
        live = [k for k, alive in enumerate(stored[LIVE].to_pylist()) if alive]
        assert table[ROW].to_pylist() == live
        assert table[LABEL].to_pylist() == stored[LABEL].take(live).to_pylist()
    assert any(fragment.deleted_rows for fragment in solution.fragments)


@pytest.mark.medium
def test_a_label_that_fails_on_a_value_names_the_label(warehouse: Warehouse, tmp_path: Path) -> None:
    from transforms.functions import op

    @op(result="float64")
    def broken(text: pa.Array) -> pa.Array:
        raise ValueError("no such word")

    submit_model(warehouse, labelled(broken(hr.text("query"))))
    with pytest.raises(DataError) as caught:
        columns(warehouse, read_solution(warehouse, "ctr"))
    assert caught.value.where.startswith("label, ")
