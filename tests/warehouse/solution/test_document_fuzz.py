"""Damaged read solutions and components are read, or refused with Headrace's error."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.fuzz.bounded import run_trials
from tests.warehouse.scenes import model, work
from transforms.expressions.model import Model
from warehouse import ReadSolution, Storage, Warehouse, read_raw, read_solution, submit_model
from warehouse.errors import ChangedData
from warehouse.files.digests import column_digest

_TRIALS = "tests.warehouse.solution.document_trials"


@pytest.fixture
def home(warehouse: Warehouse, log: Path) -> str:
    """A home with some memos, and the solution of a model over them."""
    made = Model("ctr", client="search", label=hr.float32("price") > 2.5, table="log")
    made.inputs = model(inputs=5).inputs
    submit_model(warehouse, made)
    work(warehouse, most=6)
    document = read_solution(warehouse, "ctr").to_document()
    late = {"column": "late", "path": "", "checksum": "0" * 64, "arrow_type": "double"}
    fragment = document["partitions"][0]["fragments"][0]
    fragment |= {
        "overlays": [late],
        "types": {"title": "string"},
        "levels": {"country": "DE"},
        "digest_types": {"late": "float"},
    }
    fragment["digests"] = {**fragment["digests"], "country": column_digest(pa.repeat("DE", fragment["rows"]))}
    folder = Path(warehouse.storage.home)
    (folder / "solution.json").write_text(json.dumps(document), encoding="utf-8")
    return str(folder)


def test_a_column_of_nulls_is_as_long_as_its_file(home: str) -> None:
    document = json.loads(Path(home, "solution.json").read_text(encoding="utf-8"))
    fragment = document["partitions"][0]["fragments"][0]
    fragment["rows"] = 2**31 - 1
    solution = ReadSolution.from_document(document)
    with pytest.raises(ChangedData, match="rows that were registered"):
        read_raw(Storage(home), next(solution.fragments), ["late"])


@pytest.mark.slow
def test_damaged_components_are_read_or_refused() -> None:
    found = run_trials(_TRIALS, "component", 0, 400, "")
    assert found["DataError"] > 200, found


@pytest.mark.slow
def test_damaged_solutions_are_read_or_refused(home: str) -> None:
    found = run_trials(_TRIALS, "solution", 0, 300, home)
    assert found["DataError"] > 150, found


@pytest.mark.slow
def test_thousands_of_damaged_components() -> None:
    run_trials(_TRIALS, "component", 1000, 5000, "")


@pytest.mark.slow
def test_thousands_of_damaged_solutions(home: str) -> None:
    run_trials(_TRIALS, "solution", 1000, 5000, home)
