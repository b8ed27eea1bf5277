"""A server writes below the folders that its start names, whatever a client asks for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.checkpoints.shards.shard_orders import ReachOrder, WriteOrder, read_order, to_document
from trainer.errors import ConfigError
from trainer.servers.allowed_runs import NO_RUNS, allowed_runs
from transforms.errors import DataError, InputError

BUCKET = "gs://anonymous@bucket/runs?endpoint_override=localhost:4443&scheme=http"


def is_allowed(run: str, *roots: str) -> bool:
    try:
        allowed_runs(roots).check(run)
    except InputError:
        return False
    return True


def test_runs_at_and_below_a_root_are_allowed(tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    root = str(tmp_path / "runs")
    assert is_allowed(root, root)
    assert is_allowed(f"{root}/one", root)
    assert is_allowed(f"{root}/not yet there", root)
    assert is_allowed(f"{root}/one", "/elsewhere", root)


@pytest.mark.parametrize(
    "run",
    ["", ".", "runs", "/", "{0}", "{0}/runs2", "{0}/runs/../other", "{0}/runs/one/../../other", "gs://bucket/runs", "{0}/runs/\0",
     "{0}/runs/link", "{0}/runs/linked"],
)  # fmt: skip
def test_other_folders_are_refused(tmp_path, run):
    (tmp_path / "runs" / "linked" / "checkpoints").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    os.symlink(tmp_path / "other", tmp_path / "runs" / "link")
    os.symlink(tmp_path / "other", tmp_path / "runs" / "linked" / "checkpoints" / "parts")
    assert not is_allowed(run.format(tmp_path), str(tmp_path / "runs"))


def test_a_server_that_names_no_folder_writes_nowhere(tmp_path):
    with pytest.raises(ConfigError, match="a run must be below a folder that the server was started for") as error:
        NO_RUNS.check(str(tmp_path))
    assert "--runs" in error.value.next_step


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (BUCKET, True),
        (BUCKET.replace("runs", "runs/one"), True),
        (BUCKET.replace("runs", "runs2"), False),
        (BUCKET.replace("runs", "runs/../x"), False),
        (BUCKET.replace("runs", "runs//x"), False),
        (BUCKET.replace("bucket", "other"), False),
        (BUCKET.replace("anonymous@", ""), False),
        (BUCKET.replace("localhost:4443", "elsewhere:80"), False),
        ("gs://bucket/runs", False),
        ("gs://", False),
        ("/runs", False),
    ],
)
def test_a_run_in_a_bucket_has_the_bucket_and_the_settings_of_the_root(run, expected):
    assert is_allowed(run, BUCKET) == expected


def test_a_root_is_an_absolute_folder_or_a_location(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert allowed_runs(["runs"]).roots == (str(tmp_path / "runs"),)
    with pytest.raises(InputError, match="a gs:// location must have a bucket"):
        allowed_runs(["gs://"])


@settings(max_examples=scaled(200))
@given(st.text(max_size=40) | st.builds(lambda text: "/runs/" + text, st.text("ab./\0\n", max_size=20)))
def test_what_is_allowed_stays_below_the_root(run):
    if is_allowed(run, "/runs"):
        assert Path(run).resolve().is_relative_to("/runs")


ORDER = WriteOrder("0" * 32, "/run", 1, 0, 1, 5, ())
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
)


@settings(max_examples=scaled(200))
@given(st.sampled_from(sorted(to_document(ORDER))), VALUES)
def test_an_order_is_read_as_it_was_written_or_refused(name, value):
    document = to_document(ORDER) | {name: value}
    try:
        found = read_order(WriteOrder, document)
    except DataError:
        return
    assert to_document(found) == document


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"server": 1}, "below the 1 servers"),
        ({"order": "x" * 32}, "32 hexadecimal digits"),
        ({"attempt": 10**18}, "attempt"),
        ({"tables": [{"kind": "embedding", "table": "a", "rows": 1}] * 2}, "different tables"),
        ({"tables": [{"kind": "../", "table": "a", "rows": 1}]}, "kind"),
        ({"path": "/etc/passwd"}, "path"),
    ],
)
def test_what_no_order_may_say_is_refused(changes, what):
    with pytest.raises(DataError, match=what):
        read_order(WriteOrder, to_document(ORDER) | changes)


def test_a_probe_is_no_path():
    with pytest.raises(DataError, match="32 hexadecimal digits"):
        read_order(ReachOrder, {"run": "/run", "probe": "../../etc/passwd", "server": 0})
