from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.fragments.run import PlanCache, memoize_fragment
from pipelines.fragments.work import (
    ComponentList,
    ComponentOutcome,
    FragmentResult,
    FragmentWork,
    PhaseSecs,
    WantedComponent,
)
from pipelines.memoize.pipeline import NAMESPACE, STEPS, build, run_memoize
from pipelines.runners.runner import RunnerOptions, counters, pipeline_options
from pipelines.worker.job_committer import group_by_fragment
from tests.pipelines.scenes import fill, model, open_home, write_log
from transforms.errors import DataError, StorageError
from transforms.execution.operator_costs import OperatorWork
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import component_from_document
from transforms.operators import REGISTRY
from warehouse.files.column_files import NewFile
from warehouse.files.memo_file import read_memo_file
from warehouse.queue.failures import Failure
from warehouse.queue.lease import lease_tasks
from warehouse.storage.storage import Storage

ONE_THREAD = RunnerOptions(workers=1)


def leased_works(tmp_path: Path, hours: int = 1) -> list[FragmentWork]:
    with open_home(tmp_path / "home") as warehouse:
        fill(warehouse, write_log(tmp_path / "log", hours))
        tasks = lease_tasks(warehouse, "test", limit=10_000)
    return [work for work, _ in group_by_fragment(tasks).values()]


def failures(result: FragmentResult) -> list[Failure]:
    return [outcome.failure for outcome in result.outcomes if outcome.failure is not None]


def with_version_99(work: FragmentWork, which: int) -> FragmentWork:
    """``work`` with one component made by some other release."""
    wanted = work.components[which]
    text = json.dumps(wanted.component).replace('"version": 1', '"version": 99')
    assert text != json.dumps(wanted.component)
    components = list(work.components)
    components[which] = wanted._replace(column="f" * 64, component=json.loads(text))
    return replace(work, components=tuple(components))


def test_a_fragments_components_are_written_as_columns_of_one_file(tmp_path: Path) -> None:
    (work,) = leased_works(tmp_path)
    storage = Storage(str(tmp_path / "home"))
    result = memoize_fragment(storage, work, PlanCache())
    assert result.rows == 50
    assert [outcome.failure for outcome in result.outcomes] == [None] * 4
    (file,) = result.files
    columns = read_memo_file(storage, work.output, [o.column for o in result.outcomes], file.checksum)
    raw = pq.read_table(work.fragment.path)
    for wanted in work.components:
        alone = compile_plan({"it": component_from_document(dict(wanted.component))}).run(raw)
        assert columns[wanted.column].equals(alone.columns["it"])
    assert all(outcome.rows == 50 and outcome.secs > 0 for outcome in result.outcomes)
    assert (tmp_path / "home" / work.output).stat().st_size == sum(outcome.size_bytes for outcome in result.outcomes)


def test_only_the_columns_that_are_needed_are_read(tmp_path: Path) -> None:
    (work,) = leased_works(tmp_path)
    raw = pq.read_table(work.fragment.path)
    all_of_it = memoize_fragment(Storage(str(tmp_path / "home")), work, PlanCache())
    assert all_of_it.raw_bytes_read == pytest.approx(raw.select(["query", "title", "price"]).nbytes, abs=64)
    price = next(c for c in work.components if "log1p" in json.dumps(c.component))
    only = memoize_fragment(Storage(str(tmp_path / "home")), replace(work, components=(price,)), PlanCache())
    assert only.raw_bytes_read == pytest.approx(raw.select(["price"]).nbytes, abs=64)


def test_equal_work_gives_equal_bytes(tmp_path: Path) -> None:
    (work,) = leased_works(tmp_path)
    for home in ("one", "two"):
        memoize_fragment(Storage(str(tmp_path / home)), work, PlanCache())
    assert (tmp_path / "one" / work.output).read_bytes() == (tmp_path / "two" / work.output).read_bytes()


