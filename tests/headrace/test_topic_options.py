"""The options of ``headrace table add`` for a topic of Kafka that are refused before a broker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.called_commands import call

TOPIC = "kafka://127.0.0.1:1/clicks"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--key", "id"], "must go without a topic of Kafka"),
        (["--lake-version", "3"], "must go without a topic of Kafka"),
        (["--move"], "must go without a topic of Kafka"),
        (["--outside-times", "refuse"], "must go without a topic of Kafka"),
        (["--from", "middle"], "earliest or the latest"),
        (["--every", "5s"], "--every must go with --follow"),
        (["--follow", "--every", "0s"], "must be longer than 0"),
        (["--partition-by", "week"], "must be hours or days"),
        (["--batch-bytes", "2GiB"], "from 1 byte to 1 GiB"),
        (["--batch-messages", "-1"], "at least one message"),
        (["--max-reject-share", "2"], "must be a share"),
        (["--client-config", "none"], "must be readable text"),
    ],
)
def test_an_option_that_a_topic_does_not_have(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in call(capsys, "table", "add", "log", TOPIC, *options, status=2)


def test_the_schema_file_says_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"format": "jsonl", "columns": [{"name": "id", "type": "int64"}]}')
    refused = call(capsys, "table", "add", "log", TOPIC, "--schema", schema, "--time-column", "time", status=2)
    assert "the schema file must say this" in refused


def test_options_of_a_topic_need_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = call(capsys, "table", "add", "log", tmp_path, "--from", "latest", status=2)
    assert "needs a topic of Kafka" in refused
