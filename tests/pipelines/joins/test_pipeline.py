"""The join job gives the columns that a worker computes alone, to the last bit, whatever is in one bucket and on whichever machine."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from pipelines.errors import JoinJobFailed, RunnerFailed
from pipelines.joins import pipeline as join_job
from pipelines.joins.pipeline import JoinBucket, ReadPieces, elements_of, joined_by_beam
from pipelines.joins.work import JoinWork
from pipelines.runners.runner import RunnerOptions, run_pipeline
from tests.warehouse.joins.scenes import clicks, events, write_tables, written
from tests.warehouse.joins.test_refresh import CLICKS, check_counts, model
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model
from warehouse.changes.deletion import delete_rows
from warehouse.joins.computation import Computation
from warehouse.joins.refresh import JoinWorker

JOB = "0" * 32
COUNT = CLICKS.count(window="50m")
EXPRESSIONS = (
    COUNT.log1p(),
    CLICKS.latest(hr.text("country")).hash_buckets(9),
    CLICKS.last(3, hr.float64("paid"), window="2h"),
    CLICKS.decayed(hr.float64("paid"), half_life="20m") * 2.0,
    hr.table("clicks").by(hr.text("country"), equals=hr.int64("user").lookup({0: "de", 1: "fr"})).count() * 1.0,
)


@pytest.fixture
def home(tmp_path: Path) -> str:
    folders = write_tables(tmp_path)
    skewed = {**clicks(1, 60, seed=900), "id": pa.array([4] * 60, pa.int64())}
    written(folders.clicks, 1, skewed, "skewed.parquet")
    nulls = events(2, 6)
    nulls["user"] = pa.array([None, 1, None, 2, 3, 4], pa.int64())
    written(folders.log, 2, nulls, "nulls.parquet")
    found = str(tmp_path / "home")
    with Warehouse.open(WarehouseConfig(found, read_threads=1)) as warehouse:
        register_table(warehouse, "log", str(folders.log), time_column="at")
        register_table(warehouse, "clicks", str(folders.clicks), time_column="time")
        delete_rows(warehouse, "clicks", where=[("id", "2")])
        submit_model(warehouse, model(*EXPRESSIONS))
    return found


def compared(home: str, compute) -> int:
    """Compute by both ways and compare; returns how many computations there were."""
    done = []

    def both(work: Computation):
        expected, found = work.columns(), compute(work)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert found[name].type == values.type
            assert found[name].to_pylist() == values.to_pylist(), name
        done.append(work)
        return found

    with Warehouse.open(WarehouseConfig(home, read_threads=1)) as warehouse:
        worker = JoinWorker(warehouse, "w", compute=both)
        for step in iter(worker.step, None):
            assert not step.failed
        check_counts(warehouse, COUNT, 3_000)
        assert [file.path for file in warehouse.storage.list("jobs")] == []
    return len(done)


@pytest.mark.medium
@pytest.mark.parametrize("bucket_rows", [10**6, 20, 1])
def test_a_job_gives_what_a_worker_computes_alone(home, bucket_rows):
    assert compared(home, lambda work: joined_by_beam(work, RunnerOptions(), bucket_rows)) == 2


def test_steps_give_the_same_bits_in_any_order_and_again(home):
    """As on a runner whose machine dies after a step: parts come in another order, and twice from a step that is tried again."""

    def by_hand(work: Computation):
        draw = random.Random(3)
        found = {}
        text = JoinWork.of(work, 4).to_json()
        buckets: dict[str, list[bytes]] = {}
        for element in elements_of(work):
            first, again = (list(ReadPieces(text, JOB).process(element)) for _ in range(2))
            assert first == again
            for key, part in first:
                buckets.setdefault(key, []).append(part)
        values: dict[str, list[pa.Table]] = {}
        for key, parts in buckets.items():
            draw.shuffle(parts)
            for number, piece in JoinBucket(text, JOB).process((key, parts)):
                values.setdefault(number, []).append(join_job._table(piece))
        whole = [pa.concat_tables(values[number]).sort_by("@row") for number in sorted(values)]
        for name in work.definitions:
            found[name] = pa.concat_tables(whole)[name].combine_chunks()
        return found

    assert compared(home, by_hand) == 2


def test_a_key_with_most_rows_is_in_one_bucket_and_the_others_are_divided(home):
    sizes = []

    def counted(work: Computation):
        text, found = JoinWork.of(work, 8).to_json(), {}
        for element in elements_of(work):
            for key, part in ReadPieces(text, JOB).process(element):
                if part[:1] == b"r":
                    found[key] = found.get(key, 0) + join_job._table(part[1:]).num_rows
        sizes.append(sorted(found.values()))
        return work.columns()

    compared(home, counted)
    assert any(len(one) > 2 and one[-1] < sum(one) for one in sizes)


def test_a_fragment_without_a_result_is_an_error(home, monkeypatch):
    monkeypatch.setattr(join_job, "run_pipeline", lambda build, options: None)
    with pytest.raises(JoinJobFailed, match="must have a result"):
        compared(home, lambda work: joined_by_beam(work, RunnerOptions()))


def test_a_work_is_the_same_after_its_text(home):
    texts = []

    def kept(work: Computation):
        one = JoinWork.of(work, 3)
        texts.append((one.to_json(), JoinWork.from_json(one.to_json()).to_json()))
        assert JoinWork.from_json(one.to_json()).no_rows().num_rows == 0
        return work.columns()

    compared(home, kept)
    assert all(one == other for one, other in texts)
    assert np.all([len(one) for one, _ in texts])


def test_an_error_of_the_data_is_that_of_the_step_on_any_runner(home, monkeypatch):
    """A runner elsewhere reports that a job failed; why is in a document that the step has written."""

    def elsewhere(build, options):
        try:
            run_pipeline(build, options)
        except Exception as error:
            raise RunnerFailed("the runner failed to finish the job", value=str(error)) from error

    monkeypatch.setattr(join_job, "run_pipeline", elsewhere)
    folder = Path(home).parent / "clicks" / "date=2026-01-01" / "hour=01"
    (folder / "skewed.parquet").write_bytes((folder / "part.parquet").read_bytes())
    with Warehouse.open(WarehouseConfig(home, read_threads=1)) as warehouse:
        worker = JoinWorker(warehouse, "w", compute=lambda work: joined_by_beam(work, RunnerOptions()))
        failed = [error for step in iter(worker.step, None) for _, error in step.failed]
        assert all("the file changed since it was registered" in error for error in failed)
        assert failed
        assert [file.path for file in warehouse.storage.list("jobs")] == []


def no_machine(build, options):
    raise RunnerFailed("no machine is there")


def test_a_runner_that_fails_is_no_fault_of_the_columns(home, monkeypatch):
    monkeypatch.setattr(join_job, "run_pipeline", no_machine)
    with Warehouse.open(WarehouseConfig(home, read_threads=1)) as warehouse:
        worker = JoinWorker(warehouse, "w", compute=lambda work: joined_by_beam(work, RunnerOptions()))
        with pytest.raises(JoinJobFailed, match="no machine is there"):
            worker.step()
        for step in iter(JoinWorker(warehouse, "other").step, None):
            assert not step.failed
        check_counts(warehouse, COUNT, 3_000)
