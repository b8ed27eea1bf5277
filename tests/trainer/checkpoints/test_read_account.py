"""What a following job reads of the commit that it has just written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.serving.deltas.histories import history
from trainer.checkpoints.checkpoint import newest_intact
from trainer.checkpoints.read import Checkpoint
from trainer.errors import TornCheckpoint

COMMITS = history(90, 1)


def found(run: Path, *, verifies_all: bool) -> Checkpoint | None:
    return newest_intact(run, lambda one: one, on_skip=lambda reason: None, weights=False, verifies_all=verifies_all)


@pytest.mark.parametrize("hosts", [0, 2])
def test_only_what_is_used_is_read_without_the_verification_of_all_bytes(tmp_path: Path, hosts: int) -> None:
    COMMITS.commit(tmp_path, 1, hosts=hosts)
    whole, account = found(tmp_path, verifies_all=True), found(tmp_path, verifies_all=False)
    assert whole is not None
    assert account is not None
    assert (account.digest, account.document, account.arrays.keys()) == (
        whole.digest,
        whole.document,
        whole.arrays.keys(),
    )
    largest = max((tmp_path / "checkpoints").rglob("*.npy"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1] + b"\xff")
    with pytest.raises(TornCheckpoint):
        found(tmp_path, verifies_all=True)
    account = found(tmp_path, verifies_all=False)
    assert account is not None
    assert account.digest == whole.digest
