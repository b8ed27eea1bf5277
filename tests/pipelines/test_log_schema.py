from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.errors import LogSchemaError
from pipelines.log_schema import LogSchema, LogTime
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
    with pytest.raises(LogSchemaError, match="not JSON") as caught:
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
        ({"time": {"column": "time", "unit": "minutes"}}, "s, time.unit", "minutes", "s, ms, us, iso8601"),
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


@pytest.mark.parametrize("entry", ["format", "columns", "time"])
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
        ('{"format": "\\ud800"}', "missing"),
        (json.dumps({**GOOD, "null": ["\ud800"]}), "lone surrogate"),
        (json.dumps({**GOOD, "columns": [{"name": "\udfff", "type": "string"}]}), "lone surrogate"),
        (" " * (17 << 20), "too long"),
    ],
)
def test_a_hostile_schema_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(LogSchemaError, match=problem) as caught:
        LogSchema.from_file(str(path))
    assert caught.value.where.startswith(str(path))
