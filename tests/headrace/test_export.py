"""Exported models give the bits of the warehouse without Headrace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipelines.formats import FormatOptions, prepare
from tests.warehouse.scenes import FREE_READS
from transforms.columns.columns import cast_to_layout
from transforms.graphs.graph import component_from_document, raw_columns
from transforms.types import DType
from warehouse.config import WarehouseConfig
from warehouse.matching.solve import read_solution
from warehouse.reading.reader import read_fragment
from warehouse.tables.parquet import read_columns
from warehouse.warehouse import Warehouse

pytest.importorskip("tensorflow")

TOP = Path(__file__).parents[2]
SHARED = TOP.parent / "shared" / "data"
EVENTS = 10_000

#: Runs in a process that has TensorFlow and numpy and cannot import Headrace.
SERVER = """
import pathlib, sys
sys.modules |= dict.fromkeys(("headrace", "transforms", "warehouse", "pipelines", "trainer", "pyarrow"))  # none can be imported
import numpy as np
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
for request in sorted(pathlib.Path(sys.argv[2]).glob("request-*.npz")):
    loaded = dict(np.load(request, allow_pickle=True))
    serve = model.signatures[str(loaded.pop("signature"))]
    answer = serve(**{name: tf.constant(value.tolist() if value.dtype == object else value) if value.size
                      else tf.zeros(value.shape, dict(serve.structured_input_signature[1])[name].dtype)
                      for name, value in loaded.items()})
    np.savez(request.with_name(request.name.replace("request", "answer")), **{k: v.numpy() for k, v in answer.items()})
"""


def tensors_of(column, described, missing=True):
    """A raw column as a request holds it."""
    names, kind = described["tensors"], described["type"]
    if kind.startswith("Dense"):
        values = {names[0]: plain(column)}
        return {**values, names[1]: ~np.asarray(column.is_valid())} if missing else values
    if kind.startswith("Vector"):
        return {names[0]: plain(column.flatten()).reshape(len(column), -1)}
    lengths = column.value_lengths().fill_null(0).to_numpy()
    return {names[0]: plain(column.flatten()), names[1]: np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)}


def plain(column):
    if pa.types.is_string(column.type):
        return np.array([value.encode() for value in column.fill_null("").to_pylist()], object)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return column.fill_null(False if pa.types.is_boolean(column.type) else 0).to_numpy(zero_copy_only=False)


def bits(values):
    """Texts as bytes, floats by their bits, every NaN alike."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        return np.where(np.isnan(values), np.array(np.nan, values.dtype), values).view(f"u{values.dtype.itemsize}")
    return values


def check_answers(described, answer, memos):
    """The server's tensors hold exactly what the warehouse's columns hold."""
    assert described
    for each in described:
        memo = memos.column(each["input"]).combine_chunks()
        values = answer[each["tensors"][0]]
        if each["type"].startswith("Dense"):
            valid = np.asarray(memo.is_valid())
            assert np.array_equal(~answer[each["tensors"][1]], valid), each["input"]
            assert np.array_equal(bits(values)[valid], bits(plain(memo))[valid]), each["input"]
            continue
        assert np.array_equal(bits(values).ravel(), bits(plain(memo.flatten()))), each["input"]
        if not each["type"].startswith("Vector"):
            lengths = memo.value_lengths().to_numpy()
            assert np.array_equal(np.diff(answer[each["tensors"][1]]), lengths), each["input"]