def test_a_component_of_another_release_fails_alone(tmp_path: Path) -> None:
    (work,) = leased_works(tmp_path)
    storage = Storage(str(tmp_path / "home"))
    result = memoize_fragment(storage, with_version_99(work, 1), PlanCache())
    assert [outcome.failure is not None for outcome in result.outcomes] == [False, True, False, False]
    (failure,) = failures(result)
    assert (failure.kind, failure.is_untried) == ("release", True)
    assert all(said in failure.error for said in ("version 99'; allowed: version 1;", "unigrams"))
    assert "later release" in failure.error
    whole = memoize_fragment(storage, work, PlanCache())
    assert [o.checksum for o in result.outcomes if o.failure is None] == [
        o.checksum for at, o in enumerate(whole.outcomes) if at != 1
    ]


def test_an_operator_that_raises_fails_its_own_components_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work,) = leased_works(tmp_path)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setitem(REGISTRY._by_name, "log1p", replace(REGISTRY["log1p"], kernel=broken))
    result = memoize_fragment(Storage(str(tmp_path / "home")), work, PlanCache())
    (failure,) = failures(result)
    assert (failure.kind, failure.operator, failure.error) == ("raised", "log1p", "RuntimeError: out of luck")
    assert failure.expression.startswith("log1p(")
    assert len([outcome for outcome in result.outcomes if outcome.checksum]) == 3


def test_a_failure_says_where_and_why_on_its_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work,) = leased_works(tmp_path)

    def refusing(*_: object, **__: object) -> None:
        raise DataError("not as promised", where="row 3", value=(5, 2), allowed="equal lengths")

    monkeypatch.setitem(REGISTRY._by_name, "log1p", replace(REGISTRY["log1p"], kernel=refusing))
    result = memoize_fragment(Storage(str(tmp_path / "home")), work, PlanCache())
    (failure,) = failures(result)
    assert "\n" not in failure.message, "what a memo's cause keeps is the first line"
    assert (
        "DataError: not as promised; where: row 3; value: (5, 2); allowed: equal lengths in log1p(" in failure.message
    )


def test_a_raw_file_that_changed_fails_what_reads_the_changed_column(tmp_path: Path) -> None:
    (work,) = leased_works(tmp_path)
    path = Path(work.fragment.path)
    raw = pq.read_table(path)
    prices = pa.array([9.0] * 50, pa.float32())
    pq.write_table(raw.set_column(raw.schema.get_field_index("price"), "price", prices), path)
    result = memoize_fragment(Storage(str(tmp_path / "home")), work, PlanCache())
    (failure,) = failures(result)
    assert failure.kind == "data"
    assert "changed since it was registered" in failure.error
    assert "column price" in failure.error


@pytest.mark.parametrize(
    ("damage", "kind"), [("gone", "unreadable"), ("refused", "unreadable"), ("truncated", "data"), ("longer", "data")]
)
def test_a_missing_or_damaged_raw_file_fails_every_component_with_its_name(
    tmp_path: Path, damage: str, kind: str
) -> None:
    (work,) = leased_works(tmp_path)
    path = Path(work.fragment.path)
    if damage == "gone":
        path.unlink()
    elif damage == "refused":
        path.unlink()
        path.symlink_to(path)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:500])
    else:
        raw = pq.read_table(path)
        pq.write_table(pa.concat_tables([raw, raw]), path)
    result = memoize_fragment(Storage(str(tmp_path / "home")), work, PlanCache())
    assert [(failure.kind, str(path) in failure.error) for failure in failures(result)] == [(kind, True)] * 4
    assert result.files == ()
    assert not (tmp_path / "home" / work.output).exists()


@pytest.mark.slow
def test_plans_are_compiled_once_for_a_set_of_components(tmp_path: Path) -> None:
    works = leased_works(tmp_path, hours=3)
    plans = PlanCache(kept=1)
    for work in works:
        memoize_fragment(Storage(str(tmp_path / "home")), work, plans)
    assert plans.compiled == 1
    memoize_fragment(Storage(str(tmp_path / "home")), replace(works[0], components=works[0].components[:2]), plans)
    memoize_fragment(Storage(str(tmp_path / "home")), works[0], plans)
    assert plans.compiled == 3


