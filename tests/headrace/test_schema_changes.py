"""Logs whose schema changes, and folders of lakes, from the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.tables.evolution.scenes import ROWS, day

MODEL = """
import headrace as hr
m = hr.Model("m", client="c", label="clicked", table="log")
m.input("user", hr.text("user").length())
m.input("k", hr.int64("k").hash_buckets(100))
"""


def write(root: Path, folder: str, table: pa.Table, name: str = "p.parquet") -> Path:
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "log", "date=2026-03-01", day(1, k=pa.array(range(ROWS), pa.int32())))
    return tmp_path / "log"


@pytest.mark.slow
def test_a_log_that_changes(cli, log, tmp_path):
    cli("table", "add", "log", log, "--time-column", "time")
    (tmp_path / "model.py").write_text(MODEL)
    cli("model", "submit", tmp_path / "model.py")
    cli("work", "--until-idle")
    write(log, "date=2026-03-02", day(2, k=pa.array([2**40] * ROWS), score=[1.5] * ROWS))
    added = cli("table", "add", "log", log).out
    assert "new columns, null in earlier files: score, double" in added
    assert "columns of a wider type: k from int32 to int64" in added
    assert cli("work", "--until-idle", "--json").json["memos"] == 2
    late = write(tmp_path, "", day(1, 2, user=["x", "y"], k=[1, 2], note=["a", "b"]), "late.parquet")
    assert "new columns: note" in cli("table", "append", "log", late).out
    assert "k from int32 to int64; new score, double" in cli("table", "history", "log").out
    versions = cli("table", "history", "log", "--json").json["versions"]
    assert [[change["column"] for change in one["schema"]] for one in versions] == [[], ["k", "score"], ["note"]]
    assert versions[1]["schema"][0] == {"column": "k", "before": "int32", "after": "int64"}

    def types(*options):
        return {
            one["name"]: one["arrow_type"] for one in cli("table", "show", "log", "--json", *options).json["columns"]
        }

    assert (types()["k"], types("--table-version", "1")["k"]) == ("int64", "int32")
    assert "note" not in types("--table-version", "2")
    assert "1 to 3" in cli("table", "show", "log", "--table-version", "9", status=4).err
    out = tmp_path / "read.parquet"
    cli("model", "read", "m", "--output", out, "--column", "score", "--column", "note", "--time")
    assert pq.ParquetFile(out).read()["score"].to_pylist() == [None] * 22 + [1.5] * 20
    assert cli("verify", "--recompute", "10", "--json").json["findings"] == []


def test_text_of_an_older_or_newer_schema(cli, tmp_path):
    """Text is read by the table's columns that it has: others are null, and those that the table does not have are named."""
    log = tmp_path / "log"
    write(log, "dt=20260301/country=DE", day(1))
    write(log, "dt=20260302/country=DE", day(2, k=pa.array([2**40] * ROWS), score=[1.5] * ROWS, tags=[[1]] * ROWS))
    cli("table", "add", "log", log, "--time-column", "time")
    made = MODEL.replace('"k", hr.int64("k").hash_buckets(100)', '"place", hr.text("country").lower()')
    (tmp_path / "model.py").write_text(made)
    cli("model", "submit", tmp_path / "model.py")
    late = tmp_path / "late/country=AT/late.csv"
    late.parent.mkdir(parents=True)
    late.write_text("time,user,clicked,novel,k\n2026-03-01T05:00:00Z,csv,1,x,7\n")
    done = cli("table", "append", "log", late).out
    assert "appended 1 row in" in done
    assert (
        f"columns of {late} that are not read, since the table does not say how: novel; next: headrace table infer"
        in done
    )
    lines = late.with_name("late.jsonl")
    lines.write_text('{"time": "2026-03-02T05:00:00Z", "user": "json", "clicked": true, "tags": [2]}\n')
    assert "not read" not in cli("table", "append", "log", lines).out
    out = tmp_path / "read.parquet"
    columns = ("k", "score", "tags", "country")
    cli("model", "read", "m", "--output", out, *(word for name in columns for word in ("--column", name)))
    read = pq.ParquetFile(out).read(columns=list(columns)).to_pylist()
    assert {"k": 7, "score": None, "tags": None, "country": "AT"} in read
    assert {"k": None, "score": None, "tags": [2], "country": "AT"} in read
    assert "lacks a column that live models read: m" in cli(
        "table", "append", "log", _copied(late, tmp_path / "plain.csv"), status=3
    ).err  # fmt: skip
    assert "the header must name every column" in cli(
        "table", "append", "log", _copied(late, tmp_path / "timeless.csv", ("time", "at")), status=3
    ).err  # fmt: skip


