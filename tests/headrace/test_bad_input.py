"""Bad input: one message with place, value and next step, an exit status, and no trace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.headrace.conftest import MODELS
from tests.support.processes import PATIENCE_SECS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(cli, small_log):
    cli("table", "add", "log", small_log, "--time-column", "time")
    return small_log


def submit(cli, tmp_path, text, status):
    path = tmp_path / "bad_models.py"
    path.write_text("import headrace as hr\nm = hr.Model('m', client='c', label='clicked')\n" + text, encoding="utf-8")
    answer = cli("model", "submit", path, "--table", "log", status=status)
    assert answer.out == ""
    assert cli("model", "ls", "--json").json["models"] == []
    return answer.err


def test_unknown_column_names_the_nearest(cli, tmp_path, table):
    error = submit(cli, tmp_path, "m.input('words', hr.text('qurey').unigrams().hash_buckets(9))\n", 2)
    assert "no such column" in error
    assert "model m, input words" in error
    assert "'qurey'" in error
    assert "query" in error


def test_wrong_operator_argument_names_operator_and_line(cli, tmp_path, table):
    error = submit(cli, tmp_path, "m.input('p', hr.float32('price').unigrams())\n", 2)
    assert "operator unigrams does not take Dense[float32]" in error
    assert "bad_models.py:3" in error
    assert "allowed: Dense[string]" in error


def test_a_column_of_another_type_than_declared(cli, tmp_path, table):
    error = submit(cli, tmp_path, "m.input('p', hr.int64('price').hash_buckets(5))\n", 2)
    assert "'price' is not stored as it is declared" in error
    assert "float" in error


def test_duplicate_input(cli, tmp_path, table):
    error = submit(cli, tmp_path, "m.input('p', hr.float32('price'))\nm.input('p', hr.float32('price'))\n", 2)
    assert "different names" in error


def test_a_model_file_that_raises(cli, tmp_path, table):
    error = submit(cli, tmp_path, "raise RuntimeError('no features today')\n", 2)
    assert "raised an exception" in error
    assert "RuntimeError: no features today" in error
    assert "bad_models.py:3" in error


def test_unknown_label(cli, tmp_path, table):
    path = tmp_path / "m.py"
    path.write_text(
        "import headrace as hr\nm = hr.Model('m', client='c', label='click')\nm.input('p', hr.float32('price'))\n"
    )
    assert "clicked" in cli("model", "submit", path, "--table", "log", status=2).err


def test_a_partition_without_files(cli, small_log):
    (small_log / "date=2026-03-02" / "hour=09").mkdir()
    error = cli("table", "add", "log", small_log, status=3).err
    assert "a partition must have a Parquet file" in error
    assert "date=2026-03-02/hour=09" in error
    assert cli("table", "ls", "--json").json["tables"] == []


def test_a_file_whose_schema_drifted(cli, small_log):
    path = small_log / "date=2026-03-02" / "hour=02" / "part-0.parquet"
    table = pq.read_table(path, partitioning=None)
    at = table.schema.get_field_index("position")
    pq.write_table(table.set_column(at, "position", table["position"].cast(pa.string())), path)
    error = cli("table", "add", "log", small_log, status=3).err
    for part in ("position", "string", "int64", "hour=02/part-0.parquet"):
        assert part in error


def test_a_truncated_file(cli, small_log):
    path = small_log / "date=2026-03-02" / "hour=01" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-200])
    error = cli("table", "add", "log", small_log, status=3).err
    assert "hour=01/part-0.parquet" in error
    assert cli("table", "ls", "--json").json["tables"] == []


@pytest.mark.slow
def test_a_raw_file_that_changed_after_it_was_registered(cli, tmp_path, table):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    path = next(iter(sorted(table.rglob("*.parquet"))))
    old = pq.read_table(path, partitioning=None)
    at = old.schema.get_field_index("price")
    pq.write_table(old.set_column(at, "price", pa.array([1.0] * len(old), pa.float32())), path)
    done = cli("work", "--until-idle", "--json").json
    assert done["failures"] > 0
    assert done["memos"] > 0
    failed = list(cli("model", "explain", "first", "--misses", "--json").json["decisions"])
    assert {row["input"] for row in failed} == {"price"}
    assert all("changed" in row["reason"] for row in failed)


PICKY = """
import headrace as hr

