"""Deltas applied to a SavedModel give the predictions of the next commit's SavedModel, bit for bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.headrace.test_export import tensors_of
from tests.headrace.test_trained_export import MODELS, OPTIONS
from transforms.columns.columns import cast_to_layout
from transforms.graphs.graph import raw_columns

tf = pytest.importorskip("tensorflow")

EXTRA = "assets.extra/headrace.json"


PRUNED = {"pruning": {"budget": 0.2, "round_steps": 2}, "embeddings": ""}


#: The last commit but one has fitted the map, the one before has not.
CALIBRATED = {"calibration": "isotonic", "held_out_share": 0.2}


@pytest.fixture(params=["whole", "pruned", "calibrated"])
def served(cli: Callable[..., Any], small_log: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A run of several epochs, and the SavedModels of three of its commits: ``epoch-NNNNNN/1`` in the folder."""
    more = {"whole": {}, "pruned": PRUNED, "calibrated": CALIBRATED}[request.param]
    return _served(cli, small_log, tmp_path, "binary", more)


def _served(cli: Callable[..., Any], small_log: Path, folder: Path, name: str, more: dict[str, Any]) -> Path:
    (folder / "models.py").write_text(MODELS, encoding="utf-8")
    options = {**OPTIONS, "network": "dlrm", "keep_checkpoints": 9, "partitions_per_epoch": 1, **more}
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", folder / "models.py")
    cli("train", name, "--config", folder / "options.json", "--run-dir", folder / "run")
    commits = sorted((folder / "run" / "checkpoints").glob("epoch-*"))
    for newest in commits[-3:]:
        run = folder / f"run-{newest.name}"
        shutil.copytree(folder / "run", run)
        for later in commits[commits.index(newest) + 1 :]:
            shutil.rmtree(run / "checkpoints" / later.name)
        cli("model", "export", name, "--output", folder / newest.name, "--trained", run)
    return folder


def request_of(folder: Path, small_log: Path, name: str = "binary") -> dict[str, Any]:
    """All events of the log as the tensors of a request."""
    from headrace.model_file import chosen_models

    raw = pq.read_table(small_log).sort_by("time")
    exported = next(folder.glob("epoch-*/1"))
    (model,) = chosen_models([str(folder / "models.py")], [name])
    columns = {column.name: column for item in model.inputs.values() for column in raw_columns(item.component)}
    request = {}
    for described in json.loads((exported / EXTRA).read_text(encoding="utf-8"))["columns"]:
        column = columns[described["column"]]
        request |= tensors_of(cast_to_layout(raw[column.name], column.type).combine_chunks(), described)
    return {key: tf.constant(value.tolist() if value.dtype == object else value) for key, value in request.items()}


def predictions(saved_model: Path, request: dict[str, Any]) -> bytes:
    served = tf.saved_model.load(str(saved_model)).signatures["serving_default"]
    found: bytes = served(**request)["prediction"].numpy().tobytes()
    return found


def variables(saved_model: Path) -> dict[str, bytes]:
    reader = tf.train.load_checkpoint(str(saved_model / "variables" / "variables"))
    names = reader.get_variable_to_shape_map()
    return {name: np.array(reader.get_tensor(name)).tobytes() for name in names if not name.startswith("_")}


@pytest.mark.slow
def test_a_delta_gives_the_predictions_of_the_next_commit_bit_for_bit(cli, served, small_log, tmp_path, request):
    """Also of a run whose tables are pruned, whose links have tombstones."""
    first, second, third = sorted(path.parent for path in served.glob("epoch-*/1"))
    epochs = [int(path.name.removeprefix("epoch-")) for path in (first, second, third)]
    events = request_of(served, small_log)
    expected = [predictions(path / "1", events) for path in (first, second, third)]
    assert len(set(expected)) == 3
    chain, target = tmp_path / "chain", tmp_path / "target" / "1"
    shutil.copytree(first / "1", target)
    delta = cli(
        "export", "delta", served / f"run-{second.name}", "--output", chain, "--since", epochs[0], "--json"
    ).json
    assert delta["number"] == 0
    assert 0 < sum(one["rows"] for one in delta["tables"]) < sum(one["rows_after"] for one in delta["tables"])
    assert (sum(one["removed"] for one in delta["tables"]) > 0) == ("pruned" in request.node.name)

    applied = cli("export", "apply", chain, "--to", target, "--json").json
    assert [one["number"] for one in applied["applied"]] == [0]
    assert predictions(target, events) == expected[1]
    assert variables(target) == variables(second / "1")
    assert cli("export", "apply", chain, "--to", target, "--json").json["applied"] == []

    cli("export", "delta", served / "run", "--output", chain)
    new = tmp_path / "target" / "2"
    cli("export", "apply", chain, "--to", target, "--output", new)
    assert predictions(new, events) == expected[2]
    assert predictions(target, events) == expected[1]
    document = json.loads((new / EXTRA).read_text(encoding="utf-8"))
    assert document["checkpoint"] == third.name
    assert document["served"]["link"]["number"] == 1
    both = tmp_path / "both" / "1"
    shutil.copytree(first / "1", both)
    cli("export", "apply", chain, "--to", both)
    assert variables(both) == variables(new) == variables(third / "1")
    assert "must be newer than the state" in cli("export", "apply", chain / "000000-delta", "--to", both, status=2).err
    assert sorted(path.name for path in both.parent.iterdir()) == [".1.lock", "1"]