def _copied(source, target, *renames):
    text = source.read_text()
    for before, after in renames:
        text = text.replace(before, after)
    target.write_text(text)
    return target


def test_files_that_do_not_fit(cli, log, tmp_path):
    cli("table", "add", "log", log, "--time-column", "time")
    (tmp_path / "model.py").write_text(MODEL)
    cli("model", "submit", tmp_path / "model.py")
    path = write(log, "date=2026-03-02", day(2, k=["1"] * ROWS))
    error = cli("table", "add", "log", log, status=3).err
    assert "has a column of another type, which live models read: m" in error
    assert f"{path}, column k" in error
    assert "headrace table add log_2 FOLDER" in error
    write(log, "date=2026-03-02", day(2))
    assert "lacks a column that live models read: m" in cli("table", "add", "log", log, status=3).err
    late = write(tmp_path, "", day(1, 2, k=[True, False]), "late.parquet")
    assert "cast the column to int32 in the file" in cli("table", "append", "log", late, status=3).err


@pytest.mark.medium
def test_an_import_that_changes(cli, tmp_path):
    """The schema file gets a field, then a wider type; what a live model reads must stay in it."""

    def schema(name, *columns):
        text = ", ".join(f'{{"name": "{column}", "type": "{kind}"}}' for column, kind in columns)
        (tmp_path / name).write_text(
            f'{{"format": "jsonl", "time": {{"column": "time"}}, "partition_by": "day", "columns": [{text}]}}'
        )
        return tmp_path / name

    def rows(name, number, text):
        (tmp_path / name).write_text(f'{{"time": "2026-03-{number:02d}T00:00:00Z", "clicked": true, {text}}}\n')
        return tmp_path / name

    base = (("time", "timestamp"), ("clicked", "bool"), ("k", "int64"))
    cli("table", "import", "log", rows("1.jsonl", 1, '"k": 1'), "--schema", schema("1.json", *base))
    made = MODEL.replace('m.input("user", hr.text("user").length())', "")
    (tmp_path / "model.py").write_text(made)
    cli("model", "submit", tmp_path / "model.py")
    grown = cli("table", "import", "log", rows("2.jsonl", 2, '"k": 2, "city": "x"'), "--schema",
                schema("2.json", *base, ("city", "string"))).out  # fmt: skip
    assert "new columns, null in earlier files: city, string" in grown
    cli("table", "import", "log", rows("3.jsonl", 3, '"k": 2'), "--schema", schema("3.json", *base))
    lost = cli(
        "table", "import", "log", rows("4.jsonl", 4, '"city": "x"'), "--schema", schema("4.json", *base[:2]), status=3
    )
    assert "lacks a column that live models read: m" in lost.err
    assert "declare the column in the schema file" in lost.err
    text = cli("table", "import", "log", rows("5.jsonl", 4, '"k": "x"'), "--schema",
               schema("5.json", *base[:2], ("k", "string")), status=3).err  # fmt: skip
    assert "5.json, column k" in text
    assert "headrace table import log_2 FILES" in text
    assert cli("table", "show", "log", "--json").json["version"] == 3


