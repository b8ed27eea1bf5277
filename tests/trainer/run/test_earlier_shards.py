"""A checkpoint of hashed and pruned tables that servers of an earlier release have written: it is read, and training goes on from it.

``goldens/earlier_shards.zip`` is the run of two servers after the first of two partitions, with :data:`OPTIONS`, written before shards could list removed
rows. It is made again only when a release no longer reads it.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from tests.trainer.run.test_server_shards import assert_equal_arrays, newest, newest_commit, trained
from trainer.checkpoints.inspection import check_files
from trainer.checkpoints.open_run import open_run

KEPT = Path(__file__).parent / "goldens" / "earlier_shards.zip"
OPTIONS = {
    "hashed": {"user": {"capacity": 40, "admit_after": 2}},
    "pruning": {"budget": 0.3, "round_steps": 5, "spare_share": 0.0, "reset": "restored"},
    "linear": True,
}
#: Of the names, types and bytes of all arrays of tables, as the earlier release has read them.
DIGEST = "28bfaa1a9e7e7d574204d0a3a8be600a563730f040ec7a7c9cfa749957aff4a3"


def unpack(folder: Path) -> Path:
    with zipfile.ZipFile(KEPT) as kept:
        kept.extractall(folder)
    return folder


def digest_of(arrays) -> str:
    found = hashlib.sha256()
    for name in sorted(one for one in arrays if not one.startswith("dense/")):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        found.update(arrays[name].tobytes())
    return found.hexdigest()


def test_shards_of_an_earlier_release_are_read(tmp_path):
    unpack(tmp_path)
    commit = newest_commit(tmp_path)
    assert {one.shard.generation for one in commit.shards} == {0}
    assert digest_of(newest(tmp_path).arrays) == DIGEST
    assert not [one for one in check_files(open_run(tmp_path), commit.epochs_done) if one.problem]


@pytest.mark.medium
def test_training_goes_on_from_shards_of_an_earlier_release(tmp_path):
    """On the servers' own reading of them as on rows that pass through the trainer; the first shards of this release are full."""
    for name in ("shards", "rows"):
        unpack(tmp_path / name)
    report = trained(tmp_path / "shards", 2, partitions=2, **OPTIONS)
    assert report.resumed_from
    trained(tmp_path / "rows", 2, partitions=2, runs=[], **OPTIONS)
    assert not any(one.base for one in newest_commit(tmp_path / "shards").shards)
    assert_equal_arrays(newest(tmp_path / "shards").arrays, newest(tmp_path / "rows").arrays)
