"""The commands from a folder of Parquet to a trained model, and their output.

Golden texts live in ``goldens/``; ``HEADRACE_WRITE_GOLDENS=1 pytest …`` rewrites them, to be reviewed.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.demo.sample_log import write_sample_log
from headrace.terminal.user import user_name
from tests.headrace.conftest import SMALL, UNTRIED

GOLDENS = Path(__file__).parent / "goldens"
#: What differs from run to run: durations, folders, sizes on disk, ids of plans.
_VARYING = (
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b|\b\d+ m \d+ s\b"), "<time>"),
    (re.compile(r"(/[\w.~-]+)+"), "<path>"),
    (re.compile(r"\b\d+(\.\d+)? [KMG]?i?B\b"), "<size>"),
    # Two sizes that look alike are spelled out.
    (re.compile(r"<size> → <size>"), "<size> before, <size> after"),
    (re.compile(r"\bplan +[0-9a-f]{12}\b"), "plan <id>"),
    (re.compile(r"[ ─]{2,}"), "  "),
    # What is cheaper depends on measured seconds.
    (re.compile(r"(\bhit  \d+  \d+  )(?:load|compute)\b"), r"\1<how>"),
)


def check_golden(name: str, text: str) -> None:
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    text = "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"
    place = GOLDENS / f"{name}.txt"
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        place.write_text(text, encoding="utf-8")
    assert text == place.read_text(encoding="utf-8")


@pytest.mark.slow
def test_from_a_folder_of_parquet_to_a_trained_model(cli, small_log, models_file, tmp_path):
    check_golden("table_add", cli("table", "add", "log", small_log, "--time-column", "time").out)
    check_golden("table_ls", cli("table", "ls").out)
    check_golden("table_show", cli("table", "show", "log").out)
    check_golden("model_submit_first", cli("model", "submit", models_file, "--table", "log", "--model", "first").out)
    check_golden("model_explain_misses", cli("model", "explain", "first").out)
    check_golden("work", cli("work", "--until-idle").out)
    check_golden("model_submit_all", cli("model", "submit", models_file, "--table", "log").out)
    cli("work", "--until-idle")
    check_golden("model_explain_hits", cli("model", "explain", "second").out)
    check_golden("model_ls", cli("model", "ls").out)
    check_golden("model_show", cli("model", "show", "second").out)
    check_golden("graphs_search", cli("graphs", "search", "--operator", "intersect").out)
    found = cli("graphs", "search", "--column", "price", "--json").json["graphs"]
    assert [graph["expression"] for graph in found] == ["log1p(fill_null(price, value=0.0))"]
    drawing = tmp_path / "price.svg"
    check_golden("graphs_show", cli("graphs", "show", found[0]["fingerprint"][:12], "--svg", str(drawing)).out)
    assert drawing.read_text(encoding="utf-8").count("<title>") == 5, "three nodes and two edges"
    assert (
        "cannot be written"
        in cli("graphs", "show", found[0]["fingerprint"], "--svg", "no/such/folder.svg", status=6).err
    )
    check_golden("status", cli("status").out)
    check_golden("work_idle", cli("work", "--until-idle").out)
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({"partitions_per_epoch": 1, "batch_rows": 64, **UNTRIED}), encoding="utf-8")
    train = (
        "train",
        "first",
        "--end",
        "2026-03-02T03:00",
        "--test-end",
        "2026-03-02T04:00",
        "--config",
        settings,
        "--json",
    )
    trained = cli(*train).json
    assert trained["exact"] is True
    assert (trained["table"], trained["table_version"]) == ("log", 1)
    assert trained["counted"] == trained["events_in_range"] == trained["events_this_time"] > 100
    assert len(trained["epochs"]) == 3
    assert {name for row in trained["options"] for name in row["values"]} == {"initial_bias", "dense_scaling"}
    assert 0 < trained["test"]["auc"] < 1
    assert sum(trained["columns_read"].values()) == 9, "three inputs over three hours, loaded or computed"
    assert "log version 1" in cli(*train[:-1]).out
    again = cli(*train).json
    assert again["events_this_time"] == 0
    assert again["test"] == trained["test"]


@pytest.mark.medium
def test_late_rows_cost_only_themselves_and_the_worker_finds_them(submitted, tmp_path):
    cli = submitted
    before = cli("work", "--until-idle", "--json").json
    write_sample_log(tmp_path / "log", SMALL, late=True)
    added = cli("table", "add", "log", tmp_path / "log", "--json").json
    late_rows = (
        sum(row["rows"] for row in cli("table", "show", "log", "--json").json["partitions"]) * 4 - before["rows"]
    )
    assert added["added"] == []
    after = cli("work", "--until-idle", "--json").json
    assert 0 < after["rows"] == late_rows
    assert all(row["hit"] for row in cli("model", "explain", "second", "--json").json["decisions"])


@pytest.mark.medium
def test_explain_says_what_an_eviction_did(submitted):
    cli = submitted
    cli("work", "--until-idle")
    fingerprint = cli("graphs", "search", "--column", "price", "--json").json["graphs"][0]["fingerprint"]
    preview = cli("graphs", "evict", fingerprint[:10])
    assert "would evict 4 memos" in preview.out
    assert "--yes" in preview.out
    assert cli("graphs", "show", fingerprint, "--json").json["memos"] == {"READY": 4}
    cli("graphs", "evict", fingerprint, "--why", "price was wrong", "--yes")
    missed = cli("model", "explain", "first", "--misses").out
    assert "evicted on " in missed
    assert "price was wrong" in missed


def test_evicting_what_storage_does_not_pay_for(submitted):
    cli = submitted
    cli("work", "--until-idle")
    other_policies = cli("graphs", "evict", "--unpaid", "--table", "log", "--json").json
    assert (other_policies["memos"], other_policies["done"]) == (0, False), "the models have the policy all"
    assert "no budget" in cli("graphs", "evict", "--unpaid", "--budget", "1B", status=2).err


@pytest.mark.medium
def test_searching_and_evicting(submitted, tmp_path):
    cli = submitted
    cli("work", "--until-idle")
    searched = ("graphs", "search", "--pattern", "unigrams(lower(_))", "--client", "shopping", "--min-size", "1KB")
    check_golden(
        "graphs_search_pattern", cli(*searched, "--older-than", "2040-01-01", "--sort", "saved", "--count").out
    )
    assert cli(*searched, "--max-size", "1KB").out == "no component matches\n"
    page = cli("graphs", "ls", "--limit", "1", "--offset", "1", "--count", "--json").json
    assert (len(page["graphs"]), page["more"], page["total"]) == (1, True, 4)
    first = cli("graphs", "ls", "--limit", "1", "--json").json
    assert (
        cli("graphs", "ls", "--limit", "1", "--after", first["next_after"], "--json").json["graphs"] == page["graphs"]
    )
    assert "key of a page" in cli("graphs", "search", "--after", "odd", status=2).err
    assert "price" in cli("graphs", "search", "--column", "pryce", status=2).err
    assert "shopping" in cli("graphs", "search", "--client", "shoping", status=4).err
    assert "evicted" in cli("graphs", "search", "--state", "gone", status=2).err
    assert "newest" in cli("graphs", "search", "--sort", "biggest", status=2).err
    assert "12h" in cli("graphs", "search", "--newer-than", "yesterday", status=2).err
    assert "500GB" in cli("graphs", "evict", "--budget", "lots", status=2).err
    assert "must have a condition or a budget" in cli("graphs", "evict", status=2).err

    budget = ("graphs", "evict", "--budget", "1B", "--operator", "hash_buckets@1", "--end", "2026-03-02T02:00")
    check_golden("graphs_evict_budget", cli(*budget).out)
    planned = cli(*budget, "--json").json
    assert "add --yes" in cli(*budget, "--plan", planned["id"], status=2).err
    assert "differs from its plan" in cli(*budget, "--yes", "--plan", "0", status=5).err
    done = cli(*budget, "--yes", "--plan", planned["id"], "--json").json
    assert done == {**planned, "done": True, "eviction": 1}
    check_golden("graphs_evict_nothing", cli("graphs", "evict", "--state", "pending").out)
    assert cli("graphs", "search", "--state", "evicted", "--json").json["graphs"]

    check_golden("table_column", cli("table", "column", "log", "query").out)
    used = cli("table", "column", "log", "query", "--files", tmp_path / "files.csv", "--json").json
    lines = (tmp_path / "files.csv").read_text().splitlines()
    assert lines[0] == "kind,path,size_bytes"
    assert len(lines) == 1 + len(used["files"])
    assert "query" in cli("table", "column", "log", "qurey", status=2).err

    listed = cli("graphs", "evictions", "--json").json
    assert [(one["number"], one["plan"], one["kept_memos"]) for one in listed["evictions"]] == [
        (1, planned["id"], planned["memos"])
    ]
    assert cli("graphs", "evictions", "--before", "1").out == "no eviction was done\n"
    assert "1 to 1" in cli("graphs", "restore", "2", status=4).err
    check_golden("graphs_restore", _without_times(cli("graphs", "restore", "1").out))
    restored = cli("graphs", "restore", "1", "--yes", "--json").json
    assert (restored["done"], restored["memos"], restored["collected_memos"]) == (True, planned["memos"], 0)
    check_golden("graphs_evictions", _without_times(cli("graphs", "evictions").out))
    check_golden("graphs_restore_nothing", _without_times(cli("graphs", "restore", "1").out))
    assert cli(*budget, "--json").json == planned, "as before"


def _without_times(screen: str) -> str:
    """With a fixed time and user in place of those of this run."""
    by = user_name()
    return (
        re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-03-03 00:00", screen)
        .replace(f"by {by}", "by ann")
        .replace(f" {by} ", " ann ")
    )


def test_amounts_and_ages_as_people_write_them():
    from headrace.terminal.quantities import age_of, bytes_of
    from transforms.errors import InputError

    assert [bytes_of("--budget", text) for text in ("", "7", "20 MB", "1.5GiB", "2k", "3 PB")] == [
        None, 7, 20_000_000, 1_610_612_736, 2_000, 3 * 10**15]  # fmt: skip
    day = 86_400.0
    ages = [age_of("--older-than", text, 10 * day) for text in ("", "2", "1.5d", "12h", "1970-01-02")]
    assert ages == [None, 8 * day, 8.5 * day, 9.5 * day, day]
    for text in ("5 parsecs", "GB", "-1"):
        with pytest.raises(InputError):
            bytes_of("--budget", text)
        with pytest.raises(InputError):
            age_of("--older-than", text, 0.0)


def test_limits_of_a_worker_are_amounts_that_make_sense(submitted):
    cli = submitted
    assert "the memory limit must be" in cli("work", "--until-idle", "--memory-limit", "1MB", status=2).err
    assert "a size must be" in cli("work", "--until-idle", "--memory-limit", "much", status=2).err
    assert "the stall limit must be" in cli("work", "--until-idle", "--stall-secs", "0", status=2).err
    done = cli("work", "--until-idle", "--memory-limit", "2GB", "--stall-secs", "120", "--json").json
    assert (done["failures"], done["memos"]) == (0, done["tasks"])


def test_a_new_operator_version_is_named_by_explain(submitted, monkeypatch, models_file):
    import dataclasses

    from transforms.operators import REGISTRY

    cli = submitted
    cli("work", "--until-idle")
    newer = dataclasses.replace(REGISTRY["lower"], version=REGISTRY["lower"].version + 1)
    monkeypatch.setitem(REGISTRY._by_name, "lower", newer)
    cli("model", "submit", models_file, "--table", "log")
    misses = cli("model", "explain", "first", "--misses", "--json").json["decisions"]
    assert {row["input"] for row in misses} == {"overlap"}
    assert {row["reason_code"] for row in misses} == {"operator_version"}
    assert "operator lower version 2 instead of 1" in misses[0]["reason"]


def test_a_corrected_column_is_named_by_explain(submitted, small_log):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    cli = submitted
    cli("work", "--until-idle")
    path = next(iter(sorted(small_log.rglob("*.parquet"))))
    table = pq.read_table(path, partitioning=None)
    at = table.schema.get_field_index("price")
    pq.write_table(table.set_column(at, table.schema.field(at), pc.multiply(table["price"], 2.0).cast("float")), path)
    cli("table", "add", "log", small_log)
    misses = cli("model", "explain", "first", "--misses", "--json").json["decisions"]
    assert [(row["input"], row["reason_code"]) for row in misses] == [("price", "data_changed")]
    assert "data changed in column price" in misses[0]["reason"]


def test_an_unchanged_model_queues_nothing_and_is_reported(submitted, models_file):
    again = submitted("model", "submit", models_file, "--table", "log", "--json").json["models"]
    assert [(row["version"], row["unchanged"], row["queued"]) for row in again] == [(1, True, 0), (1, True, 0)]


def test_files_are_submitted_together_or_not_at_all(cli, small_log, models_file, tmp_path):
    cli("table", "add", "log", small_log, "--time-column", "time")
    other = tmp_path / "other.py"
    other.write_text(models_file.read_text(encoding="utf-8").replace('"first"', '"third"'), encoding="utf-8")
    said = cli("model", "submit", models_file, other, "--table", "log", status=2).err
    assert "models that are submitted together must have different names" in said
    assert cli("model", "ls", "--json").json["models"] == []
    other.write_text(other.read_text(encoding="utf-8").replace('"second"', '"fourth"'), encoding="utf-8")
    rows = cli("model", "submit", models_file, other, "--table", "log", "--json").json["models"]
    assert [row["model"] for row in rows] == ["first", "second", "third", "fourth"]


def test_a_submission_reports_changed_settings(submitted, models_file):
    submit = ("model", "submit", models_file, "--table", "log", "--model", "first")
    said = submitted(*submit, "--policy", "adaptive").out
    assert "policy: all -> adaptive" in said
    assert "unchanged" not in said
    assert "unchanged" in submitted(*submit).out
    models_file.write_text(
        models_file.read_text(encoding="utf-8").replace('"search", 10', '"search", 30'), encoding="utf-8"
    )
    (row,) = submitted(*submit, "--policy", "all", "--json").json["models"]
    assert (row["version"], row["unchanged"]) == (1, True)
    assert row["changes"] == ["policy: adaptive -> all", "priority: 10 -> 30"]


@pytest.mark.medium
def test_a_model_is_retired_and_restored(submitted, models_file):
    cli = submitted
    cli("work", "--until-idle")
    models_file.write_text(models_file.read_text(encoding="utf-8").replace("1000", "2000"), encoding="utf-8")
    cli("model", "submit", models_file, "--table", "log", "--model", "second")
    check_golden("model_retire_planned", cli("model", "retire", "second").out)
    assert len(cli("model", "ls", "--json").json["models"]) == 2, "nothing was changed"
    check_golden("model_retire_done", cli("model", "retire", "second", "--yes").out)
    assert [row["name"] for row in cli("model", "ls", "--json").json["models"]] == ["first"]
    assert cli("work", "--until-idle").out == "nothing was queued\n"
    assert "not live" in cli("model", "show", "second").out
    check_golden("model_retire_again", cli("model", "retire", "second", "--yes").out)
    row = cli("model", "retire", "first", "--yes", "--json").json
    assert (row["live"], row["done"], row["memos"], row["own_memos"]) == (True, True, 12, 12)
    assert "there is no live model" in cli("model", "ls").out
    error = cli("model", "retire", "secnd", status=4).err
    assert "allowed: second" in error
    (back,) = cli("model", "submit", models_file, "--table", "log", "--model", "second", "--json").json["models"]
    assert (back["version"], back["unchanged"], back["shared"], back["changes"]) == (2, True, 4, ["retired -> live"])
    assert "memos" in cli("work", "--until-idle").out


def test_a_text_log_is_imported_and_bad_rows_are_rejected(cli, tmp_path):
    (tmp_path / "clicks.tsv").write_text(
        "1\tshoes\t1772409600\t1\n2\tred shoes\t1772413200\t0\nthree\thats\t1772413201\t0\n4\thats\t1772413202\n",
        encoding="utf-8",
    )
    schema = {
        "format": "tsv",
        "columns": [
            {"name": "user_id", "type": "int64"},
            {"name": "query", "type": "string"},
            {"name": "time", "type": "timestamp"},
            {"name": "clicked", "type": "bool"},
        ],
        "time": {"column": "time", "unit": "s"},
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    arguments = ("table", "import", "clicks", tmp_path / "clicks.tsv", "--schema", tmp_path / "schema.json")
    refused = cli(*arguments, status=3)
    assert "rejected" in refused.err
    answer = cli(*arguments, "--max-reject-share", "0.5", "--json").json
    assert (answer["rows"], answer["rejected"], answer["partitions"]) == (2, 2, 2)
    (side_file,) = Path(answer["rejects_folder"]).glob("*.jsonl")
    rejects = [json.loads(line) for line in side_file.read_text(encoding="utf-8").splitlines()]
    assert [reject["line"] for reject in rejects] == [3, 4]
    assert rejects[0]["reason"]["column"] == "user_id"
    assert cli("table", "ls", "--json").json["tables"][0]["rows"] == 2


def test_every_command_has_help(capsys):
    groups = [[], ["table"], ["model"], ["graphs"], ["tasks"], ["clients"]]
    commands = [["table", name] for name in ("add", "import", "ls", "show")]
    commands += [["model", name] for name in ("submit", "ls", "show", "explain", "export", "retire")]
    commands += [["graphs", name] for name in ("ls", "show", "search", "evict")]
    commands += [["tasks", name] for name in ("list", "show", "retry", "drop")]
    commands += [["clients", name] for name in ("list", "set")]
    commands += [["runs", name] for name in ("ls", "show", "diff", "plot")]
    commands += [["pins"], ["gc"], ["compact"], ["verify"]]
    for words in [*groups, *commands, ["work"], ["train"], ["predict"], ["status"], ["demo"]]:
        assert run([*words, "--help"]) == 0
        text = capsys.readouterr().out
        assert "Usage: headrace" in text
        if words in commands:
            assert "--json" in text


def test_the_answer_can_be_recorded_beside_the_table(tmp_path, capsys):
    assert run(["init", "--home", str(tmp_path / "home")]) == 0
    assert run(["--record", str(tmp_path / "answer.json"), "table", "ls", "--home", str(tmp_path / "home")]) == 0
    assert "no table is registered" in capsys.readouterr().out
    assert json.loads((tmp_path / "answer.json").read_text(encoding="utf-8")) == {"tables": []}
