"""Artifacts on storage, analyses in the catalog, and models resolved by them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import FREE_READS, Clock, compute, events, model, write_log, write_partition
from transforms.analysis.full_pass import AnalysisResult, analyses
from transforms.errors import InputError, UnknownColumn
from transforms.expressions.model import Model
from transforms.ranges import between
from warehouse import collect_garbage, lease_tasks, read_fragment, read_solution, register_table, submit_model
from warehouse.catalog import schema
from warehouse.config import WarehouseConfig
from warehouse.errors import ArtifactDamaged, NotAnalyzed
from warehouse.files.artifacts import ArtifactSource, artifact_path, read_artifact, write_artifact
from warehouse.models.analyses import find_analysis, place, record_analysis, record_written, resolve_components
from warehouse.models.pinned_analyses import pinned_analyses, prepare_analyses
from warehouse.storage.storage import Storage
from warehouse.warehouse import Warehouse

MORNING = between("2026-01-01T00:00", "2026-01-01T02:00")
TERMS = pa.array(["red", "blue", "Shoe"])


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    opened = Warehouse.open(WarehouseConfig(str(tmp_path / "home"), rates=FREE_READS), Clock())
    register_table(opened, "log", str(write_log(tmp_path / "log")))
    return opened


def vocabulary_model(over: object = MORNING) -> Model:
    made = Model("ctr", client="search", label="clicked", table="log")
    made.input("words", hr.text("query").unigrams().vocabulary_ids(oov_buckets=2, over=over))  # type: ignore[arg-type]
    return made


def number_model() -> Model:
    made = Model("ctr", client="search", label="clicked", table="log")
    made.input("z", hr.float32("price").z_score(over=MORNING))
    return made


def learn(warehouse: Warehouse, made: Model, values: pa.Array = TERMS) -> str:
    """Record what an analysis would have found, for the one operator that waits."""
    (missing,) = resolve_components(warehouse, {i.name: i.component for i in made.inputs.values()}, "log").missing
    digest = write_artifact(warehouse.storage, values)
    with warehouse.catalog.write() as connection:
        record_analysis(connection, missing, digest, 1.5, warehouse.clock())
    return digest


def test_an_artifact_that_is_collected_before_it_is_named_is_not_recorded(warehouse: Warehouse, log: Path) -> None:
    """One that lies there unnamed is not written again, so a collection may take it just before its analysis is recorded."""
    made = vocabulary_model()
    (missing,) = resolve_components(warehouse, {i.name: i.component for i in made.inputs.values()}, "log").missing
    digest = write_artifact(warehouse.storage, TERMS)
    assert [one.kind for one in collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9).garbage] == ["artifacts"]
    with warehouse.catalog.write() as connection:
        assert not record_written(connection, warehouse.storage, missing, digest, 1.5, warehouse.clock())
        assert find_analysis(connection, warehouse.storage, missing.key) is None
    assert write_artifact(warehouse.storage, TERMS) == digest
    with warehouse.catalog.write() as connection:
        assert record_written(connection, warehouse.storage, missing, digest, 1.5, warehouse.clock())
    assert collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9).garbage == ()


def test_an_artifact_proves_itself_and_equal_ones_are_one_file(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    digest = write_artifact(storage, TERMS)
    assert write_artifact(storage, pa.array(["x", *TERMS.to_pylist()]).slice(1)) == digest
    assert read_artifact(storage, digest).equals(TERMS)
    assert [file.path for file in storage.list(str(tmp_path))] == [f"{tmp_path}/{artifact_path(digest)}"]


def test_a_damaged_artifact_is_noticed_and_written_again(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    digest = write_artifact(storage, TERMS)
    other = write_artifact(storage, pa.array(["other"]))
    file = tmp_path / artifact_path(digest)
    for bytes_of in (b"", b"no arrow", (tmp_path / artifact_path(other)).read_bytes()):
        file.write_bytes(bytes_of)
        with pytest.raises(ArtifactDamaged):
            read_artifact(storage, digest)
    assert write_artifact(storage, TERMS) == digest
    assert read_artifact(storage, digest).equals(TERMS)


def test_an_artifact_is_never_empty_and_never_null(tmp_path: Path) -> None:
    for values in (pa.array([], pa.string()), pa.array(["a", None])):
        with pytest.raises(InputError):
            write_artifact(Storage(str(tmp_path)), values)


def test_the_source_travels_and_keeps_what_it_read(tmp_path: Path) -> None:
    digest = write_artifact(Storage(str(tmp_path)), TERMS)
    source = pickle.loads(pickle.dumps(ArtifactSource(str(tmp_path))))
    assert source(digest).equals(TERMS)
    (tmp_path / artifact_path(digest)).unlink()
    assert source(digest).equals(TERMS)


def test_a_model_without_its_analysis_is_refused_with_the_next_step(warehouse: Warehouse) -> None:
    with pytest.raises(NotAnalyzed) as caught:
        submit_model(warehouse, vocabulary_model())
    assert "vocabulary_ids(unigrams(query)) over 2026-01-01 .. 2026-01-01T02:00:00Z" in str(caught.value.value)
    assert "headrace analyze" in caught.value.next_step


def test_a_known_analysis_resolves_without_a_word(warehouse: Warehouse) -> None:
    digest = learn(warehouse, vocabulary_model())
    submitted = submit_model(warehouse, vocabulary_model())
    assert submitted.queued == 3
    assert submit_model(warehouse, vocabulary_model()).unchanged
    (item,) = read_solution(warehouse, submitted.model).inputs
    assert item.type.buckets == 5
    assert any(node.get("artifact") == digest for node in item.component["nodes"])


def test_memos_and_what_is_computed_on_the_spot_agree(warehouse: Warehouse) -> None:
    learn(warehouse, vocabulary_model())
    before = read_solution(warehouse, submit_model(warehouse, vocabulary_model()).model)
    (first, *_) = (fragment for partition in before.partitions for fragment in partition.fragments)
    on_the_spot = read_fragment(warehouse.storage, before, first).column("words")
    words = [(text or "").split() for text in events(20, seed=0)["query"].to_pylist()]
    known = [[TERMS.to_pylist().index(word) for word in row if word in TERMS.to_pylist()] for row in words]
    assert [[i for i in row if i < 3] for row in on_the_spot.to_pylist()] == known


def test_other_data_in_the_range_asks_again_and_outside_it_does_not(warehouse: Warehouse, tmp_path: Path) -> None:
    learn(warehouse, vocabulary_model())
    write_partition(tmp_path / "log", 2, events(20, seed=99))
    register_table(warehouse, "log", str(tmp_path / "log"))
    assert submit_model(warehouse, vocabulary_model()).queued == 3
    write_partition(tmp_path / "log", 1, events(20, seed=1, price=pa.array([1.0] * 20, pa.float32())))
    register_table(warehouse, "log", str(tmp_path / "log"))
    submit_model(warehouse, vocabulary_model())  # another column changed, not the one that is analyzed
    write_partition(tmp_path / "log", 1, events(20, seed=77))
    register_table(warehouse, "log", str(tmp_path / "log"))
    assert resolve_components(warehouse, {"words": vocabulary_model().inputs["words"].component}, "log").missing
    kept = submit_model(warehouse, vocabulary_model())
    assert (kept.unchanged, [one.is_current for one in kept.analyses]) == (True, [False])
    with pytest.raises(NotAnalyzed):
        submit_model(warehouse, vocabulary_model(between("2026-01-01T00:00", "2026-01-01T03:00")))


def test_a_pinned_artifact_stays_when_nothing_else_names_it(warehouse: Warehouse) -> None:
    digest = learn(warehouse, number_model(), pa.array([0.5, 2.0]))
    submit_model(warehouse, number_model())
    with warehouse.catalog.write() as connection:
        connection.execute(schema.analyses.delete())
    collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9)
    assert submit_model(warehouse, number_model()).unchanged
    with warehouse.catalog.read() as connection:
        assert [one.artifact for one in pinned_analyses(connection, "ctr").values()] == [digest]


def test_what_is_prepared_is_for_the_next_version_and_versions_keep_theirs(warehouse: Warehouse) -> None:
    learn(warehouse, number_model(), pa.array([0.5, 2.0]))
    submit_model(warehouse, number_model())
    other = write_artifact(warehouse.storage, pa.array([1.5, 2.0]))
    with warehouse.catalog.write() as connection:
        (before,) = pinned_analyses(connection, "ctr").values()
        prepare_analyses(connection, "ctr", [replace(before, artifact=other)])
    assert submit_model(warehouse, number_model()).version == 2
    assert submit_model(warehouse, number_model()).unchanged
    with warehouse.catalog.read() as connection:
        found = [[one.artifact for one in pinned_analyses(connection, "ctr", version).values()] for version in (1, 2)]
    assert found == [[before.artifact], [other]]


def test_partitions_outside_the_range_do_not_count(warehouse: Warehouse) -> None:
    (analysis,) = analyses([vocabulary_model().inputs["words"].component])
    with warehouse.catalog.read() as connection:
        placed = place(connection, "log", analysis)
    assert [one.partition for one in placed.partitions] == ["date=2026-01-01/hour=00", "date=2026-01-01/hour=01"]
    assert (placed.rows, placed.columns) == (40, ("query",))


def test_a_range_without_partitions_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(InputError) as caught:
        submit_model(warehouse, vocabulary_model(between("2027-01-01", "2027-01-02")))
    assert caught.value.allowed == "date=2026-01-01/hour=00 to date=2026-01-01/hour=02"


def test_a_wrong_model_is_an_error_before_its_missing_analysis(warehouse: Warehouse) -> None:
    made = Model("ctr", client="search", label="clicked", table="log")
    made.input("x", hr.text("querry").vocabulary_ids(over=MORNING))
    with pytest.raises(UnknownColumn):
        submit_model(warehouse, made)


def test_an_analysis_whose_artifact_is_lost_is_unknown(warehouse: Warehouse) -> None:
    digest = learn(warehouse, vocabulary_model())
    warehouse.storage.delete(artifact_path(digest))
    with pytest.raises(NotAnalyzed):
        submit_model(warehouse, vocabulary_model())
    assert learn(warehouse, vocabulary_model()) == digest
    assert submit_model(warehouse, vocabulary_model()).queued == 3


def test_numbers_round_trip_exactly(warehouse: Warehouse) -> None:
    made = Model("ctr", client="search", label="clicked", table="log")
    made.input("z", hr.float32("price").z_score(over=MORNING))
    digest = learn(warehouse, made, pa.array([0.1, 1 / 3]))
    (analysis,) = analyses([made.inputs["z"].component])
    with warehouse.catalog.read() as connection:
        found = find_analysis(connection, warehouse.storage, place(connection, "log", analysis).key)
    assert found == AnalysisResult(digest, 2, (0.1, 1 / 3))


def test_garbage_collection_leaves_artifacts(warehouse: Warehouse) -> None:
    digest = learn(warehouse, vocabulary_model())
    submit_model(warehouse, vocabulary_model())
    submit_model(warehouse, model("other"))
    done = 0
    for task in lease_tasks(warehouse, "w", limit=100):
        done += "artifact" not in str(task.component) and bool(compute(warehouse, task))
    assert done
    collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9)
    assert read_artifact(warehouse.storage, digest).equals(TERMS)
    assert read_solution(warehouse, "ctr").rows == 60
