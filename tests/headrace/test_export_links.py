"""``headrace export``: the commands, their output, JSON, errors and exit statuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.headrace.test_checkpoints import check_golden
from tests.headrace.test_light_imports import HEAVY, ROOT
from tests.support.gcs_server import GcsServer
from tests.trainer.serving.deltas.histories import History, history

COMMITS = history(60, 4, most_id=500)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the run ``runs/ctr-v3`` of two commits."""
    monkeypatch.chdir(tmp_path)
    for epochs in (1, 2):
        COMMITS.commit(Path("runs/ctr-v3"), epochs)
    return tmp_path


def test_the_commands_print_links_and_what_was_applied(cli: Callable[..., Any], folder: Path) -> None:
    run = "runs/ctr-v3"
    check_golden("export_full", cli("export", "full", run, "--output", "chain", "--epoch", 1, "--quantize", "int8").out)
    check_golden("export_delta", cli("export", "delta", run, "--output", "chain").out)
    check_golden("export_nothing_new", cli("export", "delta", run, "--output", "chain").out)
    check_golden("export_apply_new", cli("export", "apply", "chain", "--to", "served", "--until", 0).out)
    check_golden("export_apply", cli("export", "apply", "chain", "--to", "served").out)
    check_golden("export_apply_nothing", cli("export", "apply", "chain", "--to", "served").out)
    check_golden("export_verify", cli("export", "verify", "chain").out)
    damaged = Path("chain/000001-delta/table-0001.values")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    check_golden("export_verify_damaged", cli("export", "verify", "chain", status=3).out)


def test_the_json_has_every_value(cli: Callable[..., Any], folder: Path) -> None:
    run = "runs/ctr-v3"
    full = cli("export", "full", run, "--output", "chain", "--epoch", 1, "--json").json
    assert (full["link"], full["since"], full["commit"]["epochs"]) == ("000000-full", None, 1)
    delta = cli("export", "delta", run, "--output", "chain", "--quantize", "fp16", "--json").json
    assert (delta["link"], delta["number"], delta["since"]) == ("000001-delta", 1, full["commit"])
    assert [(one["kind"], one["table"], one["columns"], one["encoding"]) for one in delta["tables"]] == [
        ("embedding", "user", 6, "float16"),
        ("embedding", "words", 2, "float16"),
        ("linear", "user", 1, "float16"),
    ]
    assert all(one["largest_error"] > 0 for one in delta["tables"])
    assert delta["dense"] == ["moving/000", "random/000", "weights/000"]
    assert cli("export", "delta", run, "--output", "chain", "--json").json["newest"] == "000001-delta"
    applied = cli("export", "apply", "chain", "--to", "served", "--json").json
    assert (applied["kind"], applied["before"]) == ("rows", None)
    assert [(one["number"], one["kind"]) for one in applied["applied"]] == [(0, "full"), (1, "delta")]
    assert applied["after"]["hash"] == delta["hash"]
    assert applied["rows"] == sum(one["rows"] for each in (full, delta) for one in each["tables"])
    verified = cli("export", "verify", "chain", "--json").json
    assert verified["damaged"] == []
    assert len(verified["files"]) > 20


def test_a_chain_may_be_in_a_bucket(
    cli: Callable[..., Any], folder: Path, gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an emulator by its variable, as for homes and runs."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{gcs_server.address}")
    run, chain = "runs/ctr-v3", f"gs://{gcs_server.bucket()}/weights"
    full = cli("export", "full", run, "--output", chain, "--epoch", 1).out
    assert f"{chain}/000000-full" in full
    assert "000001-delta" in cli("export", "delta", run, "--output", f"{chain}/").out
    assert "nothing new" in cli("export", "delta", run, "--output", chain).out
    applied = cli("export", "apply", chain, "--to", "served", "--json").json
    assert [one["number"] for one in applied["applied"]] == [0, 1]
    assert "nothing to apply" in cli("export", "apply", f"{chain}/000001-delta", "--to", "served").out
    assert "all intact" in cli("export", "verify", chain).out
    assert "must hold a link" in cli("export", "verify", f"{chain}/absent", status=4).err
    assert "no such bucket" in cli("export", "apply", "gs://absent-bucket/weights", "--to", "new", status=6).err


