"""Shards of a small hashed table, written as a server writes them: a full one, and a partial one on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.retention import newest_part_attempt
from trainer.checkpoints.shard_manifest import ServerShard, ShardTable, lines_name, removed_name
from trainer.checkpoints.shard_name import ShardName, WrittenShards
from trainer.checkpoints.shards.write_shard import write_shard
from trainer.checkpoints.table_sections import section_name
from transforms.arrays import Array

_SHARD = ServerShard(1, 0, 1, 1, (ShardTable("embedding", "user", 1, 0, 2**62),), generation=5)


def hashed_arrays(
    ids: Sequence[int], value: int, ages: Sequence[int], step: int, candidates: int = 0
) -> dict[str, Array]:
    """The arrays of rows whose weights are ``value``, at a step."""
    count = len(ids)
    columns = {"rows": np.array(ids), "weights": np.full((count, 2), value, np.float32), "slots": np.zeros((count, 1), np.float32)}  # fmt: skip
    beside = {"ages": np.array(ages), "steps": np.array([step]), "candidates": np.zeros(candidates, np.uint64)}
    own = {f"embedding/{column}/user": one for column, one in columns.items()}
    return own | {section_name("embedding", section, "user"): one for section, one in beside.items()}


def partial_arrays(removed: Sequence[int]) -> dict[str, Array]:
    """What a partial shard has more: removed ids, and no line of candidates."""
    return {
        removed_name("embedding", "user"): np.array(removed),
        lines_name("embedding", "user"): np.zeros(0, np.int64),
    }


def write_full(run: Path, epochs: int) -> ShardName:
    """A full shard, and its checkpoint: ids 1 to 4 at step 10."""
    shard = replace(_SHARD, attempt=newest_part_attempt(run) + 1, step=epochs)
    name = write_shard(str(run), shard, (), hashed_arrays([1, 2, 3, 4], epochs, [9, 5, 0, 0], 10, 16))
    write_checkpoint(run, epochs, {"step": epochs}, {}, keep=1, shards=WrittenShards((name,)))
    return name


def write_partial(run: Path, base: ShardName, arrays: Mapping[str, Array] | None = None) -> ShardName:
    """A shard on it, and its checkpoint: id 1 was removed, id 3 changed, id 7 came, three steps later; or with other arrays."""
    (table,) = _SHARD.tables
    own = replace(table, is_partial=True, removes=True)
    shard = replace(_SHARD, attempt=newest_part_attempt(run) + 1, step=2, tables=(own,), base=str(base))
    name = write_shard(str(run), shard, (), arrays or hashed_arrays([3, 7], 2, [0, 1], 13) | partial_arrays([1]))
    write_checkpoint(run, 2, {"step": 2}, {}, keep=1, shards=WrittenShards((name,), (base,)))
    return name
