"""A mistyped home: commands refuse it with the nearest warehouse, and only a few make a new one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace import cli
from headrace.cli.main import run
from headrace.demo.needs import check_needs
from headrace.demo.registry import script
from headrace.demo.sample_log import SampleLogConfig
from transforms.errors import InputError


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder; its status, output and errors."""
    monkeypatch.chdir(tmp_path)
    for name in ("HEADRACE_HOME", "HEADRACE_CATALOG_URL"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments):
        status = run([str(one) for one in arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


REFUSED = [
    ("status",),
    ("model", "ls"),
    ("model", "show", "ctr"),
    ("table", "ls"),
    ("table", "drop", "log"),
    ("work", "--until-idle"),
    ("train", "ctr"),
    ("predict", "ctr", "--output", "scores"),
    ("gc",),
    ("clients", "list"),
    ("tasks", "list"),
    ("stats", "features"),
    ("stats", "lookups", "ctr"),
    ("holds", "ls"),
    ("jobs", "ls"),
    ("ckpt", "ls", "ctr"),
    ("prune", "report", "ctr"),
]


@pytest.mark.parametrize("arguments", REFUSED)
def test_a_mistyped_home_makes_no_warehouse(command, tmp_path, arguments):
    assert command("init", "--home", "warehouse")[0] == 0
    status, _, error = command(*arguments, "--home", "warehuose")
    assert status == 2
    assert "the home must be the folder of a warehouse" in error
    assert f"did you mean --home {tmp_path / 'warehouse'}?" in error
    assert f"headrace init --home {tmp_path / 'warehuose'}" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["warehouse"]


def test_a_command_in_a_folder_below_names_the_home_above(command, tmp_path, monkeypatch):
    assert command("init")[0] == 0
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    status, _, error = command("model", "ls")
    assert status == 2
    assert f"did you mean --home {tmp_path / '.headrace'}?" in error
    assert list((tmp_path / "notebooks").iterdir()) == []


def test_init_makes_a_warehouse_and_leaves_one_as_it_is(command, tmp_path, small_log):
    document = json.loads(command("init", "--home", "deep/home", "--json")[1])
    assert (document["home"], document["tables"]) == (str(tmp_path / "deep" / "home"), 0)
    assert command("table", "add", "log", small_log, "--home", "deep/home")[0] == 0
    assert json.loads(command("init", "--home", "deep/home", "--json")[1])["tables"] == 1
    assert "it has 1 table" in command("init", "--home", "deep/home")[1]
    assert command("status", "--home", "deep/home")[0] == 0


def test_adding_a_table_makes_a_warehouse(command, tmp_path, small_log):
    assert command("table", "add", "log", small_log, "--home", "new")[0] == 0
    assert (tmp_path / "new" / "catalog.db").is_file()
    assert "the warehouse" in command("init", "--home", "new")[1]


def test_only_these_commands_make_a_warehouse():
    """A new command that makes one is a decision, not an accident."""
    making = {path.stem for path in Path(cli.__file__).parent.glob("*.py") if "creates=True" in path.read_text()}
    assert making == {"init", "tables", "demo"}


def test_a_demo_says_all_that_it_lacks_at_once(tmp_path):
    sample = script("sample", SampleLogConfig())
    check_needs(sample, "")
    with pytest.raises(InputError) as refused:
        check_needs(script("globo", SampleLogConfig()), str(tmp_path / "none"), is_installed=lambda name: False)
    assert refused.value.value == f"missing: apache_beam, scipy, logs {tmp_path / 'none'}"
    assert "pip install 'headrace[beam,train]'" in str(refused.value.next_step)
    with pytest.raises(InputError) as refused:
        check_needs(sample, "", is_installed=lambda name: name != "scipy")
    assert "pip install 'headrace[train]'" in str(refused.value.next_step)


def test_a_demo_without_its_packages_writes_nothing(command, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.demo.needs.find_spec", lambda name: None)
    status, _, error = command("demo", "--home", tmp_path / "demo")
    assert status == 2
    assert "pip install 'headrace[beam,train]'" in error
    assert not (tmp_path / "demo").exists()
