"""The option groups of ``headrace train``: one description of each option for the command line, its help and other processes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from headrace.cli.main import run
from headrace.cli.options.option_groups import Mark, command_line, group_of_values, option_fields, values_of_group
from headrace.cli.train_options.arguments import parse_training, training_values
from headrace.cli.train_options.training import TrainOptions
from tests.headrace.test_commands import check_golden
from tests.headrace.train_values import train_values

FIELDS = option_fields(TrainOptions)


def test_the_help_has_panels_and_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    check_golden("train_help", text)


def test_each_option_is_described_once() -> None:
    assert len({one.name for one in FIELDS}) == len({one.flag for one in FIELDS}) == len(FIELDS)


def test_groups_have_the_values_of_the_arguments() -> None:
    options = parse_training(["ctr", "--hosts", "2", "--end", "2026-03-02", "--servers", "3", "--baseline", "price"])
    assert (options.model, options.hosts.hosts, options.data.end, options.servers.servers) == (
        "ctr",
        2,
        "2026-03-02",
        "3",
    )
    assert options.data.baseline == ["price"]
    assert options == parse_training(command_line(options))


@pytest.mark.parametrize("command", [["train"], ["jobs", "submit", "--", "train"], ["chaos", "--", "train"]])
@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--test-end", "2026-03-02"], "--test-end must go with --end"),
        (["--end", "soon"], "a time must be ISO 8601"),
        (["--hosts", "2", "--epoch-events", "-1"], "numbers of events and steps must be at least 0"),
        (["--wire-ids", "plain"], "--wire-ids must go with --servers"),
        (["--servers", "2", "--wire-ids", "odd"], "--wire-ids must be a known encoding"),
        (["--export-quantize", "int8"], "--export-quantize must go with --export"),
        (["--zone", "a"], "this option needs another launcher"),
        (["--max-ids", "0"], "--max-ids must be >= 1"),
    ],
)
def test_every_path_checks_each_group(
    command: list[str], arguments: list[str], rule: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the command only queues a training, or disturbs it."""
    before, after = (command[:2], command[2:]) if command[0] == "jobs" else (command[:1], command[1:])
    home = ["--home", str(tmp_path / "home")]
    own = home if command[0] == "jobs" else []
    assert run([*before, *own, *after, "ctr", *arguments, *(home if command[0] != "jobs" else [])]) == 2
    if command[0] == "chaos" and arguments[0] in ("--export-quantize", "--zone"):
        rule = "chaos cannot run a training with this option"
    assert rule in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "home").exists()


@given(train_values())
def test_the_arguments_of_any_values_give_the_values(chosen: dict[str, Any]) -> None:
    values = {**training_values(["ctr"]), **chosen}
    options = group_of_values(TrainOptions, values)
    assert training_values(command_line(options)) == values_of_group(options) == values


def test_an_option_is_in_the_first_panel_or_that_of_its_group() -> None:
    first = [one.flag for one in FIELDS if Mark.FIRST in one.marks]
    assert first == ["--start", "--end", "--test-end", "--from", "--save-as", "--config", "--run-dir", "--hosts", "--servers", "--export"]  # fmt: skip
    assert {one.panel for one in FIELDS} >= {"Data", "Run", "Parameter servers", "Serving", "TPU", "Cluster"}
