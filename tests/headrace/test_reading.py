"""``hr.read`` and ``headrace model read``: a model's inputs as a table and as a file."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.table_files import write_tables
from tests.headrace.conftest import SMALL
from transforms.execution.plan import compile_plan

pytestmark = pytest.mark.usefixtures("submitted")
START, END = "2026-03-02T01:00", "2026-03-02T03:00"
NAMES = ["overlap", "user", "price"]


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


def test_a_read_is_what_the_expressions_give_over_the_range(home, small_log, models_file):
    found = hr.read("first", START, END, home=home, time=True, columns=["query"])

    raw = pq.read_table(small_log)
    hours = [moment.hour for moment in raw["time"].to_pylist()]
    raw = raw.filter(pa.array([hour in (1, 2) for hour in hours])).sort_by("time")
    from headrace.model_file import load_models

    roots = {name: item.component for name, item in load_models(models_file)[0].inputs.items()}
    wanted = compile_plan(roots).run(raw).columns
    found = found.sort_by("time")
    assert found.column_names == [*NAMES, "label", "query", "time"]
    assert {name: found[name].to_pylist() for name in NAMES} == {name: wanted[name].to_pylist() for name in NAMES}
    assert found["label"].to_pylist() == raw["clicked"].to_pylist()
    assert found["query"].to_pylist() == raw["query"].to_pylist()


def test_memos_are_loaded_and_give_the_same(cli, home):
    before = hr.read("second", home=home)
    cli("work", "--until-idle")
    after = hr.read("second@1", home=home)
    assert after.equals(before)
    assert before.num_rows == sum(part.num_rows for part in hr.scan("second", home=home)) > 200


def test_a_scan_pins_what_it_reads_and_releases_it(cli, home):
    cli("work", "--until-idle")
    parts = hr.scan("first", home=home, label=False)
    first = next(parts)
    assert first.column_names == NAMES
    assert len(cli("pins", "--json").json["pins"]) == 1
    parts.close()
    assert cli("pins", "--json").json["pins"] == []


def test_frames_of_polars_and_pandas_hold_the_same(home):
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    table = hr.read("first", START, END, home=home)
    frame, other = (hr.read("first", START, END, home=home, as_=form) for form in ("polars", "pandas"))
    assert isinstance(frame, polars.DataFrame)
    assert isinstance(other, pandas.DataFrame)
    assert frame["user"].to_list() == other["user"].to_list() == table["user"].to_pylist()
    assert frame["overlap"].to_list() == [list(ids) for ids in other["overlap"]] == table["overlap"].to_pylist()


def test_a_missing_package_is_one_clear_error(home):
    program = f"""
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("polars", "pandas"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import headrace as hr
for form in ("polars", "pandas"):
    try:
        hr.read("first", home={home!r}, as_=form)
    except hr.HeadraceError as error:
        print(error.what, "/", error.next_step)
print(hr.read("first", home={home!r}).num_rows > 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "polars must be installed to read as polars / pip install polars, or read as arrow",
        "pandas must be installed to read as pandas / pip install pandas, or read as arrow",
        "True",
    ]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"model": "third"}, "third"),
        ({"model": "first@9"}, "9"),
        ({"model": "first", "start": "2030-01-01"}, "the range must hold partitions"),
        ({"model": "first", "start": "yesterday"}, "a moment must be a date or a time"),
        ({"model": "first", "as_": "numpy"}, "known form"),
        ({"model": "first", "columns": "query"}, "list of names"),
        ({"model": "first", "columns": ["quarry"]}, "quarry"),
        ({"model": "first", "columns": ["price"]}, "must not have the name of an input"),
        ({"model": "first", "home": "no/such/home"}, "must be the folder of a warehouse"),
        ({"model": ""}, "a model must be a name"),
    ],
)
def test_mistakes_have_different_errors(home, asked, says):
    with pytest.raises(hr.HeadraceError, match=says):
        hr.read(**{"home": home, **asked})


def test_files_hold_what_a_read_gives(cli, home, tmp_path):
    wanted = hr.read("second", START, END, home=home)
    files = {kind: tmp_path / f"out.{kind}" for kind in ("parquet", "csv", "jsonl")}
    for kind, path in files.items():
        screen = cli("model", "read", "second", "--start", START, "--end", END, "--output", path, "--json").json
        assert (screen["format"], screen["rows"], screen["partitions"]) == (kind, wanted.num_rows, 2)
        assert screen["size_bytes"] == path.stat().st_size

    assert pq.read_table(files["parquet"]).equals(wanted)
    lines = [json.loads(line) for line in files["jsonl"].read_text(encoding="utf-8").splitlines()]
    assert lines == wanted.to_pylist()
    with files["csv"].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["overlap"]) for row in rows] == wanted["overlap"].to_pylist()
    assert [int(row["position"]) for row in rows] == wanted["position"].to_pylist()
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".out")} == set()


def test_an_existing_file_is_kept_unless_forced(cli, tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("mine", encoding="utf-8")
    refused = cli("model", "read", "first", "--output", path, status=2)
    assert "the output must not exist yet" in refused.err
    assert path.read_text(encoding="utf-8") == "mine"
    cli("model", "read", "first@1", "--output", path, "--force", "--no-label", "--time")
    assert path.read_text(encoding="utf-8").startswith('"overlap","user","price","time"\n')
    assert "known format" in cli("model", "read", "first", "--output", "out.xlsx", status=2).err
    assert "cannot be written" in cli("model", "read", "first", "--output", "no/folder/out.csv", status=6).err


def test_a_read_that_fails_half_way_leaves_what_was_there(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("mine", encoding="utf-8")

    def tables():
        yield pa.table({"x": [1.0, float("nan")]})
        raise hr.HeadraceError("the second fragment is damaged")

    with pytest.raises(hr.HeadraceError, match="damaged"):
        write_tables(tables(), str(path), force=True)
    assert path.read_text(encoding="utf-8") == "mine"
    assert {each.name for each in tmp_path.iterdir() if each.name.startswith(".out")} == set()


def test_what_json_and_csv_do_not_have_is_spelled(tmp_path):
    table = pa.table({
        "x": pa.array([1.5, float("nan"), None]),
        "at": pa.array([0, 1, None], pa.timestamp("us", tz="UTC")),
        "text": ["a,b\n", "", None],
        "pairs": pa.array([[{"id": 1, "weight": float("inf")}], [], None],
                          pa.list_(pa.struct([("id", pa.int64()), ("weight", pa.float32())]))),
    })  # fmt: skip
    write_tables([table], str(tmp_path / "out.jsonl"), force=False)
    write_tables([table], str(tmp_path / "out.csv"), force=False)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["x"] for line in lines] == [1.5, None, None]
    assert lines[1]["at"] == "1970-01-01T00:00:00.000001+00:00"
    assert lines[0]["pairs"] == [{"id": 1, "weight": None}]
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()[-1] == ",,,"
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == ["a,b\n", "", ""]


def test_the_screen_says_what_was_read(cli, tmp_path):
    cli("work", "--until-idle")
    said = cli("model", "read", "second", "--output", tmp_path / "out.parquet").out
    assert "loaded from memos" in said
    assert "overlap, user, price, position, label" in said
    assert f"{SMALL.hours}: " in said
