"""The wheel in an empty environment, in the folder of a project that has packages of the same names."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from tests.headrace.conftest import UNTRIED
from tests.support.installed_wheel import InstalledWheel
from transforms.installation import PARTS

pytestmark = pytest.mark.wheel

MODEL = """
import pyarrow as pa

import headrace as hr
from headrace.transforms.time_range import TimeRange
from trainer import networks


@hr.op(result="int64")
def twice(values: pa.Array) -> pa.Array:
    return pa.array([None if value is None else 2 * value for value in values.to_pylist()], pa.int64())


model = hr.Model("coupons", client="shop", label="bought", table="coupons")
model.input("coupon", hr.text("coupon").hash_buckets(200))
model.input("genre", hr.text("genre").lower().hash_buckets(50))
model.input("price", hr.int64("price").cast("float32").log1p())
# TensorFlow cannot compute a Python function, so this one is not trained and exported.
functions = hr.Model("functions", client="shop", label="bought", table="coupons")
functions.input("twice", twice(hr.int64("price")).fill_null(0).cast("float32").log1p())
assert networks.build and TimeRange
"""
OPTIONS = {
    **UNTRIED,
    "deep": True,
    "network": "trainer.networks:build",
    "batch_rows": 64,
    "dim": 4,
    "passes": 1,
    "embedding_learning_rate": 0.05,
    "dense_learning_rate": 0.01,
}
#: Bundles of functions that reach objects of Headrace, and so name its modules.
FINGERPRINTS = """
import json, sys
import pyarrow as pa
import headrace as hr
from headrace.transforms import time_range
from headrace.transforms.types import DType
from headrace.trainer.model.user_functions import _digest_of


@hr.op(result="int64")
def counted(values: pa.Array) -> pa.Array:
    return pa.array([len(DType) + len(time_range.TimeRange.__mro__) for value in values.to_pylist()], pa.int64())


