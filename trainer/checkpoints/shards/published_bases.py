"""The full shards on which the next shards of servers may build: those of the newest published checkpoint, which stays until a later one is."""

from __future__ import annotations

from trainer.checkpoints.read import open_commit
from trainer.checkpoints.run_files import RunFiles, newest_first
from trainer.errors import OtherFormat, TornCheckpoint


def published_bases(files: RunFiles) -> tuple[str, ...]:
    """By server the name of the full shard in the newest checkpoint, or of the base of its partial one; none if it has no intact shards."""
    for name in newest_first(files)[:1]:
        try:
            commit = open_commit(files, name)
        except (TornCheckpoint, OtherFormat):
            return ()
        found = []
        for shard, stored in zip(commit.shard_names, commit.shards, strict=True):
            assert stored.shard is not None
            found.append(stored.shard.base or str(shard))
        return tuple(found)
    return ()
