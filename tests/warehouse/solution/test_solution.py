"""The read solution as a value and as a document."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace as hr
from tests.warehouse.scenes import REPOSITORY, model, work
from transforms.errors import DataError
from warehouse import ReadSolution, Warehouse, read_solution, submit_model
from warehouse.errors import UnknownModel
from warehouse.solution.parsing import FORMAT, TARGET_FORMAT, TASKS_FORMAT

pytestmark = pytest.mark.usefixtures("log")


def test_the_document_round_trips_through_json(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=5))
    work(warehouse, most=4)
    solution = read_solution(warehouse, "ctr")
    assert solution.count("load") == 4
    document = json.loads(json.dumps(solution.to_document()))
    assert document["format"] == FORMAT
    again = ReadSolution.from_document(document)
    assert again == solution
    assert again.digest() == solution.digest()
    assert again.rows == 60


def test_partitions_are_in_time_order_and_ranges_are_half_open(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    starts = [part.start.hour for part in read_solution(warehouse, "ctr").partitions]
    assert starts == [0, 1, 2]
    at = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(4)]

    def hours(start: datetime | None, end: datetime | None) -> list[int]:
        return [part.start.hour for part in read_solution(warehouse, "ctr", start=start, end=end).partitions]

    assert hours(at[1], None) == [1, 2]
    assert hours(None, at[1]) == [0]
    assert hours(at[1], at[2]) == [1]
    assert hours(at[3], None) == []


@pytest.mark.medium
def test_the_digest_tells_how_and_what_is_read(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    before = read_solution(warehouse, "ctr")
    work(warehouse)
    after = read_solution(warehouse, "ctr")
    assert before.digest() != after.digest()
    part = read_solution(warehouse, "ctr", end=datetime(2026, 1, 1, 2, tzinfo=UTC))
    assert part.digest() != after.digest()


@pytest.mark.medium
def test_the_digest_is_the_same_in_another_process(warehouse: Warehouse, tmp_path: Path) -> None:
    submit_model(warehouse, model())
    solution = read_solution(warehouse, "ctr")
    (tmp_path / "solution.json").write_text(json.dumps(solution.to_document()))
    code = (
        "import json, sys; from warehouse import ReadSolution\n"
        "print(ReadSolution.from_document(json.load(open(sys.argv[1]))).digest())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "solution.json")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stdout.strip() == solution.digest()


def test_documents_of_another_format_are_refused(warehouse: Warehouse) -> None:
    submit_model(warehouse, model())
    document = read_solution(warehouse, "ctr").to_document()
    with pytest.raises(DataError) as caught:
        ReadSolution.from_document({**document, "format": "headrace.read_solution/1"})
    assert caught.value.allowed == f"{FORMAT}, {TARGET_FORMAT} or {TASKS_FORMAT}"
    with pytest.raises(DataError) as caught:
        ReadSolution.from_document({name: value for name, value in document.items() if name != "label"})
    assert caught.value.value == "label"
    document["plans"][0]["actions"][0] = "guess"
    with pytest.raises(DataError, match=r"plans\[0\].actions\[0\] of the read solution must be one of load"):
        ReadSolution.from_document(document)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"tasks": []}, "tasks"),
        (
            {"tasks": [{"name": "click", "label": "clicked", "label_component": None, "task": None, "classes": 0}] * 2},
            "tasks",
        ),
        ({"tasks": [{"name": "click"}, {"name": "other"}]}, "tasks[0]"),
        ({"other": []}, "label_component"),
        ([], "label_component"),
    ],
)
def test_documents_of_several_labels_are_checked(warehouse: Warehouse, change: object, place: str) -> None:
    made = model()
    several = hr.Model(
        "ctr", client="search", table="log", label={"click": "clicked", "fast": hr.float32("price") < 3.0}
    )
    several.inputs.update(made.inputs)
    submit_model(warehouse, several)
    document = read_solution(warehouse, "ctr").to_document()
    assert document["format"] == TASKS_FORMAT
    assert ReadSolution.from_document(json.loads(json.dumps(document))).to_document() == document
    with pytest.raises(DataError, match=place.replace("[", r"\[").replace("]", r"\]")):
        ReadSolution.from_document({**document, "label_component": change})
    for field, value in (("label", "clicked"), ("task", "binary"), ("classes", 2)):
        with pytest.raises(DataError, match=field):
            ReadSolution.from_document({**document, field: value})


def test_unknown_models(warehouse: Warehouse) -> None:
    with pytest.raises(UnknownModel):
        read_solution(warehouse, "nothing")


def test_the_documented_example_is_a_solution() -> None:
    text = (REPOSITORY / "docs/read-solution.md").read_text(encoding="utf-8")
    document = json.loads(text.split("```json\n")[1].split("```")[0])
    solution = ReadSolution.from_document(document)
    assert solution.to_document() == document
    assert (solution.rows, solution.count("load")) == (600, 1)
    for field in (*document, *document["inputs"][0], *document["partitions"][0]["fragments"][0]):
        assert field in {"format", "name", "start"} or f"`{field}`" in text or f".{field}`" in text, field
