"""Runners and Beam's options on the command line."""

from __future__ import annotations

import json

import pytest

from headrace.cli.options.beam import split_beam_options

FN_API = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


@pytest.fixture
def submitted(cli, small_log, models_file):
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log")


def queued(cli):
    return sum(client["queued"] for client in cli("status", "--json").json["queues"])


def test_options_of_beam_stand_after_two_dashes(cli, submitted):
    answer = cli("work", "--until-idle", "--json", "--runner", FN_API, "--", "--direct_running_mode", "in_memory",
                 "--direct_num_workers=1", "--no_wait_until_finish").json  # fmt: skip
    assert answer["memos"] == 16


def test_a_mistyped_command_leases_nothing(cli, submitted):
    before = queued(cli)
    for words, said in [
        (["--runner", "FlinkRuner"], ["no such runner", "'FlinkRuner'", "FlinkRunner"]),
        (["--runner", "FlinkRunner", "--", "--flink_mater=h:1"], ["no such pipeline option", "--flink_master"]),
        (["--runner", "FlinkRunner", "--", "--parallelism", "two"], ["invalid int value: 'two'"]),
        (["--runner", "DataflowRunner", "--", "--project=p"], ["cannot reach a folder", "gs://bucket/path"]),
        (["--runner", "FlinkRunner", "--", "--flink_master=h:1"], ["in containers", "--environment_type=PROCESS"]),
        (["--runner", "PortableRunner"], ["--job_endpoint=host:port"]),
        (["stray"], ["a Beam pipeline option must start with --", "'stray'"]),
    ]:
        error = cli("work", "--until-idle", *words, status=2).err
        assert all(part in error for part in said), error
        assert error.count("error:") == 1
    assert queued(cli) == before > 0


def test_imports_take_them_too(cli, tmp_path):
    columns = [{"name": "user_id", "type": "int64"}, {"name": "time", "type": "timestamp"}]
    schema = {"format": "tsv", "columns": columns, "time": {"column": "time", "unit": "s"}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "log.tsv").write_text("".join(f"{n}\t{1772409600 + n}\n" for n in range(5)))
    words = ["table", "import", "clicks", tmp_path / "log.tsv", "--schema", tmp_path / "schema.json", "--runner"]
    assert "cannot reach a folder" in cli(*words, "DataflowRunner", status=2).err
    assert "--direct_num_workers" in cli(*words, FN_API, "--", "--direct_num_worker=1", status=2).err
    assert not (tmp_path / "home" / "tables").exists()
    answer = cli(*words, FN_API, "--json", "--", "--direct_running_mode=in_memory", "--direct_num_workers", "1").json
    assert answer["rows"] == 5


def test_analyses_take_them_too(cli, submitted, tmp_path):
    path = tmp_path / "passes.py"
    path.write_text("import headrace as hr\nm = hr.Model('m', client='c', label='clicked', table='log')\n"
                    "m.input('price', hr.float32('price').standardize_over(over=hr.between('2026-03-02', '2026-03-03')))\n")  # fmt: skip
    words = ["analyze", path, "--table", "log", "--runner"]
    assert "--parallelism" in cli(*words, "FlinkRunner", "--", "--paralelism=2", status=2).err
    assert "cannot reach a folder" in cli(*words, "DataflowRunner", status=2).err


def test_files_and_options_are_separated():
    assert split_beam_options(["a.csv", "b.csv"]) == (["a.csv", "b.csv"], ())
    assert split_beam_options(["a.csv", "--name", "value"]) == (["a.csv"], ("--name", "value"))