def test_a_model_names_its_run(cli: Callable[..., Any], folder: Path) -> None:
    shutil.copytree("runs", "home/runs")
    found = cli("export", "full", "ctr", "--output", "chain", "--json").json
    assert found["run"].endswith("home/runs/ctr-v3")


def test_wrong_calls_are_one_error(cli: Callable[..., Any], folder: Path) -> None:
    run = "runs/ctr-v3"
    begin = cli("export", "delta", run, "--output", "chain", status=2).err
    assert "must begin with a full snapshot" in begin
    assert "headrace export full" in begin
    assert (
        "quantization must be a known one"
        in cli("export", "full", run, "--output", "c", "--quantize", "x", status=2).err
    )
    assert "checkpoint of this number" in cli("export", "full", run, "--output", "chain", "--epoch", 7, status=4).err
    assert "must hold a checkpoint" in cli("export", "full", folder, "--output", "chain", status=4).err
    assert "must hold a link" in cli("export", "verify", "absent", status=4).err
    assert "must hold a link" in cli("export", "apply", "absent", "--to", "served", status=4).err
    assert "or in a folder of a bucket" in cli("export", "full", run, "--output", "s3://bucket/chain", status=2).err
    assert "must be a local folder" in cli("export", "apply", "chain", "--to", "gs://bucket/served", status=2).err
    cli("export", "full", run, "--output", "chain")
    cli("export", "apply", "chain", "--to", "served")
    COMMITS.commit(Path(run), 3)
    cli("export", "delta", run, "--output", "chain")
    shutil.rmtree("chain/000000-full")
    gap = cli("export", "apply", "chain", "--to", "new", status=2).err
    assert "must begin with a full snapshot" in gap
    cli("export", "apply", "chain", "--to", "served")
    other = History(history(61, 2, most_id=500).states)
    other.commit(Path("other"), 1)
    cli("export", "full", "other", "--output", "others")
    assert "newer than the state" in cli("export", "apply", "others", "--to", "served", status=2).err
    assert not Path("new").exists()


def test_links_are_written_and_applied_without_tensorflow(folder: Path) -> None:
    program = """
import sys
from headrace.cli.main import run
for words in (["full", "runs/ctr-v3", "--output", "chain", "--epoch", "1"], ["delta", "runs/ctr-v3", "--output", "chain"],
              ["apply", "chain", "--to", "served"], ["verify", "chain"]):
    assert run(["export", *words]) == 0
print("loaded:", *sorted(m for m in sys.modules if m in %r), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program % (HEAVY,)], env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].split() == ["loaded:"]


@pytest.mark.slow
def test_a_target_follows_a_chain_until_it_is_stopped(cli: Callable[..., Any], folder: Path) -> None:
    """In a process of its own, which begins before there is a chain and is killed between two of its links."""
    command = [sys.executable, "-m", "headrace", "export", "apply", "chain", "--to", "served", "--follow", "--poll-secs", "0.05", "--json"]  # fmt: skip
    found = []
    for end in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        ) as process:
            assert process.stdout is not None
            export = ("full", "--epoch", 1) if end == signal.SIGKILL else ("delta",)
            cli("export", export[0], "runs/ctr-v3", "--output", "chain", *export[1:])
            found.append(json.loads(process.stdout.readline()))
            process.send_signal(end)
            assert process.wait() == (-end if end == signal.SIGKILL else 128 + end)
    assert [[link["number"] for link in one["applied"]] for one in found] == [[0], [1]]
    assert "nothing to apply" in cli("export", "apply", "chain", "--to", "served").out
    shutil.rmtree("served")
    with subprocess.Popen(
        command[:-1], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert re.fullmatch(
        r"2 links, 000000-full to 000001-delta: \d+ set, \d+ removed; served is at 2 epochs, link 1\n", line
    )


def test_following_has_no_end(cli: Callable[..., Any], folder: Path) -> None:
    for option, value in (("--until", 1), ("--output", "new")):
        refused = cli("export", "apply", "chain", "--to", "served", "--follow", option, value, status=2).err
        assert "--follow must go without an end" in refused
    assert (
        "poll_secs must be"
        in cli("export", "apply", "chain", "--to", "served", "--follow", "--poll-secs", 0, status=2).err
    )
