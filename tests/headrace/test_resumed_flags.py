"""A run goes on with other flags than it began with, as the rules of the command's options say, and trains each event once."""

from __future__ import annotations

import json

import pytest

from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import SMALL, UNTRIED

pytest.importorskip("tensorflow")

#: One training after the other, each with an hour more.
TRAININGS = (
    (),
    ("--hosts", "2", "--hosts-per-machine", "2", "--dense-values", "bf16", "--wire-values", "fp16", "--batch-files", "50MB", "--epoch-steps", "2"),
    ("--servers", "2", "--server-threads", "1", "--embedding-workers", "1", "--server-updates", "each", "--wire-values", "fp14", "--wire-ids", "unique"),
    ("--hosts", "1", "--readers", "1", "--servers", "1", "--shuffle-events", "128"),
)  # fmt: skip


@pytest.mark.slow
def test_flags_may_be_others_at_each_resume(cli, models_file, tmp_path):
    write_sample_log(tmp_path / "log", SMALL, late=False)
    cli("table", "add", "log", tmp_path / "log", "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log", "--model", "first")
    options = tmp_path / "options.json"
    options.write_text(json.dumps({**UNTRIED, "batch_rows": 64}))
    trained = 0
    for hours, flags in enumerate(TRAININGS, 1):
        found = cli("train", "first", "--config", options, "--end", f"2026-03-02T{hours:02}:00", *flags, "--json").json
        assert (found["exact"], found["finished"]) == (True, True)
        assert found["events_this_time"] > 0
        trained += found["events_this_time"]
        assert found["counted"] == trained
