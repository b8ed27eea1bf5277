"""CSV, TSV and JSON lines for append, overlay, fix and delete."""

from __future__ import annotations

import gzip
import json

import pytest

SCHEMA = """// what the log looks like
{"format": "csv", "header": true,
 "columns": [{"name": "id", "type": "int64"}, {"name": "query", "type": "string"}, {"name": "price", "type": "float32"},
             {"name": "clicked", "type": "bool"}, {"name": "at", "type": "timestamp"}],
 "time": {"column": "at"}}"""


def line(number: int, hour: int = 0) -> str:
    return f'{number},"red, shoe {number}",{number}.5,{number % 2},2017-07-02T0{hour}:{number % 60:02d}'


HEADER = "id,query,price,clicked,at"


@pytest.fixture
def table(cli, tmp_path):
    (tmp_path / "log.csv").write_text("\n".join([HEADER, *(line(i, i % 2) for i in range(20))]))
    (tmp_path / "schema.json").write_text(SCHEMA)
    cli("table", "import", "log", tmp_path / "log.csv", "--schema", tmp_path / "schema.json")


def values_of(cli, column):
    return {one["name"] for one in cli("table", "show", "log", "--json").json["columns"]} & {column}


def test_late_rows_of_a_csv_by_the_schema_of_the_import(cli, table, tmp_path):
    (tmp_path / "late.csv").write_text("\n".join([HEADER, line(90), line(91, 1), "x,y,z,1,2017-07-02T00:00"]))
    dry = cli("table", "append", "log", tmp_path / "late.csv", "--dry-run", "--max-reject-share", "0.5")
    assert "would append 2 rows" in dry.out
    assert not (tmp_path / "home/rejects/log/late.csv.jsonl").exists()
    done = cli("table", "append", "log", tmp_path / "late.csv", "--max-reject-share", "0.5")
    assert "appended 2 rows in 2 fragments of 2 partitions" in done.out
    assert f"rows rejected, with line and reason, in {tmp_path}/home/rejects/log/late.csv.jsonl: 1\n" in done.out
    assert cli("table", "history", "log", "--json").json["versions"][-1]["source"] == str(tmp_path / "late.csv")
    too_many = cli("table", "append", "log", tmp_path / "late.csv", status=3).err
    assert "got 1 of 3 rows" in too_many


def test_late_rows_twice_are_left_out_by_their_key(cli, table, tmp_path):
    (tmp_path / "late.csv.gz").write_bytes(gzip.compress("\n".join([HEADER, line(2), line(90), line(90)]).encode()))
    done = cli("table", "append", "log", tmp_path / "late.csv.gz", "--unique-by", "id")
    assert "appended 1 row in" in done.out
    assert "has the same id: 2\n" in done.out
    assert "nothing changed" in cli("table", "append", "log", tmp_path / "late.csv.gz", "--unique-by", "id").out


def test_json_lines_for_a_table_that_was_imported_from_csv(cli, table, tmp_path):
    row = {"id": 95, "query": "hat", "price": 1.5, "clicked": True, "at": "2017-07-02T01:30:00Z"}
    (tmp_path / "late.jsonl").write_text(json.dumps(row) + "\n")
    assert "appended 1 row" in cli("table", "append", "log", tmp_path / "late.jsonl").out


def test_values_of_a_csv_for_known_columns(cli, table, tmp_path):
    (tmp_path / "fix.csv").write_text("price,id\n7.25,3\n8,4\n9,777\n")
    fixed = cli("table", "fix", "log", tmp_path / "fix.csv", "--on", "id", "--why", "cents")
    assert "fixed price of 2 rows" in fixed.out
    assert "1 key of the file matches no event" in fixed.out
    (tmp_path / "gone.tsv").write_text("id\n3\n4\n")
    deleted = cli("table", "delete", "log", "--on", "id", "--keys", tmp_path / "gone.tsv", "--json").json
    assert deleted["rows"] == 2


def test_new_columns_need_a_schema_file_and_infer_writes_it(cli, table, tmp_path):
    (tmp_path / "spam.csv").write_text("id,spam_score\n" + "".join(f"{i},0.{i}\n" for i in range(12)))
    error = cli("table", "overlay", "log", tmp_path / "spam.csv", "--on", "id", status=2).err
    assert "spam_score" in error
    assert f"headrace table infer {tmp_path / 'spam.csv'} --no-time --output values.json" in error
    shown = cli("table", "infer", tmp_path / "spam.csv", "--no-time", "--output", tmp_path / "values.json").out
    assert f"then headrace table overlay NAME {tmp_path / 'spam.csv'} --on KEY" in shown
    error = cli("table", "import", "new", tmp_path / "spam.csv", "--schema", tmp_path / "values.json", status=2).err
    assert "an imported log must have an event time" in error
    done = cli("table", "overlay", "log", tmp_path / "spam.csv", "--on", "id", "--schema", tmp_path / "values.json")
    assert "overlaid spam_score of 12 rows" in done.out
    assert values_of(cli, "spam_score")


