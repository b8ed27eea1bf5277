"""The examples of docs/functions.md, computed after their files are deleted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.model_file import load_models
from tests.pipelines.scenes import memo_values
from tests.warehouse.scenes import FREE_READS
from transforms.execution.plan import compile_plan
from warehouse.config import WarehouseConfig
from warehouse.matching.solve import read_solution
from warehouse.tables.parquet import read_columns
from warehouse.warehouse import Warehouse

TOP = Path(__file__).parents[2]
FUNCTIONS, PREPROCESSING = re.findall(r"```python\n(.*?)```", (TOP / "docs" / "functions.md").read_text(), re.S)


def worked(cli, home):
    """Let a process of its own compute what is queued, in a folder where the models' files are not."""
    environment = {**os.environ, "PYTHONPATH": str(TOP), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "headrace", "work", "--until-idle", "--home", str(home)]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=300, check=True)


def check_memos(home, models):
    """Every memo is what the components give in this process, over every fragment."""
    with Warehouse.open(WarehouseConfig(str(home), rates=FREE_READS)) as warehouse:
        memos = list(memo_values(warehouse).values())
        expected = []
        for model in models:
            plan = compile_plan({item.fingerprint: item.component for item in model.inputs.values()})
            for partition in read_solution(warehouse, model.name).partitions:
                for fragment in partition.fragments:
                    raw = read_columns(warehouse.storage, fragment, [column.name for column in plan.columns])
                    result = plan.run(raw)
                    assert not result.failures
                    expected += result.columns.values()
    assert len(memos) == len(expected) > 0
    for column in expected:
        assert any(column.equals(memo) for memo in memos)


@pytest.mark.slow
@pytest.mark.parametrize("source", [FUNCTIONS, PREPROCESSING], ids=["functions", "preprocessing"])
def test_the_manual_s_examples_are_computed_by_a_worker_that_never_sees_their_file(cli, small_log, tmp_path, source):
    if "tensorflow" in source:
        pytest.importorskip("tensorflow")
    file = tmp_path / "mine" / "features.py"
    file.parent.mkdir()
    file.write_text(source, encoding="utf-8")
    models = load_models(file)
    cli("table", "add", "log", small_log, "--time-column", "time")
    submitted = cli("model", "submit", file, "--table", "log", "--json").json
    file.unlink()
    worked(cli, tmp_path / "home")
    check_memos(tmp_path / "home", models)
    (row,) = submitted["models"]
    assert cli("model", "explain", row["model"], "--misses", "--json").json["decisions"] == []
    shown = cli("model", "show", row["model"], "--json").json["inputs"]
    assert all(re.search(r" v-[0-9a-f]{8}", item["expression"]) for item in shown)
    assert not any("headrace.function" in item["expression"] for item in shown)


def test_a_refusal_names_the_file_and_the_line(cli, small_log, tmp_path):
    file = tmp_path / "features.py"
    file.write_text(FUNCTIONS.replace('RATES = {"EUR": 1.0, "USD": 0.92}', "RATES = open(__file__)"), encoding="utf-8")
    cli("table", "add", "log", small_log, "--time-column", "time")
    said = cli("model", "submit", file, "--table", "log", status=2).err
    assert "function price_per_word cannot be fingerprinted: variable 'RATES'" in said
    assert f"{file}:" in said
    assert "next:" in said


def test_another_rate_is_another_memo(tmp_path):
    fingerprints = []
    for text in (
        FUNCTIONS,
        FUNCTIONS.replace("0.92", "0.93"),
        FUNCTIONS.replace("import headrace", "# moved\nimport headrace"),
    ):
        file = tmp_path / "features.py"
        file.write_text(text, encoding="utf-8")
        (model,) = load_models(file)
        fingerprints.append({name: item.fingerprint for name, item in model.inputs.items()})
    assert fingerprints[0] == fingerprints[2]
    assert fingerprints[0]["price_per_word"] != fingerprints[1]["price_per_word"]
    assert fingerprints[0]["initials"] == fingerprints[1]["initials"]


def test_the_manual_s_function_is_tested_as_the_manual_says(tmp_path):
    namespace: dict[str, object] = {}
    file = tmp_path / "features.py"
    file.write_text(FUNCTIONS, encoding="utf-8")
    exec(compile(FUNCTIONS, str(file), "exec"), namespace)
    got = namespace["price_per_word"](pa.array([2.0, None, 3.0]), pa.array(["a b", "c", ""]))  # type: ignore[operator]
    assert got.to_pylist() == [1.0, None, None]


@pytest.mark.slow
def test_the_example_of_a_preprocessing_fn_is_analyzed_and_computed(cli, small_log, tmp_path):
    pytest.importorskip("tensorflow_transform")
    cli("table", "add", "search_log", small_log, "--time-column", "time")
    example = TOP / "examples" / "preprocessing_fn.py"
    refused = cli("model", "submit", example, "--table", "search_log", status=2).err
    assert "compute_and_apply_vocabulary" in refused
    (submitted,) = cli("model", "submit", example, "--table", "search_log", "--analyze", "--json").json["models"]
    assert submitted["version"] == 1
    shown = cli("model", "show", "preprocessing_fn", "--json").json
    assert {item["name"]: item["type"] for item in shown["inputs"]} == {
        "category": "Dense[int64]", "position": "Dense[int64]", "price": "Dense[float32]", "words": "Dense[int64]",
    }  # fmt: skip
    (analysis,) = shown["analyses"]
    assert analysis["operator"] == "preprocessing_output"
    worked(cli, tmp_path / "home")
    assert cli("model", "explain", "preprocessing_fn", "--misses", "--json").json["decisions"] == []
    assert "nothing to analyze" in cli("analyze", example, "--table", "search_log").out
