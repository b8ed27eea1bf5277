"""``headrace ckpt`` on commits of parts and on checkpoints of one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.headrace.test_commands import GOLDENS
from tests.headrace.test_light_imports import HEAVY, ROOT
from tests.trainer.checkpoints.job_states import assert_equal, checkpoint, counts, cut, document, publish_all, state
from trainer.checkpoints.checkpoint import read_newest, write_checkpoint
from trainer.checkpoints.host_part import LEDGER
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.retention import Retention, apply_retention
from trainer.errors import CheckpointNotWritten
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.plan_document import plan_bytes
from trainer.run.progress.lock import run_lock
from transforms.errors import Busy

WRITTEN = 1_790_000_000.0


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that one process began and a job of two hosts continued, with a part of an attempt that was given up."""
    run = tmp_path / "home" / "runs" / "ctr-v3"
    write_checkpoint(run, 1, document(1), {**state(1), LEDGER: counts(1).uneven}, keep=9)
    publish_all(run, checkpoint(2), 2, attempt=7)
    publish_all(run, checkpoint(3), 2, attempt=9)
    write_part(run, *cut(checkpoint(4), 0, 2, attempt=10))
    for epochs in (1, 2, 3):
        written = WRITTEN + 3600 * epochs
        os.utime(manifest(run, epochs), (written, written))
    apply_retention(run, Retention(newest=1, every=2, younger_secs=3 * 3600), now_secs=WRITTEN + 3 * 3600)
    return run


def manifest(run: Path, epochs: int) -> Path:
    return run / "checkpoints" / f"epoch-{epochs:06d}" / "manifest.json"


def check_golden(name: str, text: str) -> None:
    """Compare a text without its list of options, which every new option changes; nothing else in it varies."""
    text = text.partition("\noptions\n")[0].rstrip("\n") + "\n"
    place = GOLDENS / f"{name}.txt"
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        place.write_text(text, encoding="utf-8")
    assert text == place.read_text(encoding="utf-8")


def test_the_commands_print_commits_of_parts(cli, run):
    check_golden("ckpt_ls", cli("ckpt", "ls", run).out)
    check_golden("ckpt_show", cli("ckpt", "show", run).out)
    check_golden("ckpt_show_folder", cli("ckpt", "show", run, "1").out)
    check_golden("ckpt_diff", cli("ckpt", "diff", run, "2", "3").out)
    check_golden("ckpt_verify", cli("ckpt", "verify", run, "3").out)


def test_a_model_names_its_newest_run(cli, run):
    home = run.parents[1]
    shutil.copytree(run, run.with_name("ctr-v12"))
    assert cli("ckpt", "ls", "ctr", "--home", home, "--json").json["run"] == str(run.with_name("ctr-v12"))
    assert cli("ckpt", "ls", "ctr", "--version", "3", "--home", home, "--json").json["run"] == str(run)
    assert "folder or the name" in cli("ckpt", "ls", "ctr", "--version", "4", "--home", home, status=4).err
    assert "folder or the name" in cli("ckpt", "ls", "other", "--home", home, status=4).err
    assert "must go with the name of a model" in cli("ckpt", "ls", run, "--version", "3", status=2).err
    assert "must hold a checkpoint" in cli("ckpt", "ls", home, status=4).err


def test_the_json_has_every_value(cli, run):
    listed = cli("ckpt", "ls", run, "--json").json
    assert [(one["epochs"], one["attempt"], one["hosts"], one["rule"]) for one in listed["checkpoints"]] == [
        (3, 9, 2, "newest 1"),
        (2, 7, 2, "every 2"),
        (1, None, 1, ""),
    ]
    assert listed["checkpoints"][0]["written"] == "2026-09-21T17:13:20+00:00"
    assert listed["unnamed_attempts"] == 1
    shown = cli("ckpt", "show", run, "3", "--json").json
    assert shown["job"]["next_unit"] == 300
    assert shown["ledger"] == {"fragments": 7, "events": 86, "least": 0, "most": 1, "trained": 83}
    assert [(one["table"], one["rows"], one["dim"]) for one in shown["tables"]] == [
        ("user", 40, 4),
        ("words", 14, 2),
        ("user", 40, 1),
    ]
    assert shown["options"]["dim"] == 4
    differing = cli("ckpt", "diff", run, "3", "3", "--json").json
    assert all(one["added"] == one["removed"] == one["changed"] == 0 for one in differing["tables"])
    assert all(one["change"] == 0.0 for one in differing["arrays"])
    assert (differing["ledger"], differing["options"]) == ([], {})
    before = cli("ckpt", "diff", run, "1", "3", "--json").json  # of one process and of parts
    assert sum(one["trained"] for one in before["ledger"]) == 54


def test_a_torn_commit_is_listed_with_its_file_and_gives_status_3(cli, run):
    part = run / "checkpoints" / "parts" / "attempt-000009" / "host-1" / "array-0002.npy"
    data = part.read_bytes()
    part.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    check_golden("ckpt_verify_torn", cli("ckpt", "verify", run, "3", status=3).out)
    found = cli("ckpt", "verify", run, "--json", status=3).json
    assert found["torn"] == ["epoch-000003"]
    (torn,) = [one for one in found["files"] if one["problem"]]
    assert torn["path"] == "parts/attempt-000009/host-1/array-0002.npy"
    assert torn["holds"] == "embedding/weights/user"
    assert cli("ckpt", "verify", run, "2").status == 0
    assert "must have the bytes" in cli("ckpt", "diff", run, "2", "3", status=3).err
    manifest(run, 2).write_bytes(b"{}")
    os.utime(manifest(run, 2), (WRITTEN, WRITTEN))
    check_golden("ckpt_ls_torn", cli("ckpt", "ls", run).out.replace(str(run), "RUN"))
    assert "manifest must match" in cli("ckpt", "show", run, "2", status=3).err
    manifest(run, 3).write_bytes(b"{}")
    shown = cli("ckpt", "show", run)
    assert "a checkpoint was skipped: epoch-000003" in shown.err
    assert "epoch-000001" in shown.out


