"""``headrace model check``: statistics and warnings of each input over a sample."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.checks.sample import evenly
from headrace.checks.statistics import Spread, statistics_of
from headrace.checks.surprises import colliding_share, surprises_of, surprises_of_label
from tests.headrace.test_commands import check_golden
from transforms.columns.arrow_types import arrow_type
from transforms.execution.plan import compile_plan
from transforms.types import Dense, DType, Weighted

ODD = """
import headrace as hr

words = hr.text("query").unigrams()
odd = hr.Model("odd", client="search", label="clicked", table="odd")
odd.input("words", words.hash_buckets(1_000_000))
odd.input("crowded", hr.int64("user_id").hash_buckets(50))
odd.input("nothing", hr.text("query").cast("float64"))
odd.input("constant", hr.int64("user_id").clip(0.0, 0.0))
odd.input("ratio", hr.float64("ratio"))
odd.input("gone", hr.text("no_such_column").lower())
odd.input("mistyped", hr.float32("query"))
odd.input("unequal", hr.if_else(words.is_in(["a"]), words, hr.ragged("tags", "string")))
odd.input("text", hr.text("query"))
"""


@pytest.fixture
def odd(cli, tmp_path):
    random, rows = Random(7), 400
    table = pa.table({
        "time": pa.array([1_772_323_200_000_000 + row * 36_000_000 for row in range(rows)], pa.timestamp("us", tz="UTC")),
        "query": [random.choice(["red shoes", "blue", "green hat on sale", ""]) for _ in range(rows)],
        "user_id": pa.array([random.randrange(1, 1000) for _ in range(rows)]),
        "ratio": [math.nan if row % 40 == 0 else row / 7 for row in range(rows)],
        "tags": [["x"]] * rows,
        "clicked": pa.array([None if row % 100 == 0 else 1 for row in range(rows)], pa.int64()),
    })  # fmt: skip
    for part in range(4):
        folder = tmp_path / "odd" / "date=2026-03-01" / f"hour={part:02}"
        folder.mkdir(parents=True)
        pq.write_table(table.slice(part * 100, 100), folder / "part.parquet")
    cli("table", "add", "odd", tmp_path / "odd", "--time-column", "time")
    (tmp_path / "odd.py").write_text(ODD, encoding="utf-8")
    return tmp_path / "odd.py"


@pytest.mark.medium
def test_every_input_is_run_and_warnings_are_shown(cli, odd):
    (model,) = cli("model", "check", odd, "--json").json["models"]
    inputs = {row["input"]: row for row in model["inputs"]}
    assert (model["rows"], model["table_rows"], model["partitions"]) == (400, 400, 4)
    codes = {name: [one["code"] for one in row["warnings"]] for name, row in inputs.items() if not row["error"]}
    assert codes == {
        "words": [],
        "crowded": ["collisions"],
        "nothing": ["all_null"],
        "constant": ["constant"],
        "ratio": ["not_finite"],
        "text": ["untrainable"],
    }
    assert "no_such_column" in inputs["gone"]["error"]
    assert "not stored as it is declared" in inputs["mistyped"]["error"]
    assert "equal lengths" in inputs["unequal"]["error"]
    assert [one["code"] for one in model["label"]["warnings"]] == ["null_label", "constant"]
    assert inputs["words"]["lengths"]["least"] == 0
    assert inputs["words"]["lengths"]["most"] == 4
    assert inputs["words"]["distinct"] == 7
    assert inputs["words"]["empty_share"] == pytest.approx(0.25, abs=0.1)
    assert inputs["ratio"]["numbers"]["most"] == pytest.approx(399 / 7)
    assert "10 values are NaN or infinite" in inputs["ratio"]["warnings"][0]["text"]
    assert inputs["text"]["examples"][0].startswith("'")


def test_the_screen_of_a_check(cli, odd):
    check_golden("model_check", cli("model", "check", odd).out)


def test_a_sample_is_spread_over_the_partitions_and_always_the_same(cli, odd):
    (model,) = cli("model", "check", odd, "--rows", 8, "--json").json["models"]
    assert (model["rows"], model["partitions"]) == (8, 4)
    assert cli("model", "check", odd, "--rows", 8, "--json").json["models"] == [model]
    (one,) = cli("model", "check", odd, "--rows", 1, "--json").json["models"]
    assert one["rows"] == 1


@pytest.mark.medium
def test_a_submitted_model_is_checked_by_name_without_a_change(submitted):
    cli = submitted
    before = cli("status", "--json").json
    (model,) = cli("model", "check", "second@1", "--json").json["models"]
    assert [row["input"] for row in model["inputs"]] == ["overlap", "user", "price", "position"]
    assert not any(row["error"] for row in model["inputs"])
    after = cli("status", "--json").json
    assert after["memos"] == before["memos"]
    assert "no such model" in cli("model", "check", "third", status=4).err
    assert "must go with a file of models" in cli("model", "check", "second", "--model", "second", status=2).err


def test_a_label_is_checked_as_the_model_learns_it(cli, odd, tmp_path):
    (tmp_path / "labels.py").write_text(
        "import headrace as hr\n"
        "def model(name, **kinds):\n"
        '    made = hr.Model(name, client="search", table="odd", **kinds)\n'
        '    made.input("user", hr.int64("user_id").hash_buckets(5000))\n'
        "    return made\n"
        'late = model("late", label=hr.int64("user_id") > 500)\n'
        'grade = model("grade", label="user_id")\n'
        'classes = model("classes", label="user_id", task="multiclass", classes=1000)\n'
        'worth = model("worth", label="ratio", task="regression")\n'
        'words = model("words", label="query")\n'
        'gone = model("gone", label=hr.int64("none") > 5)\n',
        encoding="utf-8",
    )
    models = {
        row["model"]: row["label"] for row in cli("model", "check", tmp_path / "labels.py", "--json").json["models"]
    }
    codes = {name: [one["code"] for one in label["warnings"]] for name, label in models.items()}
    assert codes == {"late": [], "grade": ["wrong_label"], "classes": [], "worth": ["wrong_label"], "words": ["wrong_label"],
                     "gone": []}  # fmt: skip
    assert models["late"]["type"] == "Dense[bool]"
    assert "labels are not 0 or 1" in models["grade"]["warnings"][0]["text"]
    assert "none" in models["gone"]["error"]


def test_a_full_pass_that_was_not_made_is_that_inputs_error(cli, odd, tmp_path):
    (tmp_path / "full.py").write_text(
        "import headrace as hr\n"
        'made = hr.Model("full", client="search", label="clicked", table="odd")\n'
        'over = hr.between("2026-03-01", "2026-03-02")\n'
        'made.input("word", hr.text("query").unigrams().vocabulary_ids(over=over))\n'
        'made.input("user", hr.int64("user_id").hash_buckets(5000))\n'
        'made.input("far", hr.text("query").vocabulary_ids(over=hr.between("2020-01-01", "2020-01-02")))\n'
        'made.input("gone", hr.text("none").vocabulary_ids(over=over))\n',
        encoding="utf-8",
    )
    (model,) = cli("model", "check", tmp_path / "full.py", "--json").json["models"]
    assert "a full pass must be run first" in model["inputs"][0]["error"]
    assert model["inputs"][1]["error"] == ""
    assert "no partition starts in the range" in model["inputs"][2]["error"]
    assert "no such column" in model["inputs"][3]["error"]


def test_statistics_of_lists_with_weights():
    kind = Weighted(DType.INT64, 10)
    column = pa.array([[{"id": 1, "weight": 0.5}, {"id": 1, "weight": math.inf}], [], None], arrow_type(kind))
    found = statistics_of(column, kind)
    assert (found.rows, found.empty, found.values, found.distinct, found.not_finite) == (3, 2, 2, 1, 1)
    assert (found.lengths, found.numbers) == (Spread(0, 0.0, 2), Spread(0.5, 0.5, 0.5))
    assert found.examples == ("[1:0.5, 1:inf]",)


def test_statistics_of_nothing():
    found = statistics_of(pa.array([], pa.float64()), Dense(DType.FLOAT64))
    assert (found.rows, found.empty_share, found.numbers, found.top_share) == (0, None, None, None)
    assert [one.code for one in surprises_of(found, Dense(DType.FLOAT64), hr.float64("x").node)] == ["no_rows"]
    assert [one.code for one in surprises_of_label(found)] == ["no_rows"]


@pytest.mark.parametrize("values", [200, 5_000, 60_000])
def test_the_collision_estimate_is_what_hashing_does(values):
    ids = (
        compile_plan({"it": hr.int64("x").hash_buckets(20_000).node})
        .run(pa.table({"x": np.arange(values)}))
        .columns["it"]
    )
    counts = np.bincount(ids.to_numpy(), minlength=20_000)
    really = counts[counts > 1].sum() / values
    assert colliding_share(int((counts > 0).sum()), 20_000) == pytest.approx(really, abs=0.02)
    assert colliding_share(20_000, 20_000) == 1.0


def test_a_dominant_id_is_a_warning():
    column = pa.array([3] * 95 + list(range(5)))
    kind = Dense(DType.INT64, 100)
    found = statistics_of(column, kind)
    ids = hr.int64("x").hash_buckets(100).node
    assert [one.code for one in surprises_of(found, kind, ids)] == ["concentrated"]
    assert surprises_of(found, Dense(DType.INT64, 5), ids) == ()


def test_evenly_spaced_positions():
    assert evenly(10, 5) == [0, 2, 4, 6, 8]
    assert evenly(3, 5) == [0, 1, 2]
    assert evenly(0, 5) == []
    assert len(set(evenly(1_000_003, 997))) == 997
