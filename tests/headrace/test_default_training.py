"""``headrace train`` without options: its choices are shown, stored, and replaceable."""

from __future__ import annotations

import json

import pytest

from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import SMALL

TRAIN = ("train", "first", "--end", "2026-03-02T03:00", "--test-end", "2026-03-02T04:00")


@pytest.fixture
def submitted(cli, models_file, tmp_path):
    write_sample_log(tmp_path / "log", SMALL, late=False)
    cli("table", "add", "log", tmp_path / "log", "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log", "--model", "first")
    return cli


@pytest.mark.slow
def test_the_choices_are_shown_and_stored(submitted, tmp_path):
    first = submitted(*TRAIN, "--json")
    chosen = {name: value for row in first.json["options"] for name, value in row["values"].items()}
    assert chosen["batch_rows"] == 64
    assert chosen["events_per_epoch"] == 10_000
    assert set(chosen) >= {"deep", "linear", "passes", "initial_bias", "dense_scaling"}
    assert first.json["test"]["normalized_entropy"] < 1.05
    held_out = bool((first.json["all_passes"] or {}).get("held_out"))
    assert len(first.json["epochs"]) == (1 + held_out) * first.json["passes"], (
        "three small hours are one epoch a segment"
    )
    assert "trying candidates on slice 1 of 3: 11 of 11" in first.err
    assert len(first.json["trial"]) >= 9
    assert sum(one["is_chosen"] for one in first.json["trial"]) == 1
    assert first.json["verdict"][0]["kind"] == "base_rate"
    again = submitted(*TRAIN)
    assert "Options chosen from the data" in again.out
    assert "128 steps a pass" in again.out
    assert "trying" not in again.err
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({"seed": 32}), encoding="utf-8")
    assert "option seed is 32, was 0, and must not change" in submitted(*TRAIN, "--config", settings, status=2).err


def test_training_keeps_the_memory_that_a_fragment_frees(submitted, tmp_path, monkeypatch):
    """Else each page of the next fragment faults, which doubles the time of loading."""
    asked = []
    monkeypatch.setattr("headrace.cli.train.keep_freed_memory", lambda: asked.append(True))
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({"no_such_option": 1}), encoding="utf-8")
    submitted(*TRAIN, "--config", settings, status=2)
    assert asked == [True]