@hr.op(result="string")
def picky(text):
    raise ValueError(f"cannot read {text[0]}")

m = hr.Model("picky", client="c", label="clicked", table="log")
m.input("a", picky(hr.text("query")))
"""


@pytest.mark.slow
def test_equal_failures_are_one_line_of_explain_with_an_event(cli, tmp_path, table):
    (tmp_path / "models.py").write_text(PICKY, encoding="utf-8")
    cli("model", "submit", tmp_path / "models.py")
    cli("work", "--until-idle")
    decisions = cli("model", "explain", "picky", "--json").json["decisions"]
    assert len({one["reason"] for one in decisions}) > 1, "each fragment's failure names its own event"
    shown = cli("model", "explain", "picky").out
    for said in ("raised ValueError;", "value: 'cannot read", "python_function(query, picky", "event 0: {"):
        assert shown.count(said) == 1


def test_names_that_do_not_exist(cli, table):
    assert "allowed: log" in cli("table", "show", "lag", status=4).err
    assert "no such model" in cli("model", "explain", "m", status=4).err
    assert "no such model" in cli("train", "m", status=4).err
    assert "no such component" in cli("graphs", "show", "abc", status=4).err
    assert "no such table" in cli("model", "submit", ROOT / "examples" / "search_ads.py", "--table", "x", status=4).err


def test_options_that_cannot_be(cli, tmp_path):
    assert "a time must be ISO 8601" in cli("train", "m", "--end", "yesterday", status=2).err
    assert "--test-end must go with --end" in cli("train", "m", "--test-end", "2026-03-02", status=2).err
    assert "No such option" in cli("table", "ls", "--bogus", status=2).err
    assert "must name a table" in _models_without_table(cli, tmp_path)


ONE_WITHOUT_TABLE = """
import headrace as hr