def test_a_checkpoint_that_is_not_there_is_one_error(cli, run):
    error = cli("ckpt", "show", run, "9", status=4).err
    assert "allowed: 1, 2, 3" in error


def test_a_run_in_a_bucket_is_listed_and_verified(cli, gcs_server):
    run = gcs_server.home(gcs_server.bucket(), "runs/ctr-v1")
    publish_all(run, checkpoint(1), 2, attempt=4)
    (listed,) = cli("ckpt", "ls", run, "--json").json["checkpoints"]
    assert (listed["attempt"], listed["events"], listed["problem"]) == (4, 27, "")
    assert cli("ckpt", "verify", run, "--json").json["torn"] == []
    assert "rows" in cli("ckpt", "show", run).out


@pytest.mark.medium
def test_the_commands_load_no_tensorflow(run):
    program = f"""
import sys
from headrace.cli.main import run
for command in (["ls"], ["show"], ["verify"]):
    assert run(["ckpt", *command, {str(run)!r}]) == 0
assert run(["ckpt", "diff", {str(run)!r}, "2", "3"]) == 0
print(*sorted(name for name in sys.modules if name in {(*HEAVY, "numba")!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_a_run_is_resharded(cli, run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.parent)
    plan = PartitionPlan(
        4,
        (
            TablePlan("user", 160, 4, (Slice(0, 3, (0, 1), (80, 160)), Slice(3, 1, (2,)))),
            TablePlan("words", 160, 2, (Slice(0, 2, (3, 1)),), is_replicated=True),
        ),
    )
    (run.parent / "plan.json").write_bytes(plan_bytes(plan))
    check_golden("ckpt_reshard", cli("ckpt", "reshard", "./ctr-v3", "--output", "three", "--hosts", "3").out)
    check_golden(
        "ckpt_reshard_plan", cli("ckpt", "reshard", "./three", "--output", "by-plan", "--plan", "plan.json").out
    )
    os.utime(manifest(run.parent / "by-plan", 3), (WRITTEN, WRITTEN))
    check_golden("ckpt_show_resharded", cli("ckpt", "show", "./by-plan").out)
    assert cli("ckpt", "verify", "./by-plan", "--json").json["torn"] == []
    for folder in ("three", "by-plan"):
        found = read_newest(folder, on_skip=pytest.fail)
        assert found is not None
        assert_equal(found, checkpoint(3))
    back = cli("ckpt", "reshard", "./by-plan", "--output", "back", "--hosts", "1", "--json").json
    assert (back["parts_before"], back["parts"], back["tables"], back["plan"]) == (4, 1, 3, None)


def test_what_cannot_be_resharded_is_refused(cli, run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.parent)
    before = {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")}

    def refused(*options: object, status: int = 2) -> str:
        error: str = cli("ckpt", "reshard", "./ctr-v3", *options, status=status).err
        assert not (run.parent / "new").exists()
        return error

    new = ("--output", "new")
    assert "must be a number of hosts or a plan" in refused(*new)
    assert "must be a number of hosts or a plan" in refused(*new, "--hosts", "2", "--plan", "x")
    assert "hosts must be a number" in refused(*new, "--hosts", "-1")
    assert "must be a new folder" in refused("--output", "ctr-v3", "--hosts", "2")
    assert "must be outside of the run" in refused("--output", "ctr-v3/new", "--hosts", "2")
    assert "this number of epochs" in refused(*new, "--hosts", "2", "--epoch", "9", status=4)
    user, words = TablePlan("user", 160, 4, (Slice(0, 4, (0,)),)), TablePlan("words", 160, 2, (Slice(0, 2, (0,)),))
    for tables, message in (
        ((user,), "must have the embedding tables of the run"),
        ((user, words, TablePlan("more", 1, 1, (Slice(0, 1, (0,)),))), "must have the embedding tables of the run"),
        ((user, TablePlan("words", 160, 3, (Slice(0, 3, (0,)),))), "as wide as that of the run"),
        ((TablePlan("user", 1, 4, (Slice(0, 4, (0,)),)), words), "must have the rows of the run"),
    ):
        (run.parent / "plan.json").write_bytes(plan_bytes(PartitionPlan(1, tables)))
        assert message in refused(*new, "--plan", "plan.json")
    with run_lock(run):
        assert "must not be in use" in refused(*new, "--hosts", "2", status=Busy.exit_status)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 3, 7))
    assert "7 bytes free" in refused(*new, "--hosts", "2", status=CheckpointNotWritten.exit_status)
    monkeypatch.undo()
    assert {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")} == before
    assert [path.name for path in run.parent.iterdir() if path.name.startswith(".")] == []


def test_a_torn_checkpoint_is_not_resharded(cli, run):
    array = next((run / "checkpoints" / "parts").rglob("attempt-000009/host-1/array-0001.npy"))
    data = bytearray(array.read_bytes())
    data[-1] ^= 1
    array.write_bytes(data)
    done = cli("ckpt", "reshard", run, "--output", run.parent / "new", "--hosts", "3", status=3)
    assert "array-0001.npy" in done.err
    assert [path.name for path in run.parent.iterdir()] == [run.name]
    cli("ckpt", "reshard", run, "--output", run.parent / "new", "--hosts", "3", "--epoch", "2")
