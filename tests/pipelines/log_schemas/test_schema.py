from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.errors import LogSchemaError
from pipelines.log_schemas.schema import LogSchema, LogTime
from tests.pipelines.logs import COLUMNS, log_schema
from transforms.types import Dense, DType, Ragged

GOOD = {"format": "tsv", "columns": COLUMNS, "time": {"column": "time", "unit": "ms"}}


def test_a_schema_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({**GOOD, "null": ["", "-"], "partition_by": "day", "header": True}))
    schema = LogSchema.from_file(str(path))
    assert schema.names == ("user", "query", "price", "tags", "time")
    assert schema.time == LogTime("time", "ms")
    assert (schema.partition_by, schema.header, schema.null) == ("day", True, ("", "-"))
    assert schema.columns[3].type == Ragged(DType.STRING)
    assert schema.columns[4].type == Dense(DType.TIMESTAMP)
    assert schema.columns[4].required


def test_what_decides_how_a_file_is_read_decides_the_digest() -> None:
    digests = {
        log_schema().digest(),
        log_schema("csv").digest(),
        log_schema(header=True).digest(),
        log_schema(null=["-"]).digest(),
        log_schema(partition_by="day").digest(),
        log_schema(time={"column": "time", "unit": "s"}).digest(),
    }
    assert len(digests) == 6
    assert log_schema().digest() == log_schema().digest()


def test_a_missing_schema_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogSchemaError) as caught:
        LogSchema.from_file(str(tmp_path / "none.json"))
    assert caught.value.where == str(tmp_path / "none.json")


def test_a_schema_that_is_not_json_says_where(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"format": "tsv",\n "columns" [}')
    with pytest.raises(LogSchemaError, match="must be JSON") as caught:
        LogSchema.from_file(str(path))
    assert caught.value.where == f"{path}, line 2, column 12"


@pytest.mark.parametrize(
    ("change", "place", "value", "allowed"),
    [
        ({"format": "xml"}, "s, format", "xml", "tsv, csv, jsonl"),
        ({"colums": []}, "s", None, "format, header, null"),
        ({"columns": []}, "s, columns", None, ""),
        ({"columns": [{"name": "a"}]}, "s, columns[0]", None, ""),
        ({"columns": [{"name": "a", "type": "int32"}]}, "s, columns[0].type", "int32", "int64"),
        ({"columns": [{"name": "time", "type": "int64"}]}, "s, columns[0].type", "int64", "timestamp"),
        ({"columns": [*COLUMNS, COLUMNS[0]]}, "s, columns[5].name", "user", ""),
        ({"columns": [{"name": "a", "type": "string", "separator": ""}]}, "s, columns[0].separator", "", ""),
        ({"columns": [{"name": "a", "type": "string", "required": 1}]}, "s, columns[0].required", 1, ""),
        ({"time": {"column": "when", "unit": "ms"}}, "s, time.column", "when", "user, query"),
        ({"time": {"column": "time", "unit": "minutes"}}, "s, time.unit", "minutes", "s, ms, us, ns, iso8601"),
        ({"partition_by": "week"}, "s, partition_by", "week", "hour, day"),
        ({"header": "yes"}, "s, header", "yes", ""),
        ({"null": ""}, "s, null", "", ""),
    ],
)
def test_a_wrong_entry_is_named_with_what_is_allowed(
    change: dict[str, object], place: str, value: object, allowed: str
) -> None:
    with pytest.raises(LogSchemaError) as caught:
        LogSchema.from_document({**GOOD, **change}, where="s")
    assert caught.value.where == place
    assert caught.value.value == value
    assert allowed in caught.value.allowed


@pytest.mark.parametrize("entry", ["format", "columns"])
def test_a_missing_entry_is_named(entry: str) -> None:
    document = {key: value for key, value in GOOD.items() if key != entry}
    with pytest.raises(LogSchemaError, match=entry):
        LogSchema.from_document(document)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 5000, "cannot be read"),
        ("9" * 5000, "cannot be read"),
        ('{"format": "tsv", "format": "csv"}', "cannot be read"),
        ('{"format": "\\ud800"}', "must be one of its choices"),
        (json.dumps({**GOOD, "null": ["\ud800"]}), "lone surrogate"),
        (json.dumps({**GOOD, "columns": [{"name": "\udfff", "type": "string"}]}), "lone surrogate"),
        (" " * (17 << 20), "at most 16777216 bytes"),
    ],
)
def test_a_hostile_schema_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(LogSchemaError, match=problem) as caught:
        LogSchema.from_file(str(path))
    assert caught.value.where.startswith(str(path))