first = hr.Model("first", client="c", label="clicked", table="log")
first.input("length", hr.text("query").length())
second = hr.Model("second", client="c", label="clicked")
second.input("length", hr.text("query").length())
"""


def test_a_file_with_one_model_without_a_table_is_refused_as_a_whole(cli, tmp_path, table):
    path = tmp_path / "models.py"
    path.write_text(ONE_WITHOUT_TABLE, encoding="utf-8")
    error = cli("model", "submit", path, status=2).err
    assert "a model must name a table" in error
    assert "model second" in error
    assert cli("model", "ls", "--json").json["models"] == []


def test_a_file_with_one_model_of_another_client_is_refused_as_a_whole(cli, tmp_path, table):
    path = tmp_path / "models.py"
    path.write_text(ONE_WITHOUT_TABLE, encoding="utf-8")
    cli("model", "submit", path, "--table", "log", "--model", "second")
    path.write_text(ONE_WITHOUT_TABLE.replace('client="c"', 'client="d"'), encoding="utf-8")
    error = cli("model", "submit", path, "--table", "log", status=2).err
    assert "client must be the one that the model belongs to" in error
    assert [row["name"] for row in cli("model", "ls", "--json").json["models"]] == ["second"]


def test_a_range_without_events(cli, tmp_path, table):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    error = cli("train", "first", "--end", "1999-01-01", status=2).err
    assert "the range must hold events" in error
    assert "headrace table show log" in error


def _models_without_table(cli, tmp_path):
    path = tmp_path / "models.py"
    path.write_text(MODELS, encoding="utf-8")
    return cli("model", "submit", path, status=2).err


def headrace(*arguments: str, home: Path, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-m", "headrace", *arguments]
    environment = {**os.environ, "HEADRACE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_second_process_on_a_run_folder_gets_an_error_with_its_holder(cli, tmp_path, table):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    from trainer.run.progress.lock import run_lock

    with run_lock(tmp_path / "run"):
        error = cli("train", "first", "--run-dir", tmp_path / "run", status=5).err
    assert str(os.getpid()) in error


@pytest.mark.slow
def test_a_second_process_on_a_locked_catalog_waits_and_then_fails(tmp_path, small_log, monkeypatch):
    import sqlite3

    home = tmp_path / "home"
    first = headrace("table", "add", "log", str(small_log), home=home)
    assert first.communicate(timeout=PATIENCE_SECS)
    assert first.returncode == 0
    monkeypatch.setenv("HEADRACE_BUSY_TIMEOUT_SECS", "0.5")
    with sqlite3.connect(home / "catalog.db", isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        (small_log / "date=2026-03-02" / "hour=00" / "more.parquet").write_bytes(
            next(iter(small_log.rglob("part-0.parquet"))).read_bytes()
        )
        second = headrace("table", "add", "log", str(small_log), home=home)
        _, error = second.communicate(timeout=PATIENCE_SECS)
        holder.execute("ROLLBACK")
    assert second.returncode == 5, error
    assert "catalog.db" in error
    assert "Traceback" not in error
    third = headrace("table", "add", "log", str(small_log), home=home)
    assert third.communicate(timeout=PATIENCE_SECS)
    assert third.returncode == 0


@pytest.mark.slow
def test_a_full_disk_is_one_clear_error_and_nothing_is_half_written(tmp_path, cli, table):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    # A limit on the size of files makes the kernel refuse a write in the middle, as a full disk does.
    limited = ("bash", "-c", 'ulimit -f 1 && exec "$@"', "bash")
    worker = headrace("work", "--until-idle", home=tmp_path / "home", prefix=limited)
    _, error = worker.communicate(timeout=PATIENCE_SECS)
    assert worker.returncode == 6, error
    assert "Traceback" not in error
    for path in (tmp_path / "home" / "memos").rglob("*"):
        assert not path.is_file() or path.name.startswith(".")
    assert cli("work", "--until-idle", "--json").json["failures"] == 0
    assert all(row["hit"] for row in cli("model", "explain", "first", "--json").json["decisions"])


#: When a signal that nothing came of is taken to have been swallowed: longer than a busy machine needs to heed it.
_SWALLOWED_SECS = 100


def _interrupted(process):
    """What a process wrote that was interrupted; once more if a library that was being loaded swallowed it."""
    for _ in range(4):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=_SWALLOWED_SECS)[1]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    raise AssertionError("the command goes on whatever one types")


@pytest.mark.slow
def test_an_interrupted_command_leaves_quietly(tmp_path):
    headrace("init", home=tmp_path / "home").communicate()
    worker = headrace("work", home=tmp_path / "home")
    deadline = time.monotonic() + PATIENCE_SECS
    while "_sqlite3" not in Path(f"/proc/{worker.pid}/maps").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)  # until it opens the catalog
    time.sleep(1)
    error = _interrupted(worker)
    assert worker.returncode == 130, error
    assert "Traceback" not in error


ENDLESS = """
import headrace as hr

@hr.op(result="int64")
def endless(position):
    count = 0
    while True:
        count += 1