def test_an_import_of_parquet_that_does_not_fit_names_the_file(cli, tmp_path):
    first = write(tmp_path, "in", day(1, k=pa.array(range(ROWS), pa.int32())), "1.parquet")
    cli("table", "import", "log", first, "--time-column", "time")
    write(tmp_path, "in", day(2), "2.parquet")
    other = write(tmp_path, "in", day(3, k=["1"] * ROWS), "3.parquet")
    error = cli("table", "import", "log", tmp_path / "in/2.parquet", other, "--time-column", "time", status=3).err
    assert f"where:   {other}, column k" in error
    assert "headrace table import log_2 FILES" in error
    (tmp_path / "model.py").write_text(MODEL.replace('hr.int64("k").hash_buckets(100)', 'hr.float32("price").log1p()'))
    price = write(tmp_path, "in", day(4, price=pa.array([0.5] * ROWS, pa.float32())), "4.parquet")
    cli("table", "import", "log", price, "--time-column", "time")
    cli("model", "submit", tmp_path / "model.py")
    same = write(tmp_path, "in", day(5, price=pa.array([0.5] * ROWS, pa.float32())), "5.parquet")
    wider = write(tmp_path, "in", day(6, price=[0.1] * ROWS), "6.parquet")
    error = cli("table", "import", "log", same, wider, "--time-column", "time", status=3).err
    assert "holds a column in a wider type than live model m declares" in error
    assert f"where:   {wider}, column price" in error


@pytest.mark.slow
def test_levels_of_folders(cli, tmp_path):
    log = tmp_path / "log"
    for number in (1, 2):
        for country in ("DE", "FR"):
            write(log, f"date=2026-03-{number:02d}/country={country}", day(number))
    (log / "_SUCCESS").write_text("")
    (log / "_temporary").mkdir()
    added = cli("table", "add", "log", log, "--time-column", "time").out
    assert "2 partitions added" in added
    assert "columns by the names of folders: country" in added
    imported = cli("table", "import", "imported", f"{log}/**/*.parquet", "--time-column", "time").out
    assert "imported 80 rows into 2 partitions" in imported
    assert "columns by the names of folders: country" in imported
    assert "levels of folders that are no columns, since time holds the times: date" in imported
    made = MODEL.replace('hr.int64("k").hash_buckets(100)', 'hr.text("country").lower()')
    (tmp_path / "model.py").write_text(made)
    for table in ("log", "imported"):
        cli("model", "submit", tmp_path / "model.py", "--table", table)
        cli("work", "--until-idle")
        out = tmp_path / f"{table}.csv"
        cli("model", "read", "m", "--output", out, "--column", "country")
        lines = out.read_text().splitlines()[1:]
        assert (sum('"de"' in line for line in lines), sum('"fr"' in line for line in lines)) == (40, 40)


@pytest.mark.parametrize("folders", ["ds=2026-03-{:02d}", "dt=202603{:02d}", "year=2026/month=03/day={:02d}"])
def test_days_in_other_spellings(cli, tmp_path, folders):
    log = tmp_path / "log"
    for number in (1, 2):
        write(log, folders.format(number), day(number))
    assert "2 partitions added" in cli("table", "add", "log", log, "--time-column", "time").out
    shown = cli("table", "show", "log", "--json").json
    assert [one["partition"] for one in shown["partitions"]] == ["date=2026-03-01", "date=2026-03-02"]
    late = write(tmp_path, "", day(2, 3, user=["x"] * 3), "late.parquet")
    cli("table", "append", "log", late)
    assert [path.parent for path in log.rglob("late-*.parquet")] == [log / folders.format(2)]
    new = write(tmp_path, "", day(3, 3), "new.parquet")
    cli("table", "append", "log", new, "--create")
    assert len(list((log / folders.format(3)).glob("late-*.parquet"))) == 1
    assert "0 partitions added, 0 changed, 3 unchanged" in cli("table", "add", "log", log).out
    again = write(tmp_path, "", day(1, 1, user=["z"]), "again.parquet")
    done = cli("table", "append", "log", again, "--partition", folders.format(1), "--json").json
    assert done["partitions"] == ["date=2026-03-01"]


def test_a_folder_without_days_says_how_to_import_it(cli, tmp_path):
    path = write(tmp_path / "log", "country=DE", day(1))
    error = cli("table", "add", "log", tmp_path / "log", "--time-column", "time", status=3).err
    assert str(path) in error
    assert "headrace table import NAME FOLDER --time-column COLUMN" in error