EVERY_ENTRY: list[dict[str, object]] = [
    {
        "format": "jsonl", "encoding": "gb18030", "null": ["-"], "partition_by": "day",
        "columns": [
            {"name": "c", "type": "string", "path": "user.geo.country", "trim": True},
            {"name": "k", "type": "string", "path": ["a.b", "c"], "json": True},
            {"name": "l", "type": "timestamp", "list": True, "unit": "ns", "required": True},
            {"name": "f", "type": "float32", "thousands": ".", "decimal": ",", "non_finite": True},
            {"name": "i", "type": "int64", "hexadecimal": True, "thousands": ","},
            {"name": "t", "type": "timestamp", "format": ["%Y-%m-%d %H:%M", "%d/%m/%Y"], "zone": "Europe/Berlin"},
        ],
        "time": {"column": "t", "from": "2000-01-01", "until": "2030-01-01T00:00+01:00"},
    },
    {"format": "csv", "delimiter": ";", "quote": False, "header": True, "columns": [{"name": "a", "type": "bool"}],
     "time": {"row_order": {"start": "2026-01-01T00:00Z", "rows_per_hour": 500}}},
    {"format": "tsv", "quote": True, "columns": [{"name": "a", "type": "timestamp", "separator": "|"}],
     "time": {"column": "day", "file_name": "clicks_%Y%m%d*.tsv", "zone": "Asia/Shanghai"}},
    {"format": "csv", "columns": [{"name": "a", "type": "int64"}], "time": {"fixed": "2026-01-01T00:00Z"}},
    {"format": "csv", "columns": [{"name": "t", "type": "timestamp", "unit": "s"}], "time": {"column": "t", "unit": "s"}},
    GOOD,
]  # fmt: skip


@pytest.mark.parametrize("document", EVERY_ENTRY)
def test_a_schema_is_written_as_it_is_read(document: dict[str, object]) -> None:
    schema = LogSchema.from_document(document)
    written = json.loads(json.dumps(schema.to_document()))
    assert LogSchema.from_document(written) == schema
    assert LogSchema.from_document(written).to_document() == written


def test_a_made_up_time_is_one_column_more() -> None:
    schema = LogSchema.from_document(EVERY_ENTRY[2])
    assert schema.names == ("a",)
    assert schema.arrow_schema.names == ["a", "day"]


TEXT = {"name": "a", "type": "string"}
TIME = {"name": "time", "type": "timestamp"}


@pytest.mark.parametrize(
    ("change", "column", "place", "value"),
    [
        ({}, {"format": "%Q"}, "columns[1].format", "%Q"),
        ({}, {"format": "%H:%M"}, "columns[1].format", "%H:%M"),
        ({}, {"format": "%Y-%m-%d %I:%M"}, "columns[1].format", "%Y-%m-%d %I:%M"),
        ({}, {"format": "%Y-%m-%d %Y"}, "columns[1].format", "%Y"),
        ({}, {"format": "%"}, "columns[1].format", "%"),
        ({}, {"format": []}, "columns[1].format", 0),
        ({}, {"format": "%s", "unit": "s"}, "columns[1].unit", "s"),
        ({}, {"zone": "Europe/Belrin"}, "columns[1].zone", "Europe/Belrin"),
        ({}, {"separator": "|"}, "columns[1].separator", "|"),
        ({}, {"list": True}, "columns[1].list", True),
        ({}, {"thousands": ","}, "columns[1].thousands", ","),
        ({"columns": [{**TEXT, "path": "x"}, TIME]}, {}, "columns[0].path", "x"),
        ({"columns": [{**TEXT, "json": True}, TIME]}, {}, "columns[0].json", True),
        ({"columns": [{"name": "a", "type": "float64", "thousands": "."}, TIME]}, {}, "columns[0].thousands", "."),
        ({"columns": [{"name": "a", "type": "int64", "thousands": "12"}, TIME]}, {}, "columns[0].thousands", "12"),
        ({"encoding": "utf-7"}, {}, "encoding", "utf-7"),
        ({"encoding": "rot13"}, {}, "encoding", "rot13"),
        ({"delimiter": "||"}, {}, "delimiter", "||"),
        ({"delimiter": '"'}, {}, "delimiter", '"'),
        ({"format": "tsv", "delimiter": ","}, {}, "delimiter", ","),
        ({"time": {"column": "time", "fixed": "2026-01-01"}}, {}, "time.column", "time"),
        ({"time": {"fixed": "2026-13-01"}}, {}, "time.fixed", "2026-13-01"),
        ({"time": {"fixed": "2026-01-01", "unit": "s"}}, {}, "time.unit", "s"),
        ({"time": {"fixed": "2026-01-01", "file_name": "%Y.csv"}}, {}, "time", "fixed and file_name"),
        ({"time": {"file_name": "clicks.csv"}}, {}, "time.file_name", "clicks.csv"),
        ({"time": {"row_order": {"start": "2026-01-01", "rows_per_hour": 0}}}, {}, "time.row_order.rows_per_hour", 0),
        ({"time": {"column": "time", "from": "2026-01-02", "until": "2026-01-01"}}, {}, "time.until", "2026-01-01"),
        ({"time": {"column": "time", "until": "9999-12-31T01:00"}}, {}, "time.until", "9999-12-31T01:00"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_meant_is_refused(
    change: dict[str, object], column: dict[str, object], place: str, value: object
) -> None:
    document = {"format": "csv", "columns": [TEXT, {**TIME, **column}], "time": {"column": "time"}, **change}
    with pytest.raises(LogSchemaError) as caught:
        LogSchema.from_document(document, where="s")
    assert (caught.value.where, caught.value.value) == (f"s, {place}", value)