def served(folder, exported, requests):
    """What the SavedModel answers, in a process and a folder where Headrace is not."""
    for position, request in enumerate(requests):
        np.savez(folder / f"request-{position:03d}.npz", **request)
    script = folder / "server.py"
    script.write_text(SERVER, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-I", str(script), str(exported), str(folder)]
    done = subprocess.run(command, env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"}, cwd=folder, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [
        dict(np.load(folder / f"answer-{position:03d}.npz", allow_pickle=True)) for position in range(len(requests))
    ]


def columns_of(home, model, described, events):
    """The warehouse's inputs and the raw columns of the first ``events`` events."""
    names = sorted(each["column"] for each in described["columns"])
    tables, rows = [], 0
    with Warehouse.open(WarehouseConfig(str(home), rates=FREE_READS)) as warehouse:
        solution = read_solution(warehouse, model)
        roots = [component_from_document(item.component) for item in solution.inputs]
        types = {column.name: column.type for root in roots for column in raw_columns(root)}
        for partition in solution.partitions:
            for fragment in partition.fragments:
                if rows >= events:
                    break
                assert set(solution.plans[fragment.plan].actions) <= {"load", "raw"}
                memos = read_fragment(warehouse.storage, solution, fragment).select(
                    [item.name for item in solution.inputs]
                )
                raw = read_columns(warehouse.storage, fragment, names)
                tables.append(
                    (memos, pa.table({name: cast_to_layout(raw.column(name), types[name]) for name in names}))
                )
                rows += fragment.rows
    memos = pa.concat_tables([pair[0] for pair in tables]).slice(0, events)
    return memos, pa.concat_tables([pair[1] for pair in tables]).slice(0, events)


def requests_of(described, raw, size, signature):
    for at in range(0, raw.num_rows, size):
        part = raw.slice(at, size)
        request = {"signature": np.array(signature)}
        for each in described["columns"]:
            column = part.column(each["column"]).combine_chunks()
            request |= tensors_of(column, each, missing=signature == "serving_default")
        yield request


def replayed(cli, tmp_path, model, events=EVENTS):
    """Export a model, serve its first events, compare; returns how many events were replayed."""
    exported = cli("model", "export", model, "--output", tmp_path / "serving" / model, "--json").json
    described = json.loads((Path(exported["path"]) / "assets.extra" / "headrace.json").read_text(encoding="utf-8"))
    assert exported["inputs"] == len(described["inputs"])
    assert not exported["left_out"]
    memos, raw = columns_of(tmp_path / "home", model, described, events)
    folder = tmp_path / f"requests-{model}"
    folder.mkdir()
    # Whole, in batches, and a few events one by one: a request's size must not show.
    first = list(requests_of(described, raw, raw.num_rows, "serving_default"))
    batches = list(requests_of(described, raw.slice(0, 2_000), 300, "serving_default"))
    single = list(requests_of(described, raw.slice(0, 20), 1, "serving_default"))
    answers = served(folder, exported["path"], [*first, *batches, *single])
    check_answers(described["inputs"], answers[0], memos)
    for i, answer in enumerate(answers[1 : 1 + len(batches)]):
        check_answers(described["inputs"], answer, memos.slice(300 * i, min(300, 2_000 - 300 * i)))
    for i, answer in enumerate(answers[1 + len(batches) :]):
        check_answers(described["inputs"], answer, memos.slice(i, 1))
    return raw.num_rows


FORMATS = {
    "criteo": ("criteo", FormatOptions()),
    "globo": ("globo", FormatOptions(limit=4)),
    "movielens": ("ml1m", FormatOptions(limit=40)),
    "obd": ("obd", FormatOptions()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_ten_thousand_real_events_through_both(cli, tmp_path, name):
    place, options = FORMATS[name]
    if not (SHARED / place).exists():
        pytest.skip(f"the {name} log is not here")
    prepare(name, str(SHARED / place), str(tmp_path / "table"), options)
    cli("table", "add", name, tmp_path / "table", "--time-column", "time")
    models = cli("model", "submit", TOP / "examples" / f"{name}.py", "--table", name, "--json").json["models"]
    cli("work", "--until-idle")
    for model in models:
        assert replayed(cli, tmp_path, model["model"]) == min(EVENTS, rows_of_table(cli, name))


def rows_of_table(cli, name):
    return next(each["rows"] for each in cli("table", "ls", "--json").json["tables"] if each["name"] == name)


MODEL = '''
import headrace as hr

whole = hr.Model("whole", client="search", label="clicked")
query, price, age = hr.text("query"), hr.float32("price"), hr.int64("user_age")
whole.input("words", query.lower().unigrams().hash_buckets(1000))
whole.input("price", price.log1p())
whole.input("age", age)
whole.input("hour", hr.timestamp("time").hour_of_day())
whole.input("query", query)
'''  # fmt: skip


@pytest.fixture
def submitted(cli, small_log, tmp_path):
    def submit(source, name="whole"):
        file = tmp_path / "models.py"
        file.write_text(source, encoding="utf-8")
        cli("model", "submit", file, "--table", "log")
        return name

    cli("table", "add", "log", small_log, "--time-column", "time")
    return submit


@pytest.mark.slow
def test_the_sample_log_through_both(cli, submitted, tmp_path):
    model = submitted(MODEL)
    cli("work", "--until-idle")
    assert replayed(cli, tmp_path, model, events=250) == 250


@pytest.mark.slow
def test_a_request_without_missing_values_needs_no_flags(cli, submitted, tmp_path):
    import tensorflow as tf

    path = cli("model", "export", submitted(MODEL), "--output", tmp_path / "out", "--json").json["path"]
    assert Path(path).name == "1"
    serve = tf.saved_model.load(path).signatures["complete"]
    answer = serve(query=["a B"], price=tf.constant([1.0]), user_age=tf.constant([3], tf.int64),
                   time=tf.constant([3_600_000_000], tf.int64))  # fmt: skip
    assert answer["hour"].numpy().tolist() == [1]
    assert answer["query"].numpy().tolist() == [b"a B"]
    assert answer["words__row_splits"].numpy().tolist() == [0, 2]
    assert not answer["price__missing"].numpy()[0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="equal numbers of rows"):
        serve(query=["a", "b"], price=tf.constant([1.0]), user_age=tf.constant([3], tf.int64),
              time=tf.constant([1], tf.int64))  # fmt: skip


OWN = """
import pyarrow.compute as pc


@hr.op(result="string")
def reverse(text):
    return pc.utf8_reverse(text)


whole.input("reversed", reverse(query))
"""


@pytest.mark.slow
def test_what_tensorflow_cannot_compute_is_named_or_left_out(cli, submitted, tmp_path):
    model = submitted(MODEL + OWN)
    said = cli("model", "export", model, "--output", tmp_path / "out", status=2).err
    assert "model whole, input reversed" in said
    assert "python_function has none: a Python function is not TensorFlow" in said
    assert "--skip-unservable" in said
    assert not (tmp_path / "out").exists()
    exported = cli("model", "export", model, "--output", tmp_path / "out", "--skip-unservable", "--json").json
    assert [each["input"] for each in exported["left_out"]] == ["reversed"]
    document = json.loads((Path(exported["path"]) / "assets.extra" / "headrace.json").read_text(encoding="utf-8"))
    assert [each["input"] for each in document["inputs"]] == ["words", "price", "age", "hour", "query"]
    assert document["left_out"][0]["operator"] == "python_function"
    shown = {each["name"]: each["fingerprint"] for each in cli("model", "show", model, "--json").json["inputs"]}
    assert all(each["fingerprint"] == shown[each["input"]] for each in document["inputs"])
    only = submitted(
        "import headrace as hr\nwhole = hr.Model('only', client='s', label='clicked')\nquery = hr.text('query')\n"
        + OWN,
        "only",
    )
    assert (
        "no input is left"
        in cli("model", "export", only, "--output", tmp_path / "o", "--skip-unservable", status=2).err
    )


@pytest.mark.slow
def test_an_export_is_whole_and_is_not_overwritten(cli, submitted, tmp_path):
    model = submitted(MODEL)
    out = tmp_path / "out"
    first = cli("model", "export", model, "--output", out).out
    assert "serving_default, complete" in first
    (out / "1" / "mark").touch()
    assert "must not exist yet" in cli("model", "export", model, "--output", out, status=2).err
    assert (out / "1" / "mark").exists()
    cli("model", "export", model, "--output", out, "--force")
    assert not (out / "1" / "mark").exists()
    assert [path.name for path in out.iterdir()] == ["1"]
    (tmp_path / "file").touch()
    assert "cannot be written" in cli("model", "export", model, "--output", tmp_path / "file", status=6).err
    assert "nobody" in cli("model", "export", "nobody", "--output", out, status=4).err


@pytest.mark.slow
def test_an_export_prints_nothing_of_tensorflows(cli, submitted, tmp_path):
    model = submitted(MODEL)
    command = ["model", "export", model, "--output", tmp_path / "out", "--home", tmp_path / "home"]
    done = subprocess.run([sys.executable, "-m", "headrace", *command], capture_output=True, text=True, check=True)
    assert (done.stderr, "serving_default" in done.stdout) == ("", True)


BRIDGED = """
import tensorflow as tf
import headrace as hr

whole = hr.Model("whole", client="search", label="clicked")
KEYS = tf.constant(["phone", "tablet"])


def fn(inputs):
    made = tf.lookup.KeyValueTensorInitializer(KEYS, tf.constant([1, 2], tf.int64))
    price = tf.squeeze(tf.sparse.to_dense(tf.sparse.reset_shape(inputs["price"], [inputs["price"].dense_shape[0], 1])), 1)
    return {
        "device": tf.lookup.StaticHashTable(made, -1).lookup(inputs["device"]),
        "price_log": tf.math.log1p(price),
        "words": tf.strings.split(inputs["query"]),
    }


columns = {"device": hr.text("device"), "price": hr.float32("price"), "query": hr.text("query")}
for name, expression in hr.from_preprocessing_fn(fn, columns, sparse=["price"]).items():
    whole.input(name, expression)
"""


@pytest.mark.slow
def test_a_bridged_preprocessing_fn_through_both(cli, submitted, tmp_path):
    model = submitted(BRIDGED)
    cli("work", "--until-idle")
    assert replayed(cli, tmp_path, model, events=250) == 250


def test_names_that_tensorflow_refuses_are_errors():
    import headrace as hr
    from transforms.errors import InputError
    from transforms.twins.export import Serving

    made = {"a": hr.text("user name").lower().node, "b": hr.text("1st").node, "c": hr.text("user_name").node}
    tensors = {each["column"]: each["tensors"][0] for each in Serving(made).document["columns"]}
    assert tensors == {"1st": "column_1st", "user name": "user_name", "user_name": "user_name_"}
    with pytest.raises(InputError, match="must have one type"):
        Serving({"a": hr.float32("x").log1p().node, "b": hr.float64("x").log1p().node})
    with pytest.raises(InputError, match="must have different names"):
        Serving({"a": hr.float32("x").log1p().node, "a__missing": hr.float32("x").node})


def test_every_dtype_has_a_place_in_the_documentation():
    text = (TOP / "docs" / "serving.md").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{dtype}\b", text) for dtype in DType)
