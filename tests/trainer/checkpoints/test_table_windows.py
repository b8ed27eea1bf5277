"""The rows of a table are checked some at a time, whatever their division over shards."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import read_shards, stored_shard
from trainer.checkpoints.shard_manifest import ServerShard
from trainer.checkpoints.shard_name import ShardName
from trainer.checkpoints.shards.write_shard import write_shard
from trainer.checkpoints.stored_commit import layered_slice
from trainer.checkpoints.table_windows import check_table_rows
from trainer.errors import TornCheckpoint


def write(folder: str, of_shards: list[np.ndarray]) -> list[ShardName]:
    """A table of these rows as shards."""
    return [
        write_shard(
            folder, ServerShard(1, server, len(of_shards), 3, ()), (),
            {"embedding/rows/t": rows, "embedding/weights/t": np.zeros((len(rows), 1), np.float32),
             "embedding/slots/t": np.zeros((len(rows), 0), np.float32)},
        )
        for server, rows in enumerate(of_shards)
    ]  # fmt: skip


def check(folder: str, names: list[ShardName], window_bytes: int = 64 * 16) -> None:
    files = open_run(folder)
    parts = [stored_shard(files, name, manifest) for name, manifest in read_shards(files, names)]
    check_table_rows(files, [layered_slice(parts, "embedding", "t")], window_bytes, "embedding table t")


@settings(max_examples=scaled(60))
@given(st.data(), st.integers(1, 4), st.integers(0, 300))
def test_each_row_is_in_one_shard(data, shards, count):
    rows = np.sort(np.random.default_rng(count).choice(10_000, count, replace=False))
    owner = np.array(data.draw(st.lists(st.integers(0, shards - 1), min_size=count, max_size=count)), np.int64)
    found = [rows[owner == server] for server in range(shards)]
    with TemporaryDirectory() as folder:
        check(folder, write(folder, found))
    if count < 2:
        return
    kind, at = data.draw(st.sampled_from(["twice", "order", "equal"])), data.draw(st.integers(0, count - 2))
    server = int(owner[at])
    if kind == "twice" and shards > 1:
        other = (server + 1) % shards
        found[other] = np.sort(np.append(found[other], rows[at]))
    else:
        found[server] = np.append(found[server], found[server][-1] - (kind == "order"))
    with TemporaryDirectory() as folder:
        names = write(folder, found)
        with pytest.raises(TornCheckpoint, match=r"every row of a table|the rows of a part must ascend"):
            check(folder, names)


def test_the_memory_is_that_of_a_window(tmp_path: Path):
    rows = np.arange(4_000_000)
    names = write(str(tmp_path), [rows[server::2] for server in range(2)])
    tracemalloc.start()
    try:
        check(str(tmp_path), names, 1 << 20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20