model = hr.Model("m", client="c", label="y")
model.input("counted", counted(hr.int64("x")))
model.input("words", hr.text("q").unigrams().hash_buckets(100))
found = {name: item.fingerprint for name, item in model.inputs.items()}
found["digest"] = _digest_of(counted.function, "m:counted")
print(json.dumps([found, json.loads(counted.bundle)]))
"""


def test_it_has_one_package(wheel: InstalledWheel) -> None:
    with zipfile.ZipFile(wheel.wheel) as archive:
        names = archive.namelist()
        (top_level,) = [name for name in names if name.endswith("/top_level.txt")]
        assert archive.read(top_level).split() == [b"headrace"]
        (points,) = [name for name in names if name.endswith("/entry_points.txt")]
        assert b"headrace.pipelines.runners.process_worker:main" in archive.read(points)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"headrace"}
    tree = {str(path.relative_to(ROOT)) for part in (*PARTS, "headrace") for path in (ROOT / part).rglob("*.py")}
    expected = {name if name.startswith("headrace/") else f"headrace/{name}" for name in tree}
    assert {name for name in names if name.endswith(".py")} == expected
    data = (
        "py.typed",
        "transforms/operators/public_suffix_list.dat",
        "trainer/tpu_check/lowering.txt",
        "web/templates/base.html",
        "web/static/style.css",
    )
    assert {f"headrace/{name}" for name in data} < set(names)


def test_every_module_is_imported_and_none_of_the_project(wheel: InstalledWheel, project: Path) -> None:
    program = (
        "import headrace, importlib, pkgutil, sys\n"
        "left_out = {'headrace.__main__', 'headrace.warehouse.catalog.migrations.env', 'headrace.trainer.tpu_check.compile',\n"
        "            'headrace.loaders.torch_dataset'}\n"  # PyTorch has an environment of its own
        "found = [each.name for each in pkgutil.walk_packages(headrace.__path__, 'headrace.') if each.name not in left_out]\n"
        "for name in found: importlib.import_module(name)\n"
        "print(len(found), sorted(set(sys.modules) & {'transforms', 'warehouse', 'pipelines', 'trainer'}))"
    )
    done = wheel.run("-c", program, cwd=project)
    assert done.returncode == 0, done.stderr
    count, _, others = done.stdout.partition(" ")
    assert int(count) > 1000
    assert others.strip() == "[]"


def test_fingerprints_are_those_of_a_checkout(wheel: InstalledWheel, project: Path, tmp_path: Path) -> None:
    file = tmp_path / "fingerprints.py"
    file.write_text(FINGERPRINTS, encoding="utf-8")
    ours = subprocess.run([sys.executable, str(file)], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)  # fmt: skip
    assert ours.returncode == 0, ours.stderr
    theirs = wheel.run(str(file), cwd=project)
    assert theirs.returncode == 0, theirs.stderr
    assert json.loads(theirs.stdout) == json.loads(ours.stdout)
    assert "transforms.types" in ours.stdout
    assert "headrace.transforms" not in theirs.stdout


PACK = """
import sys
from pathlib import Path
from headrace.pipelines.staging.own_wheel import own_metadata, source_folder, write_wheel
print(write_wheel(Path(sys.argv[1]), source_folder(), own_metadata(source_folder())))
"""


def test_it_packs_itself_for_remote_workers(wheel: InstalledWheel, project: Path) -> None:
    """With the names by which Beam pickles its functions."""
    done = wheel.run("-c", PACK, str(project), cwd=project)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(done.stdout.strip()) as packed, zipfile.ZipFile(wheel.wheel) as archive:
        names = {name for name in packed.namelist() if name.endswith(".py")}
        assert names == {name for name in archive.namelist() if name.endswith(".py")}
        assert all(packed.read(name) == archive.read(name) for name in names)
        (top_level,) = [name for name in packed.namelist() if name.endswith("/top_level.txt")]
        assert packed.read(top_level).split() == [b"headrace"]


def write_log(folder: Path, rows: int) -> None:
    """Three days of events, in the layout that ``table add`` registers."""
    random = np.random.default_rng(7)
    for day in (2, 3, 4):
        place = folder / f"date=2026-03-{day:02d}"
        place.mkdir(parents=True)
        begin = datetime(2026, 3, day, tzinfo=UTC)
        times = [begin + timedelta(seconds=int(secs)) for secs in np.sort(random.integers(0, 86_400, rows))]
        columns = {
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "coupon": [f"c{number}" for number in random.integers(0, 80, rows)],
            "genre": [f"Genre {number}" for number in random.integers(0, 5, rows)],
            "price": random.integers(1, 1_000, rows),
            "bought": random.integers(0, 2, rows),
        }
        pq.write_table(pa.table(columns), place / "part.parquet")


@pytest.mark.timeout(1800)
def test_a_project_is_submitted_computed_trained_exported_and_scored(wheel: InstalledWheel, project: Path) -> None:
    """With a network, and two hosts, that import the project's ``trainer``."""
    write_log(project / "log", rows=600)
    (project / "coupons.py").write_text(MODEL, encoding="utf-8")
    (project / "options.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    command = wheel.headrace
    command("table", "add", "coupons", "log", "--time-column", "time", cwd=project)
    command("model", "submit", "coupons.py", cwd=project)
    command("work", "--until-idle", cwd=project)
    assert set(command("status", cwd=project)["memos"]) == {"READY"}
    training = ("--end", "2026-03-04", "--config", "options.json", "--hosts", "2", "--readers", "1")
    trained = command("train", "coupons", *training, cwd=project)
    assert (trained["finished"], trained["exact"], trained["counted"]) == (True, True, 1_200)
    run = str(project / "home" / "runs" / "coupons-v1")
    command("predict", "coupons", "--start", "2026-03-04", "--end", "2026-03-05", "--output", "scores", cwd=project)
    scores = pq.ParquetDataset(project / "scores").read()
    assert scores.num_rows == 600
    command("model", "export", "coupons", "--trained", run, "--output", "served", cwd=project)
    assert list((project / "served").rglob("saved_model.pb"))