def test_text_for_a_table_of_parquet_is_read_by_its_columns(cli, small_log, tmp_path):
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    cli("table", "add", "log", small_log, "--time-column", "time")
    (path,) = (small_log / "date=2026-03-02/hour=01").glob("*.parquet")
    rows = pq.ParquetFile(path).read().slice(0, 3)
    csv.write_csv(rows.drop_columns([name for name in rows.column_names if str(rows.schema.field(name).type).startswith("list")]),
                  tmp_path / "late.csv")  # fmt: skip
    prices = rows.select(["event_id", "price"])
    csv.write_csv(prices, tmp_path / "prices.csv")
    assert (
        "nothing changed" in cli("table", "fix", "log", tmp_path / "prices.csv", "--on", "event_id", "--why", "x").out
    )
    with gzip.open(tmp_path / "prices.csv.gz", "wt") as file:
        file.write("event_id,price\n" + "".join(f"{one},99.5\n" for one in rows.column("event_id").to_pylist()))
    done = cli("table", "fix", "log", tmp_path / "prices.csv.gz", "--on", "event_id", "--why", "x", "--json").json
    assert done["rows"] == 3


def test_what_is_wrong_is_said_in_one_error(cli, table, tmp_path):
    (tmp_path / "late.csv").write_text("id,query\n1,a\n")
    assert "the header must name every column" in cli("table", "append", "log", tmp_path / "late.csv", status=3).err
    assert "a path or pattern must match a log file" in cli("table", "append", "log", tmp_path / "no.csv", status=2).err
    assert "joined by a key" in cli("table", "overlay", "log", tmp_path / "late.csv", status=2).err
    assert "needs text files" in cli("table", "append", "log", tmp_path / "a.parquet", "--schema", "x", status=2).err
    assert "no such column" in cli("table", "append", "log", tmp_path / "log.csv", "--unique-by", "nr", status=2).err


def test_an_import_leaves_out_known_keys_and_counts_them(cli, table, tmp_path):
    schema = ("--schema", tmp_path / "schema.json")
    (tmp_path / "more.csv").write_text(
        "\n".join([HEADER, line(2), line(3), line(80), line(80), line(81, 1), line(2, 5)])
    )
    done = cli("table", "import", "log", tmp_path / "more.csv", *schema, "--unique-by", "id", "--json").json
    # 2 is in hour 0 already; 3 is in hour 1 only, 80 comes twice; of other partitions nothing is known.
    assert (done["rows"], done["registered"]["rows"]) == (4, 24)
    assert done["counts"] == {"rows left out, since their key is in their partition already": 2}
    (tmp_path / "again.csv").write_text("\n".join([HEADER, line(80), line(81, 1)]))
    again = cli("table", "import", "log", tmp_path / "again.csv", *schema, "--unique-by", "id,at")
    assert "imported 0 rows" in again.out
    assert "partition already: 2" in again.out
    error = cli("table", "import", "log", tmp_path / "more.csv", *schema, "--unique-by", "nr", status=2).err
    assert "a key must be a column of the schema file" in error


def test_one_sentinel_year_is_rejected_and_the_table_is_complete(cli, table, tmp_path):
    rows = [line(70), "71,x,1,1,9999-12-31T00:00", "72,x,1,1,9999-12-31", *(line(i) for i in range(73, 83))]
    (tmp_path / "sentinel.csv").write_text("\n".join([HEADER, *rows]))
    options = ("--schema", tmp_path / "schema.json", "--max-reject-share", "0.5")
    done = cli("table", "import", "log", tmp_path / "sentinel.csv", *options, "--json").json
    assert (done["rows"], done["rejected"], done["registered"]["rows"]) == (11, 2, 31)
    assert "9999-12-31" in (tmp_path / "home/rejects/log/sentinel.csv.jsonl").read_text()
    (tmp_path / "late.csv").write_text("\n".join([HEADER, *(line(i) for i in range(90, 110)), rows[1]]))
    appended = cli("table", "append", "log", tmp_path / "late.csv", "--max-reject-share", "0.5")
    assert "appended 20 rows" in appended.out
    assert "late.csv.jsonl: 1\n" in appended.out
    assert cli("table", "add", "log", tmp_path / "home/tables/log", "--json").json["unchanged"] == 2