model = hr.Model("endless", client="c", label="clicked", table="log")
model.input("place", endless(hr.int64("position")))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("told", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_worker_is_interrupted_whatever_it_computes(tmp_path, cli, table, told, status):
    """One line, and the tasks are in the queue again at once, though what it computes would never end."""
    models = tmp_path / "models.py"
    models.write_text(ENDLESS, encoding="utf-8")
    cli("model", "submit", models)
    worker = headrace("work", "--stall-secs", "3600", home=tmp_path / "home")
    deadline = time.monotonic() + PATIENCE_SECS
    while not sum(row["leased"] for row in cli("status", "--json").json["queues"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    worker.send_signal(told)
    try:
        _, error = worker.communicate(timeout=PATIENCE_SECS)
    finally:
        worker.kill()
    assert worker.returncode == status, error
    said = [line for line in error.splitlines() if not line.startswith("memoizing:")]
    assert said == ["stopped after 0 memos, which are stored; all other tasks are queued again"]
    (queue,) = cli("status", "--json").json["queues"]
    assert (queue["queued"], queue["leased"]) == (4, 0)
    assert {row["attempts"] for row in cli("tasks", "list", "--each", "--json").json["tasks"]} <= {0}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("command", "package", "extra"), [("work", "apache_beam", "beam"), ("train", "scipy", "train")]
)
def test_a_missing_extra_is_named(cli, tmp_path, table, command, package, extra):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    program = f"import sys; sys.modules[{package!r}] = None; from headrace.cli.main import main; main({[command, 'first'][: 1 + (command == 'train')]!r})"
    environment = {**os.environ, "HEADRACE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'headrace[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def import_log(cli, tmp_path, name, rows, price="float32", status=0):
    columns = [
        {"name": "user_id", "type": "int64"},
        {"name": "price", "type": price},
        {"name": "time", "type": "timestamp"},
    ]
    schema = {"format": "tsv", "columns": columns, "time": {"column": "time", "unit": "s"}}
    (tmp_path / "schema.json").write_text("\ufeff" + json.dumps(schema), encoding="utf-8")
    (tmp_path / f"{len(rows)}.tsv").write_text("".join(f"{n}\t1.5\t{1772409600 + n}\n" for n in rows), encoding="utf-8")
    return cli(
        "table", "import", name, tmp_path / f"{len(rows)}.tsv", "--schema", tmp_path / "schema.json", status=status
    )


@pytest.mark.parametrize("name", ["my clicks", "../../evil", ".hidden"])
def test_an_import_under_an_impossible_name_writes_nothing(cli, tmp_path, name):
    assert "the name of a table must consist of letters" in import_log(cli, tmp_path, name, range(3), status=2).err
    assert not list(tmp_path.rglob("*.parquet"))


def test_an_import_of_another_schema_is_refused_before_it_writes(cli, tmp_path):
    import_log(cli, tmp_path, "clicks", range(3))
    before = sorted(tmp_path.rglob("*.parquet"))
    assert "price" in import_log(cli, tmp_path, "clicks", range(5), price="string", status=3).err
    assert sorted(tmp_path.rglob("*.parquet")) == before
    import_log(cli, tmp_path, "clicks", range(5))
    assert cli("table", "ls", "--json").json["tables"][0]["rows"] == 8


def test_a_wrong_path_does_not_move_a_table_and_removed_partitions_are_reported(cli, table, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(table, other)
    error = cli("table", "add", "log", other, status=2).err
    assert "must be the one of the registered table" in error
    shutil.rmtree(other / "date=2026-03-02" / "hour=03")
    assert "removed: date=2026-03-02/hour=03" in cli("table", "add", "log", other, "--move").out


def test_partitions_over_the_same_time_are_refused(cli, table):
    shutil.copy(next(iter(table.rglob("*.parquet"))), table / "date=2026-03-02" / "day.parquet")
    error = cli("table", "add", "log", table, status=3).err
    assert "partitions must not overlap in time" in error
    assert "date=2026-03-02/hour=00 and date=2026-03-02" in error


def test_a_file_with_one_bad_model_submits_none(cli, table, tmp_path):
    models = tmp_path / "models.py"
    models.write_text(MODELS + "\nsecond.input('bad', hr.text('nothing').hash_buckets(5))\n", encoding="utf-8")
    assert "no such column" in cli("model", "submit", models, "--table", "log", status=2).err
    assert cli("model", "ls", "--json").json["models"] == []


@pytest.mark.parametrize(
    ("options", "part"),
    [('{"dims": 5}', "dims"), ('{"bottom_mlp": 64}', "bottom_mlp"), ('{"tables": {"user": 3}}', "tables['user']"),
     ('{"batch_row": 5}', "batch_rows"), ('{"network": "nothing:build"}', "must be importable"), ("[]", "must be a JSON object"), ("{", "cannot be read")],
)  # fmt: skip
def test_training_options_of_the_wrong_shape(cli, table, tmp_path, options, part):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    (tmp_path / "training.json").write_text(options, encoding="utf-8")
    assert part in cli("train", "first", "--config", tmp_path / "training.json", status=2).err


def test_a_baseline_that_is_no_number_is_refused_before_training(cli, table, tmp_path):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    train = ("train", "first", "--end", "2026-03-02T03:00", "--test-end", "2026-03-02T04:00", "--baseline")
    assert "a baseline must be a number" in cli(*train, "query", status=2).err
    assert "no such column" in cli(*train, "pryce", status=2).err
    assert not (tmp_path / "home" / "runs").exists()


@pytest.mark.slow
def test_failures_are_shown_and_can_be_retried(cli, table, tmp_path):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log", "--model", "first")
    path = next(iter(sorted(table.rglob("*.parquet"))))
    stored = path.read_bytes()
    pq.write_table(pq.read_table(path).slice(1), path)
    assert cli("work", "--until-idle", "--json").json["failures"] > 0
    again = cli("model", "submit", models, "--table", "log", "--model", "first")
    assert "3 are quarantined" in again.out
    path.write_bytes(stored)
    assert "would queue again 3 tasks" in cli("tasks", "retry", "--all").out
    assert cli("work", "--until-idle", "--json").json["tasks"] == 0, "that was a dry run"
    assert "queued again 3 tasks" in cli("tasks", "retry", "--all", "--yes").out
    assert "3 memos" in cli("work", "--until-idle").out
    assert all(row["hit"] for row in cli("model", "explain", "first", "--json").json["decisions"])


@pytest.mark.slow
def test_a_file_that_is_not_there_is_tried_again_later_or_at_once_when_asked(cli, table, tmp_path):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log", "--model", "first")
    path = next(iter(sorted(table.rglob("*.parquet"))))
    path.rename(tmp_path / "kept.parquet")
    assert "3 tasks wait for another attempt" in cli("work", "--until-idle").out
    assert cli("work", "--until-idle").out.startswith("3 tasks wait"), "nothing else was there to do"
    listed = cli("tasks", "list").out
    assert "unreadable" in listed
    assert str(path) in listed.replace("\n", "")
    (tmp_path / "kept.parquet").rename(path)
    assert "queued again 3 tasks" in cli("tasks", "retry", "--all", "--yes").out
    assert "3 memos" in cli("work", "--until-idle").out


def test_tables_that_fit_no_machine(cli, table, tmp_path):
    models = tmp_path / "models.py"
    models.write_text(MODELS + "\nfirst.input('huge', hr.text('query').hash_buckets(10**15))\n", encoding="utf-8")
    cli("model", "submit", models, "--table", "log", "--model", "first")
    assert "must fit in memory" in cli("train", "first", status=2).err


@pytest.mark.medium
def test_an_unknown_runner(cli, table, tmp_path):
    models = tmp_path / "models.py"
    models.write_text(MODELS, encoding="utf-8")
    cli("model", "submit", models, "--table", "log")
    assert "'FooRunner'" in cli("work", "--until-idle", "--runner", "FooRunner", status=2).err
    assert cli("work", "--until-idle", "--json").json["memos"] == 16


def test_an_import_without_a_row(cli, tmp_path):
    assert "must hold readable rows" in import_log(cli, tmp_path, "clicks", [], status=3).err


@pytest.mark.medium
def test_small_mistakes_are_no_defects(cli, table, tmp_path):
    assert "--limit" in cli("graphs", "ls", "--limit", "-1", status=2).err
    assert "cannot be written" in _record_nowhere(tmp_path)
    assert "local folder" in _home_elsewhere()
    assert "a condition must be an expression" in submit(cli, tmp_path, "m.input('p', hr.if_else(True, 1, 2))\n", 2)


def _record_nowhere(tmp_path):
    done = headrace("--record", "/no/such/folder/x.json", "init", home=tmp_path / "home")
    _, error = done.communicate(timeout=PATIENCE_SECS)
    assert done.returncode == 6
    return error


def _home_elsewhere():
    done = headrace("status", home=Path("x"), prefix=("env", "HEADRACE_HOME=s3://bucket/x"))
    _, error = done.communicate(timeout=PATIENCE_SECS)
    assert done.returncode == 2
    return error


@pytest.mark.parametrize(
    "option", ["--pattern", "--model", "--column", "--min-size", "--start", "--older-than", "--budget"]
)
def test_an_empty_condition_does_not_widen_an_eviction(cli, option):
    error = cli("graphs", "evict", "--operator", "unigrams", option, "", "--yes", status=2).err
    assert "a condition must have a value" in error
    assert option in error


def test_paths_and_partitions_that_are_mistyped(cli, table, tmp_path):
    assert "check the path" in cli("table", "append", "log", tmp_path / "lete.parquet", status=2).err
    assert (
        "check the path" in cli("table", "overlay", "log", tmp_path / "lete.parquet", "--on", "user_id", status=2).err
    )
    assert "check the path" in cli("table", "overlay", "log", tmp_path / "values", status=2).err
    file = next(table.rglob("*.parquet"))
    assert "--on KEY" in cli("table", "overlay", "log", file, status=2).err
    assert "hour=HH" in cli("table", "append", "log", file, "--partition", "date=2026-03-02/hour=99", status=2).err
