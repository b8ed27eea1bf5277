"""Scores of a trained model by partition."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from headrace.cli.options.runs import NamedRun, named_run
from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import SMALL
from transforms.errors import InputError


def scores_in(folder):
    files = sorted(folder.rglob("scores-*.parquet"))
    return {str(file.relative_to(folder)): pq.read_table(file, partitioning=None) for file in files}


def test_every_event_is_scored_as_the_trainer_would(trained_once, tmp_path):
    import pyarrow as pa

    from trainer.serving.trained import load_trained
    from warehouse import Warehouse, WarehouseConfig
    from warehouse.matching.solve import read_solution
    from warehouse.reading.reader import read_fragment

    predict = (
        "predict",
        "first",
        "--start",
        "2026-03-02T02:00",
        "--output",
        tmp_path / "scores",
        "--columns",
        "event_id,time",
    )
    done = trained_once(*predict, "--json").json
    files = scores_in(tmp_path / "scores")
    assert sorted(name.rpartition("/")[0] for name in files) == ["date=2026-03-02/hour=02", "date=2026-03-02/hour=03"]
    assert done["rows"] == sum(table.num_rows for table in files.values()) > 100
    assert (done["files"], done["known_files"], done["failures"]) == (2, 0, [])

    warehouse = Warehouse.open(WarehouseConfig(str(tmp_path / "home")))
    solution = read_solution(warehouse, "first")
    model = load_trained(str(tmp_path / "home" / "runs" / "first-v1"))
    for table in files.values():
        assert table.schema.names == ["partition", "fragment", "row", "time", "event_id", "prediction"]
        assert table.schema.field("prediction").type == pa.float32()
    for fragment in list(solution.fragments)[2:]:
        read = read_fragment(warehouse.storage, solution, fragment, columns=["event_id"])
        (written,) = (one for one in files.values() if one["event_id"] == read["event_id"])
        np.testing.assert_allclose(written["prediction"].to_numpy(), model.predict(read), rtol=1e-6)
    warehouse.close()
    folder = tmp_path / "home" / "runs" / "first-v1"
    by_folder = trained_once("predict", folder, *predict[2:], "--json").json
    assert (by_folder["model"], by_folder["files"], by_folder["known_files"]) == ("first", 0, 2), (
        "the run names its model"
    )


def test_the_folder_of_a_run_names_its_model_and_version(tmp_path):
    folder = tmp_path / "a" / "ctr-v2-v3"
    assert named_run(str(folder), 0) == NamedRun("ctr-v2", 3, str(folder))
    assert named_run("gs://bucket/runs/ctr-v2", 0) == NamedRun("ctr", 2, "gs://bucket/runs/ctr-v2")
    assert named_run("ctr", 2, "/runs/x") == NamedRun("ctr", 2, "/runs/x")
    with pytest.raises(InputError, match="named by its model and version"):
        named_run(str(tmp_path), 0)
    with pytest.raises(InputError, match="must go with the name of a model"):
        named_run(str(folder), 4)


def test_an_unknown_column_is_refused_before_anything_is_scored(submitted, tmp_path):
    error = submitted("predict", "first", "--output", tmp_path / "scores", "--columns", "event_id,tiem", status=2).err
    assert "no such column" in error
    assert "time" in error
    assert not (tmp_path / "scores").exists()


@pytest.mark.slow
def test_the_same_command_scores_what_is_new_only(trained_once, tmp_path):
    predict = ("predict", "first", "--output", tmp_path / "scores")
    first = trained_once(*predict, "--json").json
    kept = {name: table.num_rows for name, table in scores_in(tmp_path / "scores").items()}
    again = trained_once(*predict).out
    assert "scored before, unchanged: 4 files" in again
    write_sample_log(tmp_path / "log", SMALL, late=True)
    trained_once("table", "add", "log", tmp_path / "log")
    late = trained_once(*predict, "--json").json
    assert 0 < late["rows"] < first["rows"]
    assert late["known_files"] == 4
    found = {name: table.num_rows for name, table in scores_in(tmp_path / "scores").items()}
    assert kept.items() <= found.items()


@pytest.mark.slow
def test_a_folder_holds_scores_of_one_checkpoint(trained_once, tmp_path):
    predict = ("predict", "first", "--end", "2026-03-02T01:00", "--output", tmp_path / "scores")
    trained_once(*predict)
    settings = tmp_path / "training.json"
    trained_once("train", "first", "--end", "2026-03-02T03:00", "--config", settings)
    error = trained_once(*predict, status=2).err
    assert "scores of one checkpoint" in error
    assert "name another folder with --output" in error


@pytest.mark.slow
def test_a_fragment_that_cannot_be_read_fails_alone(trained_once, tmp_path):
    (file,) = (tmp_path / "log" / "date=2026-03-02" / "hour=01").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    done = trained_once("predict", "first", "--output", tmp_path / "scores", "--json", status=3)
    screen = json.loads(done.out)
    assert screen["files"] == 3
    assert len(screen["failures"]) == 1
    assert "hour=01" in screen["failures"][0]


def test_without_a_run_the_next_step_is_training(submitted, tmp_path):
    error = submitted("predict", "first", "--output", tmp_path / "scores", status=4).err
    assert "headrace train first" in error
    assert not (tmp_path / "scores").exists()
