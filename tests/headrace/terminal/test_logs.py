"""The lines of a command on standard error, as text and as JSON."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.main import run
from headrace.terminal.logs import (
    FORMAT_VARIABLE,
    VERBOSITY_VARIABLE,
    LogSettings,
    json_line,
    log_as_role,
    use_log_settings,
    write_line,
)
from headrace.terminal.output import say, say_error
from headrace.terminal.progress import progress_bar
from tests.support.examples import scaled
from transforms.child_process import child_environment, module_command
from transforms.errors import InputError
from transforms.log_fields import current_fields, log_fields, set_process_fields


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log of the process that tests run in is afterwards as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    for variable, usual in ((FORMAT_VARIABLE, "text"), (VERBOSITY_VARIABLE, "0")):
        monkeypatch.setenv(variable, usual)
    set_process_fields(
        role="", name="", run="", job="", model=""
    )  # commands in this process, of other tests, leave theirs
    yield
    use_log_settings(LogSettings())
    root.handlers[:], root.level = handlers, level
    set_process_fields(role="", name="", run="", job="", model="")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [json.loads(one) for one in capsys.readouterr().err.splitlines()]


def test_what_a_command_says_is_a_json_object_a_line(capsys):
    use_log_settings(LogSettings("json"))
    set_process_fields(role="worker", name="w1", job="")
    with log_fields(task=7, partition="hour=01"), log_fields(task=8):
        say("two\nlines \x1b[31m")
    say_error("error: a file must exist")
    logging.getLogger("warehouse.queue").warning("slow: %d", 3)
    said, failed, logged = lines(capsys)
    assert said.pop("time").endswith("Z")
    assert said == {"level": "info", "message": "two\nlines \x1b[31m", "role": "worker", "name": "w1", "task": "8", "partition": "hour=01"}  # fmt: skip
    assert (failed["level"], failed["message"]) == ("error", "error: a file must exist")
    assert (logged["level"], logged["logger"], logged["message"]) == ("warning", "warehouse.queue", "slow: 3")
    assert "task" not in failed


def test_a_trace_is_a_field_of_its_line(capsys):
    use_log_settings(LogSettings("json"))
    try:
        raise KeyError("k")
    except KeyError:
        logging.getLogger("trainer").exception("failed")
    (line,) = lines(capsys)
    assert line["message"] == "failed"
    assert "KeyError: 'k'" in line["error"]


def test_text_is_as_without_settings(capsys):
    say("a line")
    say_error("error: b")
    assert capsys.readouterr().err == "a line\nerror: b\n"


@pytest.mark.parametrize(
    ("verbosity", "levels"),
    [(-2, ["error"]), (-1, ["warning", "error"]), (0, ["info", "warning", "error"]), (1, ["debug", "info", "warning", "error"])],
)  # fmt: skip
def test_a_role_logs_by_its_verbosity(verbosity, levels, capsys):
    use_log_settings(LogSettings("json", verbosity))
    log_as_role("host", name="h0")
    log = logging.getLogger("trainer.job")
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)(level)
    assert [one["level"] for one in lines(capsys)] == levels


def test_a_quiet_command_says_errors_alone(capsys):
    use_log_settings(LogSettings(verbosity=-1))
    say("hidden")
    write_line("shown", level=logging.WARNING)
    with progress_bar("training", "events") as report:
        report(1, 2)
    say_error("error: shown too")
    assert capsys.readouterr().err == "shown\nerror: shown too\n"


def test_progress_is_a_line_now_and_then(capsys):
    use_log_settings(LogSettings("json"))
    moments = iter([0.0, 1.0, 31.0, 31.0, 40.0])
    with progress_bar("training", "events", clock=lambda: next(moments)) as report:
        report(1, 4000)
        report(2000, 4000)
        report(3000, 4000, "epoch 2")
    assert [one["message"] for one in lines(capsys)] == ["training: 2,000 of 4,000 events"]


def test_fields_of_a_block_are_those_of_its_thread(capsys):
    found = []
    with log_fields(task=1):
        other = threading.Thread(target=lambda: found.append(current_fields()))
        other.start()
        other.join()
        assert current_fields()["task"] == "1"
    assert "task" not in found[0]


@given(st.text(), st.text())
@settings(max_examples=scaled(100))
def test_any_text_is_one_line_that_parses(message, value):
    line = json_line(datetime(2026, 3, 2), "info", message, {"error": value})
    assert len(line.splitlines()) == 1
    found = json.loads(line)
    assert found["message"].encode("utf-16", "surrogatepass") == message.encode("utf-16", "surrogatepass")
    assert found.get("error", "") == value


def test_an_unknown_format_is_refused(capsys):
    with pytest.raises(InputError, match="--log-format"):
        LogSettings("xml")
    assert run(["--log-format", "xml", "status"]) == 2
    assert "text, json" in capsys.readouterr().err


def test_children_have_the_settings_of_their_command(tmp_path, capsys):
    assert run(["--log-format", "json", "-q", "status", "--home", str(tmp_path)]) == 2
    assert lines(capsys)[0]["level"] == "error"
    assert (os.environ[FORMAT_VARIABLE], os.environ[VERBOSITY_VARIABLE]) == ("json", "-1")
    child = subprocess.run(module_command("headrace", "status", "--home", str(tmp_path)), env=child_environment(), capture_output=True, text=True, check=False)  # fmt: skip
    assert child.returncode == 2
    assert json.loads(child.stderr)["level"] == "error"


def test_a_warning_of_beam_about_a_package_that_nothing_needs_is_left_out(capsys):
    use_log_settings(LogSettings())
    logging.getLogger().warning("apitools not found, and bigquery client libraries are not available")
    logging.getLogger().warning("a file is large")
    assert "apitools" not in capsys.readouterr().err


def test_an_error_in_json_has_the_name_of_its_class(capsys):
    assert run(["--log-format", "json", "model", "ls", "--home", "none/at/all"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["code"] == "InputError"
