"""From a raw log to a table with an inferred schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.inference.test_infer import LOGS, ROWS, WITHOUT_TIME


@pytest.fixture
def schema(cli, tmp_path):
    (tmp_path / "coupons.csv").write_bytes(LOGS["coupons.csv"]())
    return tmp_path / "schema.json"


def test_an_import_without_a_schema_names_the_command_that_makes_one(cli, schema, tmp_path):
    log = tmp_path / "coupons.csv"
    error = cli("table", "import", "ads", log, status=2).err
    assert f"headrace table infer {log} --output schema.json writes one" in error
    error = cli("table", "import", "ads", log, "--schema", schema, status=2).err
    assert f"headrace table infer {log} --output {schema} writes one" in error


def test_the_screen_shows_what_was_found(cli, schema, tmp_path):
    shown = cli("table", "infer", tmp_path / "coupons.csv", "--output", schema)
    assert "80 rows of 1 file" in shown.out
    assert "I_DATE, iso8601" in shown.out
    assert "PURCHASE_FLG" in shown.out
    assert "unsure: the times have no zone" in shown.out
    assert f"then headrace table import NAME {tmp_path}/coupons.csv --schema {schema}" in shown.out
    assert "must not exist yet" in cli("table", "infer", tmp_path / "coupons.csv", "--output", schema, status=2).err
    found = cli("table", "infer", tmp_path / "coupons.csv", "--output", "-", "--json").json
    assert found["labels"] == ["PURCHASE_FLG"]
    printed = cli("table", "infer", tmp_path / "coupons.csv", "--output", "-", "--rows", "10").out
    assert printed.startswith("{\n  // 10 rows")


@pytest.mark.parametrize("name", sorted(LOGS))
def test_an_inferred_schema_is_imported_as_it_is(cli, tmp_path, name):
    (tmp_path / name).write_bytes(LOGS[name]())
    order = ["--row-order"] if name in WITHOUT_TIME else []
    cli("table", "infer", tmp_path / name, "--output", tmp_path / "schema.json", *order)
    done = cli("table", "import", "log", tmp_path / name, "--schema", tmp_path / "schema.json", "--json").json
    assert (done["rows"], done["rejected"]) == (len(ROWS), 0)


@pytest.mark.parametrize(
    "name", ["app_installs.tsv", "coupons.csv", "home_search.csv", "news_clicks.jsonl", "web_search_20260214.txt"]
)
def test_the_made_up_public_logs_are_imported_as_inferred(cli, tmp_path, name):
    log = Path(__file__).parents[1] / "data/logs" / name
    # The searches have no times; 1 of 37 views has an implausible one, which leaves fewer than 99 %.
    chosen = {"home_search.csv": ["--row-order"], "coupons.csv": ["--time-column", "view_time"]}.get(name, [])
    found = cli("table", "infer", log, "--output", tmp_path / "schema.json", *chosen, "--json").json
    options = ("--schema", tmp_path / "schema.json", "--max-reject-share", "0.2")
    done = cli("table", "import", "log", log, *options, "--json").json
    assert done["rows"] >= 0.8 * found["rows"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["kafka://b:9092/clicks", "more.csv"], "a topic must be sampled alone"),
        (["kafka://b:9092/clicks", "--row-order"], "give --time-column kafka_time in its place"),
        (["kafka://b:9092/clicks", "--no-time"], "the event time of messages must be a field"),
        (["kafka://clicks"], "a topic must have brokers with ports and a name"),
        (["log.csv", "--client-config", "client.properties"], "--client-config must go with a topic"),
        (
            ["kafka://b:9092/clicks", "--client-config", "missing"],
            "the file of client properties must be readable text",
        ),
    ],
)
def test_options_that_do_not_fit_the_source_are_refused_before_it_is_reached(cli, arguments, text, tmp_path):
    output = tmp_path / "schema.json"
    assert text in " ".join(cli("table", "infer", *arguments, "--output", output, status=2).err.split())
    assert not output.exists()
