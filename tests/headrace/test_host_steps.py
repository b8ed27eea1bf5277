"""``headrace train --hosts`` gives every host work in every step, and says how many steps each host had."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tensorflow")
BATCH_ROWS = 4
OPTIONS = {"deep": False, "linear": True, "linear_learning_rate": 0.05, "dense_learning_rate": 0.003, "passes": 1,
           "batch_rows": BATCH_ROWS, "partitions_per_epoch": 2, "deterministic": False}  # fmt: skip


def steps_of(rows: list[int], batch_rows: int = BATCH_ROWS) -> int:
    """The steps of epochs with these rows."""
    return sum(-(-count // batch_rows) for count in rows)


@pytest.mark.slow
def test_small_epochs_are_trained_by_all_hosts(submitted, tmp_path):
    """Of real processes: epochs of a few hundred events, far below one unit of 65,536; the run goes on with other hosts."""
    options = tmp_path / "options.json"
    options.write_text(json.dumps(OPTIONS))
    train = ("train", "first", "--config", options, "--run-dir", tmp_path / "run")
    found = submitted(*train, "--hosts", 2, "--end", "2026-03-02T02:00:00Z", "--json").json
    rows = [one["metrics"]["events"] for one in found["epochs"]]
    assert len(rows) == 1
    assert sum(rows) > 10 * BATCH_ROWS
    steps = found["steps_by_host"]
    assert list(steps) == ["h0", "h1"]
    assert max(steps.values()) == steps_of(rows)
    assert found["events_per_step"] == BATCH_ROWS
    assert min(steps.values()) >= max(steps.values()) - len(rows)
    assert found["idle_host_steps_share"] == pytest.approx(1 - sum(steps.values()) / (2 * max(steps.values())))
    assert found["exact"]

    answer = submitted(*train, "--hosts", 3)
    later = submitted(*train, "--json").json
    rest = [one["metrics"]["events"] for one in later["epochs"]][1:]
    assert len(rest) == 1
    text = " ".join(answer.out.split())
    assert f"{steps_of(rest)} on " in text, "those of this command only"
    assert f", of {BATCH_ROWS} events in all, at most 2 on a host" in text
    assert later["exact"]
    assert (later["steps_by_host"], later["idle_host_steps_share"]) == ({}, 0.0), "one process has no hosts"


@pytest.mark.slow
def test_hosts_may_have_batches_of_their_own(submitted, tmp_path):
    """An option says so; the run goes on with it, and refuses another meaning."""
    config = json.dumps({**OPTIONS, "batch_rows_per_host": True})
    train = ("train", "first", "--run-dir", tmp_path / "run")
    found = submitted(*train, "--config", config, "--hosts", 2, "--end", "2026-03-02T02:00:00Z", "--json").json
    rows = [one["metrics"]["events"] for one in found["epochs"]]
    assert max(found["steps_by_host"].values()) == steps_of(rows, 2 * BATCH_ROWS)
    assert found["events_per_step"] == 2 * BATCH_ROWS
    other = json.dumps({"batch_rows_per_host": False})
    assert (
        "option batch_rows_per_host is False, was True"
        in submitted(*train, "--config", other, "--hosts", 2, status=2).err
    )
    later = submitted(*train, "--hosts", 2, "--json").json
    rest = [one["metrics"]["events"] for one in later["epochs"]][1:]
    assert max(later["steps_by_host"].values()) == steps_of(rest, 2 * BATCH_ROWS)
    assert later["exact"]
