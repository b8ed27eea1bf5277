"""Links applied to a SavedModel give the variables of the next commit's export, bit for bit; tombstones give initial rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.checkpoints.test_manifest import every_change
from tests.trainer.serving.deltas.histories import content, history, run_files
from tests.trainer.serving.deltas.small_saved_model import (
    ROWS,
    document_of,
    expected_variables,
    variables_of,
    write_saved_model,
)
from trainer.errors import LinkRefused, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.serving.apply_chain import SAVED_MODEL, apply_chain
from trainer.serving.deltas.export_links import export_delta, export_full
from trainer.serving.saved_model_document import EXTRA
from trainer.serving.served_model import ServedModel
from transforms.errors import InputError, StorageError

tf = pytest.importorskip("tensorflow")

COMMITS = history(40, 4, rows=80, most_id=ROWS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chains of full and delta links, exact and quantized, and ``saved``, the SavedModel of the first commit."""
    folder = tmp_path_factory.mktemp("served")
    for epochs in range(1, 5):
        COMMITS.commit(folder / "run", epochs)
        for quantize in ("none", "int8"):
            export = export_full if epochs == 1 else export_delta
            found = export(run_files(folder / "run"), folder / quantize, quantize=quantize, window_bytes=256)
            if epochs == 1:
                first = found
    write_saved_model(folder / "saved", COMMITS, 1, first.manifest.commit.sha256)
    return folder


@pytest.fixture
def target(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder / "saved", tmp_path / "models" / "1")
    return tmp_path / "models" / "1"


def assert_at(saved: Path, epochs: int) -> None:
    expected = {name: array.tobytes() for name, array in expected_variables(COMMITS, epochs).items()}
    assert variables_of(saved) == expected
    served = tf.saved_model.load(str(saved))
    ids = np.arange(ROWS)
    (answer,) = served.signatures["serving_default"](ids=tf.constant(ids)).values()
    tables = [array for name, array in expected_variables(COMMITS, epochs).items() if not name.startswith("dense")]
    dense = expected_variables(COMMITS, epochs)["dense/weights/000"]
    np.testing.assert_allclose(answer, sum(one.sum(axis=1) for one in tables) + dense.sum() + 1.0, rtol=1e-4, atol=1e-4)
    document = json.loads((saved / EXTRA).read_text(encoding="utf-8"))
    assert document["checkpoint"] == f"epoch-{epochs:06d}"
    assert document["model"] == "small"


def test_links_one_by_one_and_at_once_give_the_variables_of_each_commit(folder, target):
    assert_at(target, 1)
    removed = 0
    for number in (1, 2, 3):
        done = apply_chain(folder / "none", target, until=number, window_bytes=300)
        assert [one.manifest.number for one in done.links] == [number]
        assert done.kind == SAVED_MODEL
        removed += sum(table.removed for table in done.links[0].manifest.tables)
        assert_at(target, number + 1)
        before = content(target)
        assert apply_chain(folder / "none", target, until=number).links == ()
        assert content(target) == before
    assert removed > 20
    shutil.copytree(folder / "saved", target.with_name("2"))
    assert len(apply_chain(folder / "none", target.with_name("2")).links) == 3
    assert variables_of(target) == variables_of(target.with_name("2"))
    assert sorted(path.name for path in target.parent.iterdir()) == [".1.lock", ".2.lock", "1", "2"]


def test_a_new_folder_takes_the_result_and_the_target_stays(folder, target):
    before = content(target)
    done = apply_chain(folder / "none", target, output=target.with_name("2"))
    assert done.place == target.with_name("2")
    assert content(target) == before
    assert_at(target.with_name("2"), 4)
    with pytest.raises(InputError, match="must be a new folder"):
        apply_chain(folder / "none", target, output=target.with_name("2"))