def test_work_and_results_survive_their_journey(tmp_path: Path) -> None:
    (work,) = leased_works(tmp_path)
    assert FragmentWork.from_json(work.to_json()) == work
    assert isinstance(FragmentWork.from_json(work.to_json()).components[0], WantedComponent)
    listed = ComponentList()
    texts = [one.to_json(listed) for one in (with_version_99(work, 0), work)]
    documents = json.loads(listed.to_json())
    assert len(documents) == len(work.components) + 1
    assert [FragmentWork.from_json(text, documents) for text in texts] == [with_version_99(work, 0), work]
    failure = Failure("stalled", "took more than 60 s", "length", "length(query)", (3, 7), "c2FtcGxl")
    outcomes = (ComponentOutcome("k", "c", None, "s", 5, 10, 0.1, "memos/x"), ComponentOutcome("l", "d", failure))
    result = FragmentResult("f", "memos/x", (NewFile("memos/x", "0" * 64, 5, 10),), 5, 100, outcomes,
                            (OperatorWork("length", 1, 5, 0.25),), PhaseSecs(0.5, 0.25, 0.125))  # fmt: skip
    assert FragmentResult.from_document(json.loads(json.dumps(result.to_document()))) == result
    assert result.file_of(outcomes[0]).size_bytes == 10


@pytest.mark.medium
@pytest.mark.parametrize("workers", [1, 3])
def test_a_job_returns_a_result_for_every_fragment(tmp_path: Path, workers: int) -> None:
    works = leased_works(tmp_path, hours=3)
    results = run_memoize(works, str(tmp_path / "home"), "job", RunnerOptions(workers=workers))
    assert {result.output for result in results} == {work.output for work in works}
    assert all(outcome.failure is None for result in results for outcome in result.outcomes)
    assert run_memoize([], str(tmp_path / "home"), "nothing") == ()


def test_a_job_counts_what_it_did(tmp_path: Path) -> None:
    works = leased_works(tmp_path, hours=2)
    works[0] = with_version_99(works[0], 0)
    pipeline = beam.Pipeline(options=pipeline_options(ONE_THREAD))
    build(pipeline, works, str(tmp_path / "home"), "job")
    result = pipeline.run()
    result.wait_until_finish()
    counted = counters(result, NAMESPACE)
    assert (counted["fragments"], counted["rows"], counted["memos"], counted["components_failed"]) == (2, 100, 7, 1)
    assert counted["raw_bytes_read"] > 0


def test_a_component_travels_once_however_many_fragments_there_are(tmp_path: Path) -> None:
    (work,) = leased_works(tmp_path)
    works = [replace(work, output=f"{work.output}{number}") for number in range(20)]
    listed = ComponentList()
    texts = [one.to_json(listed) for one in works]
    assert [text.count('"op"') for text in texts] == [0] * 20
    alone = ComponentList()
    work.to_json(alone)
    assert listed.to_json() == alone.to_json()
    sizes = []
    for count in (1, 20):
        pipeline = beam.Pipeline(options=pipeline_options(ONE_THREAD))
        build(pipeline, works[:count], str(tmp_path / "home"), "job")
        sizes.append(len(pipeline.to_runner_api().SerializeToString()))
    assert sizes[1] - sizes[0] < 19 * len(work.to_json())


def test_step_names_are_a_contract() -> None:
    pipeline = beam.Pipeline(options=pipeline_options(ONE_THREAD))
    build(pipeline, [], "home", "job")
    assert tuple(step.full_label for step in pipeline._root_transform().parts) == STEPS


def test_a_disk_that_refuses_is_one_error_where_the_job_was_started(tmp_path: Path) -> None:
    works = leased_works(tmp_path, hours=2)
    (tmp_path / "home" / "memos").write_text("a file where the folder should be")
    with pytest.raises(StorageError) as caught:
        run_memoize(works, str(tmp_path / "home"), "job", ONE_THREAD)
    assert "memos" in caught.value.where


def test_models_of_two_clients_share_what_they_share(tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as warehouse:
        first = fill(warehouse, write_log(tmp_path / "log"), model())
        assert first == 12
        assert fill(warehouse, tmp_path / "log", model("shop", "shopping")) == 0
        assert fill(warehouse, tmp_path / "log", model("wide", "shopping", buckets=200)) == 9
