"""Every public name of ``headrace`` has an example, and each is true."""

from __future__ import annotations

import builtins
import doctest
import gc
import inspect
from datetime import datetime, timedelta

import pytest

import headrace as hr
from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import SMALL, UNTRIED

#: Those whose examples run TensorFlow.
OF_TENSORFLOW = ("from_preprocessing_fn", "from_transform_output")
#: Those whose examples run in the environment of PyTorch and JAX: tests/torch.
OF_FRAMEWORKS = ("torch", "jax")
METHODS = tuple(name for name, _ in inspect.getmembers(hr.Home, inspect.isfunction) if name[0] != "_")
#: Methods that are shown by the examples of others.
SHOWN_ELSEWHERE = ("close",)

TRANSFORM = """
import sys
import apache_beam as beam
import tensorflow as tf
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec({"query": tf.io.FixedLenFeature([], tf.string)}))
function = lambda inputs: {"shout": tf.strings.upper(inputs["query"])}
with tft_beam.Context(temp_dir=sys.argv[1] + "/temp"):
    _, graph = ([{"query": "red"}], metadata) | tft_beam.AnalyzeAndTransformDataset(function)
    graph | tft_beam.WriteTransformFn(sys.argv[1] + "/out")
"""


def check(value, name, names):
    finder, failures = doctest.DocTestFinder(recurse=False), []
    found = [one for one in finder.find(value, name, globs=names, module=False) if one.examples]
    assert found, f"{name} has no example"
    for one in found:
        doctest.DocTestRunner().run(one, out=failures.append)
    gc.collect()  # a loader that was left half read pins what it reads
    assert not failures, "".join(failures)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What examples may name: the public names, and a warehouse with a log and a model."""
    root = tmp_path_factory.mktemp("examples")
    write_sample_log(root / "logs", SMALL, late=False)
    lines = "\n".join(f"{n},2026-03-02T0{n % 3}:00:00Z,{n % 2}" for n in range(300))
    (root / "clicks.csv").write_text("id,time,clicked\n" + lines + "\n")
    model = hr.Model("ctr", client="search", label="clicked", table="log")
    model.input("overlap", (hr.text("query").unigrams() & hr.text("ad_title").unigrams()).hash_buckets(1000))
    model.input("price", hr.float32("price").fill_null(0).log1p())
    counted = hr.Model("counted", client="search", label="clicked", table="log")
    counted.input("recent", hr.table("log").by(hr.int64("user_id")).count(window="1h").log1p())
    home = str(root / "home")
    with hr.open(home, create=True) as w:
        w.add_table("log", root / "logs", time_column="time")
        w.submit(model)
        w.work()
        w.train("ctr", config=UNTRIED)
        joined = hr.open(str(root / "joined"), create=True)
        joined.add_table("log", root / "logs", time_column="time")
        joined.submit(counted)
        joined.export_states("counted", root / "states")
        yield {name: getattr(hr, name) for name in hr.__all__} | {
            "datetime": datetime, "timedelta": timedelta, "folder": str(root / "new"), "home": home, "w": w, "logs": str(root / "logs"), "csv": str(root / "clicks.csv"),
            "scores": str(root / "scores"), "served": str(root / "served"), "states": str(root / "states"), "joined": joined,
        }  # fmt: skip
        joined.close()


@pytest.mark.medium
@pytest.mark.parametrize("name", [one for one in hr.__all__ if one not in OF_TENSORFLOW + OF_FRAMEWORKS])
def test_a_public_name_has_an_example_that_is_true(name, names):
    check(getattr(hr, name), name, dict(names))


@pytest.mark.medium
@pytest.mark.parametrize("name", [one for one in METHODS if one not in SHOWN_ELSEWHERE])
def test_a_method_of_an_open_warehouse_has_an_example_that_is_true(name, names):
    check(getattr(hr.Home, name), name, dict(names))


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_a_name_that_runs_tensorflow_has_an_example_that_is_true(name, tmp_path):
    import subprocess
    import sys

    if name == "from_transform_output":
        subprocess.run([sys.executable, "-c", TRANSFORM, str(tmp_path)], check=True)
    every = {one: getattr(hr, one) for one in hr.__all__}
    check(getattr(hr, name), name, every | {"transform_fn": str(tmp_path / "out" / "transform_fn")})


def test_no_public_name_hides_a_builtin_but_open():
    assert {name for name in hr.__all__ if hasattr(builtins, name)} == {"open"}