def test_a_quantized_chain_starts_from_its_full_snapshot(folder, target):
    done = apply_chain(folder / "int8", target, until=1)
    assert [one.manifest.number for one in done.links] == [0, 1]
    assert [one.manifest.number for one in apply_chain(folder / "int8", target).links] == [2, 3]
    shutil.copytree(folder / "saved", target.with_name("2"))
    apply_chain(folder / "int8", target.with_name("2"))
    assert variables_of(target) == variables_of(target.with_name("2"))
    expected = expected_variables(COMMITS, 4)
    for name, data in variables_of(target).items():
        found = np.frombuffer(data, expected[name].dtype).reshape(expected[name].shape)
        levels = 2 / 15 if "words" in name else 0.0  # a weight may round to the other level of a simulated quantization
        assert np.abs(found - expected[name]).max() <= 0.02 + levels


def test_links_that_do_not_fit_are_refused_and_nothing_changes(folder, target, tmp_path):
    document = json.loads((target / EXTRA).read_text(encoding="utf-8"))
    cases = [
        ({"model": "b" * 64}, LinkRefused, "model of the state"),
        ({"tables": document["served"]["tables"][:2]}, LinkRefused, "tables and dense arrays of the SavedModel"),
        ({"dense": ["weights/000"]}, LinkRefused, "tables and dense arrays of the SavedModel"),
        ({"tables": [{**one, "rows": 7} for one in document["served"]["tables"]]}, LinkRefused, "must have the shapes"),
        ({"tables": 3}, TornCheckpoint, "must be a list"),
        ({"commit": "x"}, TornCheckpoint, "must be 64 hexadecimal digits"),
        ({"seed": -1}, TornCheckpoint, "must be a whole number from 0"),
    ]
    for change, error, rule in cases:
        (target / EXTRA).write_text(json.dumps({**document, "served": {**document["served"], **change}}))
        before = content(target)
        with pytest.raises(error, match=rule):
            apply_chain(folder / "none", target)
        assert content(target) == before
    del document["served"]
    (target / EXTRA).write_text(json.dumps(document))
    with pytest.raises(LinkRefused, match="trained model that this release exported"):
        apply_chain(folder / "none", target)
    (target / EXTRA).unlink()
    with pytest.raises(TornCheckpoint, match="description of its export"):
        apply_chain(folder / "none", target)


def test_ids_beyond_the_tables_are_refused(folder, target, tmp_path):
    wide = history(41, 2, most_id=10**6)
    wide.commit(tmp_path / "run", 1)
    export_full(run_files(tmp_path / "run"), tmp_path / "chain")
    before = content(target)
    with pytest.raises(LinkRefused, match="must be rows of the table"):
        apply_chain(tmp_path / "chain", target)
    assert content(target) == before


def test_damaged_variables_and_links_are_named_and_nothing_changes(folder, target, tmp_path):
    shutil.copytree(folder / "none", tmp_path / "chain")
    (path,) = (tmp_path / "chain").glob("000001-*/table-0000.values")
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    before = content(target)
    with pytest.raises(TornCheckpoint, match="must have the bytes"):
        apply_chain(tmp_path / "chain", target)
    assert content(target) == before
    (data,) = (target / "variables").glob("variables.data*")
    data.write_bytes(b"\0" * data.stat().st_size)
    with pytest.raises(TornCheckpoint, match="variables of a SavedModel"):
        apply_chain(folder / "none", target)
    assert sorted(path.name for path in target.parent.iterdir()) == [".1.lock", "1"]


def test_a_file_system_that_cannot_exchange_folders_is_named(folder, target, monkeypatch):
    before = content(target)
    monkeypatch.setattr("trainer.serving.exchange._RENAME_EXCHANGE", 1 << 20)
    with pytest.raises(StorageError, match="must exchange two folders at once"):
        apply_chain(folder / "none", target)
    assert content(target) == before
    assert sorted(path.name for path in target.parent.iterdir()) == [".1.lock", "1"]


def test_the_description_round_trips_and_other_values_are_torn():
    document = document_of(COMMITS, 2, "c" * 64)["served"]
    read = ServedModel.read(DocumentField(json.loads(json.dumps(document)), "served"))
    assert read.to_document() == document
    made = torn = 0
    for other in every_change(document):
        made += 1
        try:
            ServedModel.read(DocumentField(other, "served"))
        except TornCheckpoint:
            torn += 1
    assert torn > 0.6 * made > 100
